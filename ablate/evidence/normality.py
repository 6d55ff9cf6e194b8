"""What Student's t takes for granted, roughly normal differences over seeds: when it is stated, when checked.

Lognormal noise (σ = 1) in one of two variants that are equal on average: without the check one contrast is called
different in 16 % of studies at 12 seeds and in 13 % at 20; with it in 9 and 3 %; one of fifteen in 61 and 55 %, with it
in 46 and 21 % (docs/statistics.md).  So after an alarm the other verdicts of its family name what they
assume, as all do below 12 seeds, where no check sees enough and no interval of useful width holds.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas

from ablate.formatting import p_words, ranks

CHECKED = 12  # seeds from which on differences are checked
LEVEL = 0.05  # of the check, for each contrast by itself: an alarm costs the verdict of its own row only
ASSUMED = "if differences are roughly normal"
FOOTNOTE = f"verdicts from fewer than {CHECKED} seeds assume that differences over seeds are roughly normal"


def normality(groups: Sequence[np.ndarray]) -> float:
    """p of "the values of every group are normal": the least of Shapiro & Wilk's (1965), times the number of groups.

    NaN where a group has fewer than twelve values, or no spread.
    """
    if any(len(group) < CHECKED or not np.ptp(group) for group in groups):
        return math.nan
    from scipy import stats

    scaled = [(group - np.median(group)) / np.ptp(group) for group in groups]
    return min(1.0, len(groups) * min(float(stats.shapiro(group).pvalue) for group in scaled))


def alarmed(p_normal: float) -> bool:
    """Whether the check withholds a verdict; NaN, where there was none, does not."""
    return p_normal < LEVEL


def alarm_words(row: Any) -> str:
    """Why a row has no verdict, and what holds whatever the shape: in how many seeds its level is lower."""
    what = "differences over seeds" if row.paired else "scores over seeds"
    return f"{what} are not normal ({p_words(row.p_normal, 'Shapiro–Wilk')}); {ranks(row)}"


def doubted(p_normal: Sequence[float]) -> bool:
    """Whether any of the contrasts that are judged together is not normal: Bonferroni, at the check's level."""
    known = [p for p in p_normal if not math.isnan(p)]
    return alarmed(len(known) * min(known, default=math.nan))


def assumed(n: int, doubt: bool = False) -> str:
    """What a verdict from n seeds has to say of normality; nothing where it was checked and nothing raised a doubt."""
    return ASSUMED if n < CHECKED or doubt else ""


def own_assumption(row: Any) -> str:
    """What a verdict takes for granted beyond `FOOTNOTE`, which holds for all of so few seeds and is stated once."""
    text = str(getattr(row, "assumes", ""))
    return "" if text == ASSUMED and row.n < CHECKED else text


def footnoted(table: pandas.DataFrame) -> bool:
    """Whether verdicts of a table take for granted what `FOOTNOTE` says."""
    return bool((table["assumes"].eq(ASSUMED) & table["n"].lt(CHECKED)).any())


def assuming(row: Any) -> str:
    """What a verdict takes for granted by itself, to write after it: ", if …", or nothing."""
    text = own_assumption(row)
    return f", {text}" if text else ""
