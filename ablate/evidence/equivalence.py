"""A study's margin: whether an interval lies inside it, its text, and when it was written."""

import math
from typing import Any, NamedTuple

from ablate import formatting
from ablate.config.key_checks import fraction_of
from ablate.results import naming
from ablate.results.records import MarginText
from ablate.results.study import Study

PAIRS = 3  # seeds that a verdict on paired differences needs; with two, t has one degree of freedom
SEEDS = 5  # seeds that equivalent, negligible and verdicts on unpaired differences need


class Margin(NamedTuple):
    """The largest difference that does not matter, in one of two units; the other one is NaN."""

    size: float = math.nan  # in the metric's unit
    steps: float = math.nan  # as a share of the training steps
    registered: bool = True  # whether it was written before any comparison existed


def margin_of(entry: MarginText | None) -> Margin:
    """The margin of a study, or an earlier one; both NaN without one."""
    if entry is None or entry.value is None:
        return Margin()
    share = fraction_of(entry.value)
    return Margin(math.nan if share else float(entry.value), share or math.nan, entry.registered)


def within(low: float, high: float, margin: float) -> bool:
    """Whether worths from `low` to `high` are within a margin, 0.02 for 2 % of the steps, in both directions.  The
    margin is symmetric in the logarithm: 1 / 1.02 − 1 < low and high < 1.02 − 1."""
    return bool(1 / (1 + margin) - 1 < low and high < margin)


def inside(row: Any) -> bool:
    """Whether a row's interval lies inside its margin; for a share of the steps, the interval of its worth."""
    if math.isfinite(row.margin):
        return bool(-row.margin < row.low and row.high < row.margin)
    return bool(within(float(row.worth_low), float(row.worth_high), row.margin_steps))


def margin_line(study: Study) -> str:
    """The margin in a sentence, with its earlier values; "" if the study never had one or is no evidence."""
    manifest = study.manifest
    entry = manifest.margin
    if not entry or naming.no_evidence(manifest):
        return ""
    parts = [f"{margin_words(entry)}, {_when(entry)}" if entry.value is not None else "none any more"]
    if math.isfinite(margin_of(entry).steps) and "exchange" not in study.beside:
        parts.append("without exchange runs nothing can be judged by it; step_equivalents=true adds them")
    before = [f"{margin_words(old)} ({_when(old)})" for old in entry.earlier if old.value]
    parts += [f"earlier: {', '.join(before)}"] * bool(before)
    return f"margin: {'; '.join(parts)}"


def margin_words(entry: MarginText | None) -> str:
    """The margin of a study, or an earlier one: "±0.01", "±2 % of the training steps"; "" without one."""
    found = margin_of(entry)
    return formatting.bounds(found.size, found.steps)


def _when(entry: MarginText) -> str:
    if not entry.written:
        return "post hoc: nothing tells that it was written before the results"
    day = entry.written[:10]
    return f"registered {day}, before any result" if entry.registered else f"post hoc: written {day}, after results"
