"""The assumption of Student's t, roughly normal differences over seeds: when it is stated and when it is tested.

With lognormal noise (σ = 1) in one of two variants of equal mean, a single contrast is called different in 16 % of
studies at 12 seeds and in 13 % at 20; with the test in 9 and 3 %.  At least one of fifteen contrasts is in 61 and 55 %,
with the test in 46 and 21 % (docs/statistics.md).  So after a rejection the other verdicts of the family state the
assumption, as all do below 12 seeds, where no test has enough power and no interval of useful width is robust.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas

CHECKED = 12  # seeds from which on normality is tested
LEVEL = 0.05  # of the test, uncorrected: a rejection only withholds the verdict of its own row
ASSUMED = "if differences are roughly normal"
FOOTNOTE = f"verdicts from fewer than {CHECKED} seeds assume that differences over seeds are roughly normal"


def normality(groups: Sequence[np.ndarray]) -> float:
    """p of "the values of every group are normal": the smallest of Shapiro & Wilk's (1965) times the number of groups.
    NaN where a group has fewer than twelve values, or no spread."""
    if any(len(group) < CHECKED or not np.ptp(group) for group in groups):
        return math.nan
    from scipy import stats

    scaled = [(group - np.median(group)) / np.ptp(group) for group in groups]
    return min(1.0, len(groups) * min(float(stats.shapiro(group).pvalue) for group in scaled))


def rejects_normality(p_normal: float) -> bool:
    """Whether the test withholds a verdict; NaN, no test, does not."""
    return p_normal < LEVEL


def rejects_any(p_normal: Sequence[float]) -> bool:
    """Whether normality of some contrast of a family is rejected, with Bonferroni's correction."""
    known = [p for p in p_normal if not math.isnan(p)]
    return rejects_normality(len(known) * min(known, default=math.nan))


def assumed(n: int, doubt: bool = False) -> str:
    """The assumption to state with a verdict from n seeds; "" if normality was tested and not in doubt."""
    return ASSUMED if n < CHECKED or doubt else ""


def footnoted(table: pandas.DataFrame) -> bool:
    """Whether verdicts of a table need `FOOTNOTE`."""
    return bool((table["assumes"].eq(ASSUMED) & table["n"].lt(CHECKED)).any())


def assuming(row: Any, lead: str = ", ") -> str:
    """The assumption of a verdict to append to it, ", if …", unless `FOOTNOTE` states it for all from few seeds."""
    text = str(getattr(row, "assumes", ""))
    return "" if not text or (text == ASSUMED and row.n < CHECKED) else lead + text
