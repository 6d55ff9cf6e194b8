"""Effects of a design with simultaneous intervals and the verdicts that follow from them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.rows import MATCHED, estimate_row, scored
from ablate.evidence.runs import unadjusted
from ablate.evidence.sequential import nominal, overall
from ablate.evidence.statistics import (
    benjamini_hochberg,
    holm,
    interval,
    p_value,
    smallest,
    smallest_difference,
)
from ablate.results import Study
from ablate.words import counted

ALPHA = 0.05
UNPAIRED_SEEDS = 5  # below it, the spread of an unpaired comparison is too badly known for a verdict

CONTRAST = ["kind", "factor", "level", "reference", "stratum", "label"]
ESTIMATE = ["n", "mean", "sd", "low", "high", "p", "p_holm", "p_bh", "verdict", "note"]
SIZES = ["d_z", "correlation", "superiority", "smallest", "margin"]
GROUNDS = [
    *("paired", "family", "unadjusted", "lower", "higher", "tied", "diverged", "diverged_reference"),
    *("failed", "missing", "alpha", "metric", "lower_is_better", *SIZES),
]


class Noise(NamedTuple):
    """What n seeds can find: pooled SD of a paired effect over seeds, and the smallest effect found with 80 % power."""

    kind: str
    sd: float
    n: int
    smallest: float


def effects(study: Study, metric: str | None = None) -> pandas.DataFrame:
    """A row per contrast of the design, in the metric's unit, level minus reference.

    Family rows (main effects and two-way interactions) have simultaneous 95 % intervals: level 1 − .05/m, Bonferroni-t.
    Other rows are exploratory: p after Benjamini & Hochberg, and intervals of 5 % false coverage rate, level
    1 − .05·R/m with R rejections (Benjamini & Yekutieli 2005), which agree with that p.  The interval decides
    the verdict.

    With `seeds=auto` intervals and p allow for every look (see evidence.sequential): p is the least level that any look
    would have to be planned for, and `alpha`, 1 − the level of the one interval by itself, is so much smaller.
    `metric` is that of each row's own task unless one is given for all; `smallest` is found with 80 % power at `alpha`.
    """
    found, all_scores = contrasts(study.manifest), scored(study, metric)
    rows = [named(contrast) | estimate_row(all_scores, contrast) for contrast in found]
    table = pandas.DataFrame(rows, columns=["estimate", "different", "looks", *CONTRAST, *ESTIMATE, *GROUNDS, MATCHED])
    table["family"] = np.array([contrast.kind != "cell" for contrast in found], dtype=bool)
    table["unadjusted"] = unadjusted(study.manifest) is not None
    table["margin"] = np.full(len(table), math.nan)
    _correct(table)
    judged = [_verdict(row) for row in table.itertuples()]
    table["verdict"] = [word for word, _ in judged]
    table["note"] = ["; ".join(filter(None, (n, c.note))) for (_, n), c in zip(judged, found, strict=True)]
    left = [MATCHED] * (study.manifest.get("match", "none") != "none")
    return table[[*CONTRAST, *ESTIMATE, *GROUNDS, *left]]


def named(contrast: Contrast) -> dict[str, str]:
    """What a contrast is called, in the columns of effects."""
    return {name: getattr(contrast, name) for name in CONTRAST}


def _correct(table: pandas.DataFrame) -> None:
    """Fill in p, its corrections and the intervals, for the family and for the exploratory rows."""
    family = table["family"].to_numpy()
    rows = list(table.itertuples())
    p = np.array([overall(row.looks, p_value(row.estimate)) if _tested(row) else math.nan for row in rows])
    table["p"], table["p_holm"], table["p_bh"] = p, np.nan, np.nan
    table.loc[family, "p_holm"] = holm(p[family], ALPHA)
    table.loc[~family, "p_bh"] = benjamini_hochberg(p[~family])
    found = max(1, int((table["p_bh"] <= ALPHA).sum()))
    together = np.where(family, ALPHA / max(1, family.sum()), ALPHA * found / max(1, (~family).sum()))
    table["alpha"] = [nominal(row.looks, level) for row, level in zip(rows, together, strict=True)]
    spans = [
        (math.nan, math.nan) if _withheld(row) else interval(row.estimate, level)
        for row, level in zip(rows, table["alpha"], strict=True)
    ]
    table["low"], table["high"] = [low for low, _ in spans], [high for _, high in spans]
    table["smallest"] = [
        math.nan if _withheld(row) else smallest(row.estimate, level)
        for row, level in zip(rows, table["alpha"], strict=True)
    ]


def _withheld(row: Any) -> bool:
    return bool(row.different or row.diverged != row.diverged_reference)


def _tested(row: Any) -> bool:
    return not _withheld(row) and (row.paired or row.n >= UNPAIRED_SEEDS)


def _verdict(row: Any) -> tuple[str, str]:
    """better, worse, undecided or withheld, and the reason where the interval does not say it."""
    if row.different:
        return "withheld", "the sides are scored on different tasks"
    if row.diverged != row.diverged_reference:
        return "withheld", f"{counted(row.diverged, 'run')} diverged against {row.diverged_reference}"
    if row.n < 2:
        return "undecided", "one seed can conclude nothing" if row.n else "no seed has every run it needs"
    if not row.paired and row.n < UNPAIRED_SEEDS:
        return "undecided", f"unpaired, n < {UNPAIRED_SEEDS}"
    if row.sd == 0 and row.mean == 0:
        return "undecided", "equal in every seed"
    if row.sd == 0:
        return "undecided", "no spread between seeds, which no seeds of their own have"
    note = f"{counted(row.diverged, 'run')} diverged on each side" if row.diverged else ""
    if row.low <= 0 <= row.high:
        return "undecided", note
    return ("better" if (row.high < 0) == row.lower_is_better else "worse"), note


def headline(table: pandas.DataFrame) -> pandas.DataFrame:
    """The rows to show first: the family, and the exploratory ones only where no family row has an interval.

    A cell that diverges is part of every main effect, so that its study may have no other interval to show.
    """
    exploratory = table["n"].gt(1) & table.loc[table["family"], "low"].isna().all()
    return table[table["family"] | exploratory]


def noise(table: pandas.DataFrame) -> list[Noise]:
    """For main effects and interactions: pooled SD, √(Σ (nᵢ−1)·sdᵢ² / Σ (nᵢ−1)), and what the fewest seeds find.

    Pooled over the paired rows of the family that have an interval; the level is theirs: .05/m, less with seeds=auto.
    """
    usable = table[table["family"] & table["paired"].astype(bool) & np.isfinite(table["low"].astype(float))]
    found = []
    for kind, rows in usable.groupby("kind", sort=False):
        weights = rows["n"].to_numpy(float) - 1
        sd = math.sqrt(float(np.sum(weights * rows["sd"].to_numpy(float) ** 2) / weights.sum()))
        n = int(rows["n"].min())
        found.append(Noise(str(kind), sd, n, smallest_difference(sd, n, float(rows["alpha"].min()))))
    return found
