"""Sensitivity: the final metric against the learning rate, or another number that was swept or tuned."""

import math

import pandas

from ablate import evidence, formatting
from ablate.runs.records import Tuning
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.lines import axes_of, draw_lines, lines, swept
from analysis.figures.kind import Kind
from analysis.figures.kinds.depth import DEPTH
from analysis.figures.kinds.width import FIRST, WIDTH

RATE = "optim.lr"
FEWEST = 3  # values from which on the best one, or a best one at the edge, is reported


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell, or per cell and tuned value: see `lines`; best marks a line's best mean, or what tuning chose.

    For learning rates the label has the sensitivity of Wortsman 2023: mean over rates η of min(ℓ(η), ℓ₀) − ℓ*, with ℓ₀
    the loss at initialisation and ℓ* the best mean; only here do diverged runs count, with ℓ₀.
    """
    manifest = case.study.manifest
    if manifest.tuning:
        return _tuned(case, manifest.tuning)
    numbers = swept(manifest)
    others = (DEPTH, WIDTH, FIRST) if WIDTH in numbers else (DEPTH,)  # shown in other figures
    x = next(iter(sorted((name for name in numbers if name not in others), key=lambda name: name != RATE)), "")
    found = lines(case, x)
    return None if found is None else _with_best_values(case, found, _starts(case) if x == RATE else {})


def _tuned(case: Case, tuning: Tuning) -> pandas.DataFrame | None:
    """The tuned values: means over tuning seeds of the validation metric; none for a value that diverged."""
    manifest, rows = case.study.manifest, []
    values, seeds = [value for value in tuning.values if isinstance(value, int | float)], tuning.seeds
    if not style.numeric(tuning.values):
        return None
    facets = {cell.id: manifest.tasks[cell.task].title for cell in manifest.cells}
    metrics = evidence.validated(manifest)
    for row in named_rows(case.cells):
        for value, score in zip(values, tuning.cells[row.cell].scores, strict=True):
            lost = score is None
            about = {"cell": row.cell, "label": row.label, "facet": facets[row.cell] * (len(set(facets.values())) > 1)}
            about |= {"metric": metrics[row.cell], "x": float(value), "mean": math.nan if lost else score}
            about["chosen"] = value == tuning.cells[row.cell].value
            rows.append(about | {"n": 0 if lost else seeds, "runs": seeds, "diverged": int(lost)})
    found = pandas.DataFrame(rows).assign(low=lambda rows: rows["mean"], high=lambda rows: rows["mean"])
    found.attrs = {"x": tuning.key, "lines": list(manifest.factors), **axes_of(manifest, found)}
    return _with_best_values(case, found, {})


def _with_best_values(case: Case, found: pandas.DataFrame, starts: dict[str, float]) -> pandas.DataFrame:
    """The table with the best value of each line marked, and notes on it in the line's label."""
    attrs, several = found.attrs, found["facet"].nunique() > 1
    found = found.assign(best=False)
    notes: dict[str, list[str]] = {}
    for (label, facet), line in found.groupby(["label", "facet"], sort=False):
        lower, where = attrs["lower"][line["metric"].iloc[0]], f" at {facet}" * several
        whole = ((1 if lower else -1) * line["mean"]).where(line["diverged"] == 0).dropna()
        if whole.empty:
            continue
        best = whole.idxmin()
        chosen = line.index[line["chosen"]] if "chosen" in line else []
        found.loc[chosen if len(chosen) else best, "best"] = True
        if len(line) < FEWEST:
            continue
        if line.loc[whole.index[whole == whole.min()], "x"].isin([line["x"].min(), line["x"].max()]).all():
            notes.setdefault(str(label), []).append(f"best at the edge{where}")
        score = _sensitivity(line, starts) if lower else math.nan
        if math.isfinite(score):
            notes.setdefault(str(label), []).append(f"sensitivity {formatting.number(score, 3)}{where}")
    labelled = {label: f"{label} ({', '.join(dict.fromkeys(each))})" for label, each in notes.items()}
    found["label"] = found["label"].map(lambda label: labelled.get(label, label))
    every = " ".join(text for each in notes.values() for text in each)
    found.attrs = attrs | {"caption": captions.caption("sensitivity", case, found, notes=every)}
    return found


def _sensitivity(line: pandas.DataFrame, starts: dict[str, float]) -> float:
    """Mean over the values of min(ℓ, ℓ₀) − ℓ*, each ℓ a mean over ended runs, diverged ones at ℓ₀; NaN without ℓ₀."""
    losses = []
    for row in named_rows(line):
        start = starts.get(row.cell, math.nan)
        ended = row.n + row.diverged
        known = row.n * min(row.mean, start) if row.n else 0.0
        losses.append((known + row.diverged * start) / ended if ended and math.isfinite(start) else math.nan)
    return math.fsum(losses) / len(losses) - line["mean"].where(line["diverged"] == 0).min()


def _starts(case: Case) -> dict[str, float]:
    """The loss at initialisation of each cell: the mean over its runs of the first validation, before any step."""
    curves = case.study.curves
    if "step" not in curves:
        return {}
    first = curves[curves["step"] == 0]
    losses = evidence.values_of(first, evidence.validated(case.study.manifest))
    return {str(cell): float(mean) for cell, mean in losses.groupby(first["cell"]).mean().items()}


KIND = Kind("the final metric against a number that was swept or tuned", table, draw_lines)
