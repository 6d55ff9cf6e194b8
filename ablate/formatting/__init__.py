"""Formatting of numbers and verdicts, shared by the summary, figures and tables.

Numbers have a typographic minus, and no sign if they round to zero.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

MINUS = "−"
MOST_PLACES = 9  # the most decimal places of an interval's end
# Control characters, direction marks, unusual line ends and zero-width characters: they could disguise a name, and
# U+FEFF raises an IndexError in matplotlib's PDF backend.
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
ESTIMATE_ONLY = "estimate only"  # in place of a verdict, for what is not tested
CROSSED = ("interaction", "trend")  # kinds of effects that are differences of differences
PER = "per "  # the start of a trend's unit
SPEED = {"train/step_seconds": "min", "train/tokens_per_second": "max"}  # metrics of timing=isolated


def scientific(value: float) -> str:
    """A positive value in short form: 1e-3, 2.5e-4, 0.1, 3."""
    if 0.01 <= value < 1e4:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def decimals(widths: Iterable[float]) -> int:
    """Decimal places for two significant digits in the narrowest of `widths`; between 3 and 6."""
    known = [width for width in widths if math.isfinite(width) and width > 0]
    return min(max(3, 1 - math.floor(math.log10(min(known)))), 6) if known else 3


def number(value: float, places: int, signed: bool = False) -> str:
    """A number with a typographic minus: 2.061, 0.053, −0.053; "–" if it is not finite."""
    if not math.isfinite(value):
        return "–"
    text = plus(value, f".{places}f")
    return text if signed else text.removeprefix("+")


def plus(value: float, form: str) -> str:
    """A finite number in a format, with its sign unless it rounds to zero: +0.13, −1.67, 0.00."""
    text = f"{abs(value):{form}}"
    if float(text) == 0:
        return text
    sign = MINUS if value < 0 else "+"
    return sign + text


def percent(fraction: float) -> str:
    """A signed fraction in per cent: +0.1 %, −12.0 %, 0.0 %."""
    return f"{plus(fraction * 100, '.1f')} %"


def remainder(fraction: float) -> str:
    """The remaining relative difference of a matched cell: +0.13 %, −1.67 %, 0 %."""
    return f"{plus(fraction * 100, '.2f')} %" if fraction else "0 %"


def p_text(p: float) -> str:
    """A p-value, with more digits if small or just below 5 %: 0.031, 0.0497, 0.0003, "< 0.0001"; "–" for NaN."""
    if p < 1e-4:
        return "< 0.0001"
    needs_a_digit_more = p < 1e-3 or 0.0495 <= p < 0.05
    return number(p, 4 if needs_a_digit_more else 3)


def span(mean: float, low: float, high: float, places: int) -> str:
    """A difference with its interval, −0.053 [−0.079, −0.027]; the difference alone if there is none."""
    text = number(mean, places, signed=True)
    return f"{text} [{ends(low, high, places, signed=True)}]" if math.isfinite(low) else text


def ends(low: float, high: float, places: int, signed: bool = False) -> str:
    """The ends of an interval: "−0.079, −0.027".  If the interval excludes zero, an end that would round to zero gets
    more digits, as in "+0.0003, +0.027", since excluding zero decides the verdict."""
    texts = []
    for end in (low, high):
        digits = places
        if low * high > 0 and math.isfinite(end):
            digits = min(max(places, math.floor(-math.log10(2 * abs(end))) + 1), MOST_PLACES)
        texts.append(number(end, digits, signed))
    return ", ".join(texts)


def plain(size: float) -> str:
    """A positive number without trailing zeros: 0.01, 2, 0.0005."""
    return f"{size:.10f}".rstrip("0").rstrip(".")


def columns(rows: Sequence[Sequence[str]], numeric: bool = False) -> list[str]:
    """Rows as lines of aligned columns, two spaces apart; with `numeric`, all but the first are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        texts = []
        for place, (text, width) in enumerate(zip(row, widths, strict=True)):
            texts.append(text.rjust(width) if numeric and place > 0 else text.ljust(width))
        lines.append("  ".join(texts).rstrip())
    return lines


def show(level: Any) -> str:
    """A factor's level as on the command line: 0.001, true, null, swiglu."""
    if level is None:
        return "null"
    if isinstance(level, bool):
        return "true" if level else "false"
    return f"{level:.6g}" if isinstance(level, float) else str(level)


def setting(value: Any) -> str:
    """A setting's value in short form: 1e-3, 100, true, swiglu."""
    return scientific(value) if isinstance(value, float) and value > 0 else show(value)


def size(params: float) -> str:
    """A number of parameters: 812, 4.3 k, 0.12 M, 124 M."""
    millions = params / 1e6
    if params < 1000:
        return str(params)
    if params < 1e4:
        return f"{params / 1e3:.1f} k"
    if millions < 10:
        return f"{millions:.2f} M"
    return f"{millions:.1f} M" if millions < 100 else f"{millions:.0f} M"


def epochs(passes: float | None) -> str:
    """Passes over the training data: 0.003 epochs, 0.07 epochs, 1.5 epochs; None if data never repeats."""
    if passes is None:
        return "fresh data"
    if passes < 0.01:
        return f"{passes:.1g} epochs"
    return f"{passes:.2f} epochs" if passes < 1 else f"{passes:.1f} epochs"


def duration(seconds: float) -> str:
    """A wall time: 8.1 s, 48 s, 1 min 08 s, 2 h 03 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def verdict(row: Any) -> str:
    """The verdict of a row of effects in words, or why there is none."""
    words = verdict_words(row)
    if row.verdict == "withheld" and row.diverged + row.diverged_reference:
        return f"{words}: {row.note}; diverged ranked worst: {ranks(row)}"
    return f"{words}: {row.note}" if row.note else words


def verdict_words(row: Any) -> str:
    """The verdict of a row of effects without its note."""
    if row.verdict in ("better", "worse"):
        return f"{row.verdict} ({direction(row)})"
    if row.verdict == "equivalent":
        return f"equivalent (within {margin(row)})"
    if row.verdict == "negligible":
        return f"negligible (a difference within {margin(row)})"
    if row.verdict == "undecided" and margin(row) and not row.note:
        return f"undecided (not shown within {margin(row)})"
    return "no verdict" if row.verdict == "withheld" else str(row.verdict)


def direction(row: Any) -> str:
    """What is better or worse of a row of effects: "lower loss", "faster"."""
    is_better = row.verdict == "better"
    if row.metric in SPEED and row.kind not in CROSSED:
        return "faster" if is_better else "slower"
    is_lower = bool(row.lower_is_better) == is_better
    way = "lower" if is_lower else "higher"
    metric = row.metric.split("/")[-1]
    if row.kind == "interaction":
        return f"{way} together than the two alone predict"
    if row.kind == "trend":
        return f"{way} {metric} {split(str(row.level), ', ')[-1]}"
    return f"{way} {metric}"


ENCLOSED = re.compile(r"""'[^']*'|"[^"]*"|\([^][(){}'"]*\)|\[[^][(){}'"]*\]|\{[^][(){}'"]*\}""")  # innermost


def split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators outside of brackets and quotes."""
    masked = text
    while True:
        hidden = ENCLOSED.sub(lambda enclosed: "_" * len(enclosed[0]), masked)
        if hidden == masked:
            break
        masked = hidden
    parts = []
    start = 0
    for cut in re.finditer(re.escape(separator), masked):
        parts.append(text[start : cut.start()])
        start = cut.end()
    return [*parts, text[start:]]


def over(row: Any) -> str:
    """The number of seeds of a row: "n = 5", "unpaired, n = 5"."""
    return f"n = {row.n}" if row.paired else f"unpaired, n = {row.n}"


def margin(row: Any) -> str:
    """The margin of a row of effects: "±0.01", "±2 % of the training steps"; empty without one."""
    return bounds(row.margin, row.margin_steps)


def bounds(size: float, steps: float) -> str:
    """A margin in the metric's unit (`size`) or as a fraction of the training steps; NaN where not given."""
    if math.isfinite(size):
        return f"±{plain(size)}"
    return f"±{100 * steps:g} % of the training steps" if math.isfinite(steps) else ""


def between(least: float, most: float) -> str:
    """Two positive numbers as a range: "0.0031", "0.012 to 0.031"."""
    return " to ".join(dict.fromkeys(number(value, decimals([value])) for value in (least, most)))


def lost(row: Any) -> list[str]:
    """A cell's runs without a number, by reason: "2 of 3 diverged", "1 of 3 failed", "1 of 3 missing"."""
    counts = [(name, getattr(row, name)) for name in ("diverged", "failed", "missing")]
    return [f"{count} of {row.runs} {name}" for name, count in counts if count]


def ranks(row: Any) -> str:
    """The number of seeds with the level lower or higher than the reference: "lower 0, higher 2, tied 1"."""
    text = f"lower {row.lower}, higher {row.higher}"
    return f"{text}, tied {row.tied}" if row.tied else text


def counted(n: int, noun: str) -> str:
    """A number with its noun: 1 run, 12 runs."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def p_words(p: float, correction: str = "") -> str:
    """A p-value for a sentence: "Holm p = 0.0003", "p < 0.0001"; empty if there is none."""
    if not known(p):
        return ""
    equals = "= " if p >= 1e-4 else ""  # else "< 0.0001"
    return f"{correction} p {equals}{p_text(p)}".strip()


def listed(names: Iterable[str]) -> str:
    """Names as an enumeration: "a", "a and b", "a, b and c"."""
    names = list(names)
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def first_of(names: Iterable[str], most: int) -> str:
    """The first names of a list and the number of others: "a, b and 3 more"."""
    names = list(names)
    if len(names) > most:
        return listed([*names[:most], f"{len(names) - most} more"])
    return listed(names)


def ranged(values: Iterable[str]) -> str:
    """Up to three different values, or the first and the last of more."""
    different = list(dict.fromkeys(values))
    return ", ".join(different) if len(different) <= 3 else f"{different[0]} to {different[-1]}"


def known(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number; false for None."""
    return value is not None and math.isfinite(value)


def visible(text: str) -> str:
    """A text with control and invisible characters escaped: \\x1b."""
    return ACTING.sub(lambda found: ascii(found[0])[1:-1], text)


MOST = 12  # the most names that are listed


def nearest(name: str, choices: Iterable[str], also: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """The choice that is most similar, in upper or lower case, or None; `also` has other names of choices."""
    meant = {other.lower(): choice for other, choice in also.items()}
    meant |= {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(name.lower(), meant, 1)
    return meant[near[0]] if near else None


def instead(name: str, choices: Iterable[str], also: Mapping[str, str] = MappingProxyType({})) -> str:
    """What to write instead of an unknown name, as the end of a line: the most similar choice, else the choices."""
    names = list(dict.fromkeys(choices))
    near = nearest(name, names, also)
    if near:
        return f"did you mean {near}?"
    if not names:
        return "there is none"
    if len(names) == 1:
        return f"there is only {names[0]}"
    further = ", …" if len(names) > MOST else ""
    return f"there are {', '.join(names[:MOST])}{further}"


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings by dotted name; empty mappings are dropped."""
    by_name: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            by_name |= flat(value, f"{name}.")
        else:
            by_name[name] = value
    return by_name


K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key; keys and values stay in their order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is an int or float, but no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


RISKY = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def quoted(value: Any) -> Any:
    """A value for a spreadsheet: texts that would be read as a formula get an apostrophe in front.  Numbers stay
    numbers.  A text that already has such an apostrophe gets another, so that `unquoted` is exact."""
    return f"'{value}" if is_risky(value) and not NUMBER.fullmatch(value) else value


def unquoted(value: Any) -> Any:
    """The inverse of `quoted`."""
    return value[1:] if is_risky(value) and value.startswith("'") else value


def is_risky(value: Any) -> TypeGuard[str]:
    """Whether a spreadsheet would read a value as a formula, but for apostrophes in front."""
    return isinstance(value, str) and bool(RISKY.match(value.lstrip("'")))
