"""Axis labels, results of effects, and the parts of captions that several figures share."""

from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.study import Study
from ablate.runs.tables import named_rows
from analysis.case import Case

COLOURS = "filled: decided, blue: better, orange: worse; open: undecided"


def axis_label(study: Study, metric: str | None = None) -> str:
    """The metric with its unit; by default all metrics that cells are compared by."""
    metrics = [metric] if metric else evidence.measures(study.manifest)
    return naming.metric_name(study.manifest, *metrics)


def difference_label(study: Study, metric: str) -> str:
    """A difference in the metric, its unit, and the better direction."""
    text = f"difference in {axis_label(study, metric)}"
    way = "lower is better" if evidence.lower_is_better(study.manifest, metric) else "higher is better"
    return f"{text[:-1]}, {way})" if text.endswith(")") else f"{text} ({way})"


def result(row: Any, places: int) -> str:
    """The difference, interval and verdict of an effect or a claim, or why there is none."""
    if row.verdict == "withheld" or pandas.isna(row.mean):
        return f"{row.verdict}: {row.note}"
    if getattr(row, "relation", "") == "multiplier":
        span = evidence.times(row, "mean")
    else:
        span = formatting.span(row.mean, row.low, row.high, places)
    return span if row.verdict == formatting.ESTIMATE_ONLY else f"{span}  {row.verdict}"


def with_losses(row: Any) -> str:
    """A cell's name with the counts of its diverged, failed and missing runs."""
    losses = "; ".join(formatting.lost(row))
    return f"{row.name} ({losses})" if losses else row.name


def seeds(counts: pandas.Series) -> str:
    """The number of seeds behind numbers: "8 seeds", "5 to 8 seeds"."""
    most = formatting.counted(int(counts.max()), "seed")
    return f"{int(counts.min())} to {most}" if counts.min() < counts.max() else most


def band_text(counts: pandas.Series, is_solved: bool = False) -> str:
    """The meaning of a point and its band, from the numbers of seeds behind them."""
    counts = counts[counts > 0]
    if counts.empty:
        return "no finished run"
    if is_solved:
        return f"share of {seeds(counts)}, band: Wilson 95 %, not corrected"
    return f"mean over {seeds(counts)}, band ± 1 SD over seeds" if counts.max() > 1 else "one seed, no band"


def simultaneous(effects: pandas.DataFrame) -> str:
    """The kind of intervals of effects, of how many comparisons, with n and the pairing."""
    known = effects[effects["low"].notna()]
    if known.empty:
        return "no intervals: too few runs ended with a number"
    kind = "95 % intervals, not corrected"
    if known["family"].any():
        family = formatting.counted(int(effects["family"].sum()), "main comparison")
        kind = f"simultaneous 95 % intervals ({evidence.interval_kind(known['metric'])}, {family})"
    pairing = "paired" if known["paired"].all() else "unpaired where batches differ (verdicts from 5 seeds on)"
    return f"{kind}, {seeds(known['n'])}, {pairing}"


def closing(case: Case) -> list[str]:
    """What is said below every figure with verdicts: which comparisons share an error rate, and looks at results."""
    manifest = case.study.manifest
    return [evidence.families(manifest, int(case.effects["family"].sum())), evidence.unadjusted(manifest)]


def lines_of(case: Case) -> pandas.DataFrame:
    """Of each cell, in the order of the plan, its panel (`facet`, the stratum) and the name of its line (`label`): what
    is compared within a stratum; if there is only one, the cell's name with the counts of lost runs."""
    manifest = case.study.manifest
    several = case.cells["stratum"].nunique() > 1
    rows = {row.cell: row for row in named_rows(case.cells)}
    lines = []
    for cell in manifest.cells:
        compared = [naming.assigned(manifest, name, cell.levels[name]) for name in manifest.reference]
        label = " + ".join(compared) if several else with_losses(rows[cell.id])
        lines.append((cell.id, label, rows[cell.id].stratum))
    result = pandas.DataFrame(lines, columns=["cell", "label", "facet"])
    if several:
        result.attrs = {"lines": list(manifest.reference)}
    return result
