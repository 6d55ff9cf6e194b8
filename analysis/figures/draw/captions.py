"""Axis labels, and the parts of captions that several kinds share."""

from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.results import naming
from ablate.results.records import Cell
from ablate.results.study import Study
from analysis.case import Case
from analysis.figures.draw import style
from analysis.prose import prose

FILLED = "filled: decided, blue: better, orange: worse"
JUDGED = "filled: decided, blue: supported, orange: contradicted"
EXPLORATORY = "exploratory 95 % intervals (false coverage rate 5 %)"  # for cells against the reference


def caption(kind: str, case: Case, table: pandas.DataFrame, **more: Any) -> list[str]:
    """The lines of a figure's caption, from `templates/captions`; `more` is what the template needs besides these."""
    shared = (seeds, simultaneous, intervals, assuming, band_text)
    words = {part.__name__: part for part in shared} | {"FILLED": FILLED, "JUDGED": JUDGED, "DOTS": style.DOTS}
    words |= {"m": case.study.manifest, "effects": case.effects, "cells": case.cells, "claims": case.claims}
    families = evidence.families(case.study.manifest, int(case.effects["family"].sum()))
    return prose(f"captions/{kind}.txt", table=table, families=families, **words, **more)


def axis_label(study: Study, metric: str | None = None) -> str:
    """The metric with its unit; by default all metrics that cells are compared by."""
    metrics = [metric] if metric else evidence.measures(study.manifest)
    return naming.metric_name(study.manifest, *metrics)


def difference_label(study: Study, metric: str | None = None) -> str:
    """A difference in the metric, its unit, and the better direction if all metrics have the same."""
    metrics = [metric] if metric else evidence.measures(study.manifest)
    ways = {"lower" if evidence.lower_is_better(study.manifest, name) else "higher" for name in metrics}
    text, way = f"difference in {axis_label(study, metric)}", f"{min(ways)} is better"
    return text if len(ways) > 1 else f"{text[:-1]}, {way})" if text.endswith(")") else f"{text} ({way})"


def one_metric(study: Study) -> list[tuple[str, list[Cell]]]:
    """The strata whose cells are all scored by the study's first metric, so that they can share an axis."""
    own, metric = evidence.endpoints(study.manifest), evidence.endpoint(study.manifest)
    known = evidence.strata(study.manifest)
    return [(name, cells) for name, cells in known if all(own[cell.id] == metric for cell in cells)]


def intervals(known: pandas.DataFrame, family: int) -> str:
    """The kind of intervals of these effects, for a family of this size."""
    kind = evidence.interval_kind(known["metric"])
    return f"simultaneous 95 % intervals ({kind}, family of {family})" if family else EXPLORATORY


def simultaneous(shown: pandas.DataFrame) -> str:
    """The kind of intervals of these effects, with n and the pairing."""
    known = shown[shown["low"].notna()]
    if known.empty:
        one = shown["n"].eq(1).any()
        return "no interval: one seed can conclude nothing" if one else "no interval: too few runs ended with a number"
    pairing = "paired" if known["paired"].all() else "unpaired where batches differ"
    return f"{intervals(known, int(shown['family'].sum()))}, {seeds(known['n'])}, {pairing}{assuming(known)}"


def assuming(known: pandas.DataFrame) -> str:
    """The assumptions of the verdicts of these effects or claims, and how many seeds may collapse."""
    texts = [f"verdicts hold {text}" for text in known["assumes"].unique() if text]
    open_ = known.loc[known["verdict"].str.contains(" among "), "note"]
    return "".join(f"; {text}" for text in [*texts, *dict.fromkeys(note.split("; ")[0] for note in open_)])


def seeds(counts: pandas.Series) -> str:
    """The number of seeds behind numbers: "8 seeds", "5 to 8 seeds"."""
    least, most = int(counts.min()), int(counts.max())
    return formatting.counted(most, "seed") if least == most else f"{least} to {most} seeds"


def band_text(counts: pandas.Series) -> str:
    """The meaning of a point and its band, from the numbers of seeds behind them."""
    known = counts[counts > 0]
    if known.empty:
        return "no finished run"
    return f"mean over {seeds(known)}, band ± 1 SD over seeds" if known.max() > 1 else "one seed, no band"


def result(row: Any, places: int) -> str:
    """An effect's interval and verdict as the text of a row."""
    if row.verdict == "withheld" or row.n == 0:
        return f"{row.verdict}: {row.note}"
    return f"{formatting.span(row.mean, row.low, row.high, places)}  {row.verdict}"


def with_losses(row: Any, first: str = "") -> str:
    """A cell's name with the counts of its diverged, failed and missing runs."""
    lost = list(filter(None, [first, *formatting.lost(row)]))
    return row.name + f" ({'; '.join(lost)})" * bool(lost)
