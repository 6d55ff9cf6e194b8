"""What an interval allows to say: a verdict with its reason, the margin, and why there is none."""

import math
from dataclasses import dataclass

from ablate import formatting
from ablate.config.key_checks import fraction_of
from ablate.evidence.collapse import Collapse
from ablate.evidence.estimates import Comparison
from ablate.evidence.families import ALPHA
from ablate.formatting import CROSSED, counted
from ablate.runs.naming import no_evidence
from ablate.runs.records import MarginText
from ablate.runs.study import Study

MIN_PAIRS = 3  # seeds that a verdict on paired differences needs; with two, t has one degree of freedom
MIN_SEEDS = 5  # seeds that equivalent, negligible and verdicts on unpaired differences need


@dataclass(frozen=True)
class Verdict:
    """A verdict, the note beside it, and whether more seeds may change it."""

    word: str
    note: str = ""
    waits: bool = False


def without_interval(comparison: Comparison) -> bool:
    """Whether no interval of a difference of means is right: only ranks and counts are shown."""
    return comparison.different_tasks or comparison.clumped or comparison.diverged_unequally


def no_verdict(comparison: Comparison) -> Verdict | None:
    """withheld or undecided, with the reason, if a comparison has no valid interval; else None."""
    if comparison.different_tasks:
        return Verdict("withheld", "its configurations are scored on different tasks")
    if comparison.clumped:
        metric = comparison.metric
        note = f"its task is solved or not, so that no t interval of {metric} is right; see test/solved"
        return Verdict("withheld", note)
    if comparison.diverged_unequally:
        note = f"{counted(comparison.diverged, 'run')} diverged against {comparison.diverged_reference}"
        if comparison.kind in CROSSED:
            note += ", unequally often at the values that it crosses"
        return Verdict("withheld", note)
    too_few = too_few_seeds(comparison.n, comparison.paired)
    if too_few:
        return Verdict("undecided", too_few, waits=True)
    if not comparison.paired and comparison.n < MIN_SEEDS:
        return Verdict("undecided", f"unpaired, n < {MIN_SEEDS}", waits=True)
    if comparison.estimate.solved is None and comparison.estimate.sd == 0:
        note = "the same difference in every seed: no interval without a spread"
        if comparison.estimate.mean == 0:
            note = "equal in every seed"
        return Verdict("undecided", note, waits=True)
    return None


def too_few_seeds(n: int, paired: bool) -> str:
    """Why n seeds are too few for any conclusion; "" if they are enough."""
    if n == 0:
        return "no seed has every run it needs"
    if n == 1:
        return "one seed can conclude nothing"
    if paired and n < MIN_PAIRS:
        return "two seeds give no verdict, three are needed"
    return ""


def judge(
    comparison: Comparison, low: float, high: float, p: float, collapse: Collapse, small: bool, registered: bool
) -> Verdict:
    """The verdict that an interval allows, and a note where more is needed.

    `p` is corrected for the family; `small`: the interval lies inside the study's margin, which is `registered` or was
    written after results.
    """
    reason = no_verdict(comparison)
    if reason is not None:
        return reason
    notes = events(comparison, collapse)
    contains_zero = low <= 0 <= high
    # The median of skewed differences can be small where their mean is not.
    is_small = small and not collapse.collapsed and comparison.estimate.skewed is None
    if is_small and comparison.n >= MIN_SEEDS:
        if not registered:
            notes.append("by a margin written after results")
        return Verdict("equivalent" if contains_zero else "negligible", "; ".join(notes))
    if is_small:
        notes.append(f"inside the margin, but n < {MIN_SEEDS}")
    note = "; ".join(notes)
    # An exact test of shares of solved runs can decide where its interval, which is conservative, contains zero.
    decided = p <= ALPHA if comparison.estimate.solved is not None else not contains_zero
    if not decided:
        return Verdict("undecided", note, waits=True)
    is_lower = comparison.estimate.mean < 0 if contains_zero else high < 0
    return Verdict("better" if is_lower == comparison.lower_is_better else "worse", note)


def events(comparison: Comparison, collapse: Collapse) -> list[str]:
    """What a reader should know beside a verdict: diverged runs, collapsed seeds, the sign test."""
    notes = []
    if comparison.diverged or comparison.diverged_reference:
        equally = comparison.diverged == comparison.diverged_reference
        other = "on each side" if equally else f"against {comparison.diverged_reference}"
        notes.append(f"{counted(comparison.diverged, 'run')} diverged {other}")
    elif collapse.collapsed:
        notes.append(f"{collapse.collapsed} of {collapse.seeds} seeds collapsed")
    if comparison.estimate.skewed is not None:
        way = "lower" if comparison.lower > comparison.higher else "higher"
        count = max(comparison.lower, comparison.higher)
        seeds = counted(comparison.n, "seed")
        notes.append(f"skewed differences: sign test, interval of the median; {way} in {count} of {seeds}")
    return notes


# Margins


@dataclass(frozen=True)
class Margin:
    """The largest difference that does not matter, in one of two units; the other one is NaN."""

    size: float = math.nan  # in the metric's unit
    steps: float = math.nan  # as a share of the training steps
    registered: bool = True  # whether it was written before any comparison existed


def margin_of(entry: MarginText | None) -> Margin:
    """The margin of a study, or an earlier one; both sizes NaN without one."""
    if entry is None or entry.value is None:
        return Margin()
    share = fraction_of(entry.value)
    if share:
        return Margin(steps=share, registered=entry.registered)
    return Margin(size=float(entry.value), registered=entry.registered)


def margin_line(study: Study) -> str:
    """The margin in a sentence, with its earlier values; "" if the study never had one or is no evidence."""
    entry = study.manifest.margin
    if not entry or no_evidence(study.manifest):
        return ""
    parts = ["none any more"]
    if entry.value is not None:
        parts = [f"{margin_words(entry)}, {_when(entry)}"]
    if math.isfinite(margin_of(entry).steps) and "exchange" not in study.beside:
        parts.append("nothing can be judged by it without step_equivalents=true")
    earlier = [f"{margin_words(version)} ({_when(version)})" for version in entry.earlier if version.value]
    if earlier:
        parts.append(f"earlier: {', '.join(earlier)}")
    return f"margin: {'; '.join(parts)}"


def margin_words(entry: MarginText | None) -> str:
    """The margin of a study, or an earlier one: "±0.01", "±2 % of the training steps"; "" without one."""
    margin = margin_of(entry)
    return formatting.bounds(margin.size, margin.steps)


def _when(entry: MarginText) -> str:
    if not entry.written:
        return "post hoc: nothing tells that it was written before the results"
    day = entry.written[:10]
    return f"registered {day}, before any result" if entry.registered else f"post hoc: written {day}, after results"
