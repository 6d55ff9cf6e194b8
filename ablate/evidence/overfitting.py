"""Which runs overfit: said beside every result, and no reason to lose one."""

from __future__ import annotations

import pandas

from ablate.formatting import counted, few
from ablate.results.study import Study

NAMED = 4  # cells that are spelled out


def overfit(study: Study) -> pandas.Series:
    """By run, how many times its lowest validation loss it ended with, while its training loss fell; NaN for others."""
    runs = study.runs
    if "overfits" not in runs:
        return pandas.Series(float("nan"), runs.index)
    return pandas.to_numeric(runs["overfits"], errors="coerce").where(runs["status"] == "done")


def overfitting(study: Study) -> str:
    """The runs that overfit, in one sentence; "" where none does."""
    times = overfit(study).dropna()
    if times.empty:
        return ""
    counts = study.runs.loc[times.index, "label"].value_counts(sort=False)
    which = few((f"{label} ({count})" for label, count in counts.items()), NAMED)
    return (
        f"overfits: {counted(len(times), 'run')}: {which}: val/loss ends up to {times.max():.2f} times its lowest "
        "while train/loss fell; a note, the numbers stand"
    )
