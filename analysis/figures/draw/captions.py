"""Axis labels, and the parts of captions that several kinds share."""

from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.records import Cell
from ablate.runs.study import Study
from analysis.case import Case
from analysis.figures.draw import style
from analysis.prose import macros, prose


def caption(kind: str, case: Case, table: pandas.DataFrame, **more: Any) -> list[str]:
    """The lines of a figure's caption, from `templates/captions`, where `shared.txt` has what several kinds say; `more`
    is what the template needs besides these."""
    words: dict[str, Any] = {**macros("captions/shared.txt"), "DOTS": style.DOTS}
    words |= {"m": case.study.manifest, "effects": case.effects, "cells": case.cells, "claims": case.claims}
    families = evidence.families(case.study.manifest, int(case.effects["family"].sum()))
    return prose(f"captions/{kind}.txt", table=table, families=families, **words, **more)


def axis_label(study: Study, metric: str | None = None) -> str:
    """The metric with its unit; by default all metrics that cells are compared by."""
    metrics = [metric] if metric else evidence.measures(study.manifest)
    return naming.metric_name(study.manifest, *metrics)


def difference_label(study: Study, metric: str) -> str:
    """A difference in the metric, its unit, and the better direction."""
    text = f"difference in {axis_label(study, metric)}"
    way = "lower is better" if evidence.lower_is_better(study.manifest, metric) else "higher is better"
    return f"{text[:-1]}, {way})" if text.endswith(")") else f"{text} ({way})"


def one_metric(study: Study) -> list[tuple[str, list[Cell]]]:
    """The strata whose cells are all scored by the study's first metric, so that they can share an axis."""
    own, metric = evidence.endpoints(study.manifest), evidence.endpoint(study.manifest)
    known = evidence.strata(study.manifest)
    return [(name, cells) for name, cells in known if all(own[cell.id] == metric for cell in cells)]


def result(row: Any, places: int) -> str:
    """An effect's interval and verdict as the text of a row."""
    if row.verdict == "withheld" or row.n == 0:
        return f"{row.verdict}: {row.note}"
    if getattr(row, "relation", "") == "multiplier":
        return f"{evidence.times(row, 'mean')}  {row.verdict}"
    return f"{formatting.span(row.mean, row.low, row.high, places)}  {row.verdict}"


def with_losses(row: Any, first: str = "") -> str:
    """A cell's name with the counts of its diverged, failed and missing runs."""
    lost = list(filter(None, [first, *formatting.lost(row)]))
    return row.name + f" ({'; '.join(lost)})" * bool(lost)
