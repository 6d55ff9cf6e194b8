"""Student's t and χ², as `scipy.stats` has them to the last bit, without the half second that loading it takes."""

from __future__ import annotations

from typing import Any

from scipy import special


def t_above(x: Any, df: Any) -> Any:
    """P(t_df > x)."""
    return special.stdtr(df, -x)


def t_limit(p: Any, df: Any) -> Any:
    """The x with P(t_df > x) = p, for p > 0."""
    return -special.stdtrit(df, p)


def chi2_quantile(p: Any, df: Any) -> Any:
    """The x with P(χ²_df < x) = p."""
    return 2 * special.gammaincinv(df / 2, p)
