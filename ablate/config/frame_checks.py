"""What is wrong with the frame of a configuration: unknown keys, ranges, words, numbers like nan.  No torch."""

import dataclasses
import math
from typing import Any

from omegaconf import MISSING

from ablate.config.errors import Problem
from ablate.config.schema import KEYS, LARGEST, LARGEST_SEED, OWNED, SECTIONS, Config
from ablate.formatting import show


def check(config: Config) -> list[Problem]:
    """Everything wrong with the frame of one resolved configuration: unknown keys, ranges, words, numbers like nan."""
    beyond = config.unread.keys() - SECTIONS.keys()
    problems = [Problem(key, f"no such key; there are {', '.join(sorted(KEYS))}") for key in beyond]
    problems += _check_fields(config, "")
    for name in SECTIONS:
        fields = {field.name for field in dataclasses.fields(SECTIONS[name])}
        for key in config.unread.get(name, ()) if name not in OWNED else ():  # their constructors know
            problems.append(Problem(f"{name}.{key}", f"no such key; there are {', '.join(sorted(fields))}"))
        problems += _check_fields(getattr(config, name), f"{name}.")
    betas, lengths = config.optim.betas, config.eval.lengths
    if betas is not None and (len(betas) != 2 or not all(0 <= beta < 1 for beta in betas)):
        problems.append(Problem("optim.betas", f"{betas} must be two numbers in [0, 1)"))
    if lengths != MISSING and (len(set(lengths)) < len(lengths) or any(length < 1 for length in lengths)):
        problems.append(Problem("eval.lengths", f"{lengths} must be different lengths, each at least 1"))
    return problems + _beyond_numbers(config.as_json(), "", {problem.key for problem in problems})


ITEMS: dict[str, tuple[Any, str]] = {"list[str]": (str, "names")}
ITEMS |= dict.fromkeys(("list[int]", "list[float]"), (int | float, "numbers"))


def misshapen(kind: str, value: Any) -> str | None:
    """What is wrong with a value for a key of the frame annotated as `kind`, by its shape alone; None if nothing."""
    if kind.startswith("list") and value not in (None, MISSING):
        if not isinstance(value, list):
            return "takes a list; write [...]"
        item, name = ITEMS.get(kind.removesuffix(" | None"), (object, ""))
        return None if all(isinstance(each, item) for each in value) else f"takes a list of {name}"
    single = kind.split(" | ")[0] in ("str", "int", "float", "bool")
    return "takes one value" if single and isinstance(value, dict | list) else None


def plain(value: float) -> str:
    """A number as people read it: 1,000,000; of one with many digits, how large it is: 7.3 x 10^23."""
    if not 1e12 <= abs(value) < math.inf:  # an integer may be too large for math.isfinite
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    power = math.floor(math.log10(abs(value)))
    return f"{value / 10**power:.1f} × 10^{power}"


def _check_fields(section: Any, prefix: str) -> list[Problem]:
    problems = []
    for field in dataclasses.fields(section):
        key, value = prefix + field.name, getattr(section, field.name)
        low, high = field.metadata.get("range", (-math.inf, math.inf))
        choices = field.metadata.get("choices", (value,))
        if value == MISSING:
            problems.append(Problem(key, "has no value; write one"))
        elif isinstance(value, int | float) and not low <= value <= high and not math.isnan(value):
            most = "" if high == math.inf else f" and ≤ {plain(high)}"
            problems.append(Problem(key, f"must be ≥ {low:g}{most}, not {plain(value)}"))
        elif value not in choices and (value is not None or field.default is not None):
            problems.append(Problem(key, f"must be one of {', '.join(choices)}; not {show(value) or 'nothing'}"))
    return problems


def _beyond_numbers(value: Any, key: str, known: set[str]) -> list[Problem]:
    """Numbers that are not finite, and sizes beyond all that there are, where nothing is `known` to be wrong yet."""
    if isinstance(value, dict):
        named = [(f"{key}.{name}" if key else str(name), item) for name, item in value.items()]
        return [p for name, item in named for p in _beyond_numbers(item, name, known)]
    if isinstance(value, list):
        return [p for item in value for p in _beyond_numbers(item, key, known)]
    if isinstance(value, float) and not math.isfinite(value):
        return [Problem(key, f"{value} is not a number to compute with; write a finite one")]
    most = LARGEST_SEED if key.startswith("seed") else LARGEST
    if isinstance(value, int) and abs(value) > most and key not in known:
        return [Problem(key, f"{plain(value)} is too large; write {plain(most)} at most")]
    return []
