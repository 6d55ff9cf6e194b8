"""Numbers and verdicts as people read them; the summary, the figures and the tables say them alike."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, TypeGuard

from ablate.formatting.numbers import MINUS as MINUS
from ablate.formatting.numbers import decimals as decimals
from ablate.formatting.numbers import ends as ends
from ablate.formatting.numbers import number as number
from ablate.formatting.numbers import p_text as p_text
from ablate.formatting.numbers import percent as percent
from ablate.formatting.numbers import plain as plain
from ablate.formatting.numbers import plus as plus
from ablate.formatting.numbers import remainder as remainder
from ablate.formatting.numbers import scientific as scientific
from ablate.formatting.numbers import span as span

# What a terminal obeys, what turns the direction of a line, the ends of lines that few programs know, and what has no
# width: a name could pass for another, and of U+FEFF a PDF by matplotlib is an IndexError.
ACTING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
OPEN = ("undecided", "withheld", "none", "descriptive")  # verdicts that say nothing
CROSSED = ("interaction", "trend")  # kinds of effects that are differences of differences
PER = "per "  # how the unit of a trend begins
SPEED = {"train/step_seconds": "min", "train/tokens_per_second": "max"}  # metrics of studies with timing=isolated
LOOKS = "looks "  # what a verdict begins with that is exploratory


def show(level: Any) -> str:
    """A factor's level as it is typed: 0.001, true, null, swiglu."""
    if isinstance(level, bool) or level is None:
        return {True: "true", False: "false", None: "null"}[level]
    return f"{level:.6g}" if isinstance(level, float) else str(level)


def setting(value: Any) -> str:
    """Any value of a setting in short: 1e-3, 100, true, swiglu."""
    return scientific(value) if isinstance(value, float) and value > 0 else show(value)


def size(params: float) -> str:
    """A number of parameters: 812, 4.3 k, 0.12 M, 124 M."""
    if params < 1e4:
        return f"{params / 1e3:.1f} k" if params >= 1000 else str(params)
    millions = params / 1e6
    return f"{millions:.{2 if millions < 10 else 1 if millions < 100 else 0}f} M"


def passes(fraction: float | None) -> str:
    """How much of the training data is seen: 0.3 % of one pass, 8 % of one pass, 1.5 passes; None: it never repeats."""
    if fraction is None:
        return "fresh data"
    if fraction > 1:
        return f"{fraction:.1f} passes"
    return f"{fraction * 100:.{0 if fraction >= 0.01 else 1}f} % of one pass"


def duration(seconds: float) -> str:
    """A wall time: 8.1 s, 48 s, 1 min 08 s, 2 h 03 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def verdict(row: Any) -> str:
    """The verdict of one row of effects in words, with its reason where there is none."""
    word = leaning(row.verdict)
    if word in ("better", "worse"):
        lower = bool(row.lower_is_better) == (word == "better")
        named = row.metric.split("/")[-1]
        sides = {"interaction": "together than the two alone predict", "trend": f"{named} {row.level.split(', ')[-1]}"}
        side = sides.get(row.kind, named)
        way = f"{'lower' if lower else 'higher'} {side}"
        timed = row.metric in SPEED and row.kind not in sides
        words = f"{row.verdict} ({('faster' if word == 'better' else 'slower') if timed else way})"
        words = crossed(row, word) or words
    elif word in ("equivalent", "negligible"):
        words = f"{row.verdict} ({'' if word == 'equivalent' else 'a difference '}within {margin(row)})"
    elif " among " in row.verdict:
        words = conditional(row)
    elif row.verdict in ("none", "descriptive"):
        return "no verdict" if row.verdict == "none" else row.verdict
    elif row.verdict == "undecided" and not row.note:
        open_ = f"not shown within {margin(row)}" if margin(row) else "not shown equal" * (row.kind not in CROSSED)
        words = f"undecided ({open_})" if open_ else "undecided"
    else:
        words = row.verdict
    words += f", {row.given}" * bool(getattr(row, "given", "") and row.verdict != "withheld")
    if row.verdict == "withheld" and row.diverged + row.diverged_reference:
        return f"{words}: {row.note}; diverged ranked worst: {ranks(row)}"
    return f"{words}: {row.note}" if row.note and " among " not in row.verdict else words


def crossed(row: Any, word: str) -> str:
    """A decided interaction of two levels: "interaction: post fares worse with optim.warmup=0"; else nothing."""
    factors, levels = (
        getattr(row, "factor", "").split(" x "),
        row.level.split(", ") if row.kind == "interaction" else [],
    )
    if row.note or len(factors) != 2 or len(levels) != 2:  # a sum of several
        return ""
    fares = "fares" if word == row.verdict else "seems to fare"  # an exploratory one
    return f"interaction: {levels[0]} {fares} {word} with {factors[1]}={levels[1]}"


def conditional(row: Any) -> str:
    """A verdict about the seeds that trained: "equivalent within ±0.01 (8 of 8 trained, failure rate < 32 %)"."""
    return f"{row.verdict.partition(' among ')[0]} within {margin(row)} ({row.note})"


def leaning(verdict: str) -> str:
    """A verdict without the word that marks it as exploratory: better, of *better* and of *looks better*."""
    return verdict.removeprefix(LOOKS)


def over(row: Any) -> str:
    """How many seeds a row rests on: "n = 5", "unpaired, n = 5"."""
    return f"{'' if row.paired else 'unpaired, '}n = {row.n}"


def margin(row: Any) -> str:
    """The margin of a row of effects: "±0.01", "±2 % of the training steps"; nothing without one."""
    return bounds(row.margin, row.margin_steps)


def bounds(size: float, steps: float) -> str:
    """A margin in the metric's unit, or as a share of the training steps: NaN is what it is not given in."""
    if math.isfinite(size):
        return f"±{plain(size)}"
    return f"±{100 * steps:g} % of the training steps" if math.isfinite(steps) else ""


def between(least: float, most: float) -> str:
    """Two positive numbers as a range: "0.0031", "0.012 to 0.031"."""
    known = dict.fromkeys(number(value, decimals([value])) for value in (least, most))
    return " to ".join(known)


def lost(row: Any) -> list[str]:
    """What became of a cell's runs that gave no number: "2 of 3 diverged", "1 of 3 failed", "1 of 3 missing"."""
    counts = [(name, getattr(row, name)) for name in ("diverged", "failed", "missing")]
    return [f"{count} of {row.runs} {name}" for name, count in counts if count]


def ranks(row: Any) -> str:
    """In how many seeds the level came out lower and higher than the reference, as "lower 0, higher 2, tied 1"."""
    return f"lower {row.lower}, higher {row.higher}" + f", tied {row.tied}" * bool(row.tied)


def rough(share: float) -> str:
    """A positive share in per cent: 51 %, under 1 %."""
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def counted(n: int, noun: str) -> str:
    """A number with its noun: 1 run, 12 runs."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


SPLITS = {"test": "test", "val": "validation", "train": "training"}
STATISTICS = {
    "loss_recalibrated": "loss with recalibrated statistics",
    "loss_batch": "loss with batch statistics",
    "solved": "share of runs solved",
}


def said_metric(metric: str) -> str:
    """A metric as people say it: "test loss", "test accuracy at length 128"."""
    split, _, name = metric.partition("/")
    name, _, length = name.partition("@")
    said = STATISTICS.get(name, name.replace("_", " "))
    return f"{SPLITS.get(split, split)} {said}".strip() + f" at length {length}" * bool(length)


def p_words(p: float, correction: str = "") -> str:
    """A p-value in a sentence: "Holm p = 0.0003", "p < 0.0001"; nothing where there is none."""
    if not known(p):
        return ""
    return f"{correction} p {'= ' * (p >= 1e-4)}{p_text(p)}".strip()


def listed(names: Iterable[str]) -> str:
    """Names in a row: "a", "a and b", "a, b and c"."""
    names = list(names)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def few(names: Iterable[str], most: int) -> str:
    """The first names in a row: "a, b, …"."""
    names = list(names)
    return ", ".join(names[:most]) + ", …" * (len(names) > most)


def first_of(names: Iterable[str], most: int) -> str:
    """The first names in a row, and how many more there are: "a, b and 3 more"."""
    names = list(names)
    return ", ".join(names[:most]) + f" and {len(names) - most} more" * (len(names) > most)


def ranged(values: list[str]) -> str:
    """All of a few values, the ends of many."""
    return ", ".join(values) if len(values) <= 3 else f"{values[0]} to {values[-1]}"


def known(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number; None is none."""
    return value is not None and math.isfinite(value)


def visible(text: str) -> str:
    """A text with characters that would act, rather than be seen, spelled out: \\x1b."""
    return ACTING.sub(lambda found: ascii(found[0])[1:-1], text)
