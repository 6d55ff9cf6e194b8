"""A composed configuration as a `Config`: every value as its key's type, and everything that cannot be one."""

import math
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from ablate.config.errors import Problem
from ablate.config.schema import (
    KEYS,
    MISSING,
    SECTIONS,
    VARIED,
    WHOLE,
    WITH_ARGUMENTS,
    Config,
    choices_of,
    options_of,
    range_of,
    typed,
    types_of,
)
from ablate.formatting import nearest, show

COMPONENTS = (*VARIED, "data")  # whose schema is a constructor
KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


def check(config: Config) -> list[Problem]:
    """Problems of a resolved configuration's base schema: unknown keys, types, ranges, numbers such as nan."""
    return read_config(config.as_json(), {})[1]


def read_config(plain: dict[str, Any], reference: dict[str, Any]) -> tuple[Config, list[Problem]]:
    """The configuration, with `reference` values in place of those that are wrong, and all problems."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    top_level: dict[str, Any] = {}
    for key, value in plain.items():
        if key in (*SECTIONS, *COMPONENTS) and not isinstance(value, dict):
            problems.append(Problem(key, f"is a section of keys; set one of them, as in {key}.KEY=VALUE"))
            values[key] = reference.get(key, {}) if key in SECTIONS else {}
        elif key in SECTIONS:
            values[key] = read_section(key, value, reference.get(key, {}), problems)
        elif key in COMPONENTS:
            values[key] = value
            problems += numbers_problems(value, key)
        elif key in KEYS:
            top_level[key] = value
        else:
            values[key] = value
            problems.append(Problem(key, f"no such key; there are {', '.join(sorted(KEYS))}"))
    values |= read_fields(Config, top_level, reference, "", problems)
    return typed(values), problems


def read_section(
    section: str, values: dict[str, Any], reference: dict[str, Any], problems: list[Problem]
) -> dict[str, Any]:
    """The values of a section; those beyond its schema are for the constructor of a model form or optimiser."""
    types = types_of(SECTIONS[section])
    read = read_fields(SECTIONS[section], values, reference, f"{section}.", problems)
    if section not in WITH_ARGUMENTS:
        for name in values.keys() - types.keys():
            problems.append(Problem(f"{section}.{name}", f"no such key; there are {', '.join(sorted(types))}"))
    betas = read.get("betas")
    if isinstance(betas, list) and (len(betas) != 2 or not all(0 <= beta < 1 for beta in betas)):
        problems.append(Problem(f"{section}.betas", f"{betas} must be two numbers in [0, 1)"))
    lengths = read.get("lengths") or []
    if len(set(lengths)) < len(lengths) or any(length < 1 for length in lengths):
        problems.append(Problem(f"{section}.lengths", f"{lengths} must be different lengths, each at least 1"))
    return read


def read_fields(
    section: type, values: dict[str, Any], reference: dict[str, Any], prefix: str, problems: list[Problem]
) -> dict[str, Any]:
    """The values of a section, each of its type; a wrong one is reported, and the reference's is taken."""
    types = types_of(section)
    read = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        try:
            read[name] = converted(value, types.get(name, Any))
            wrong = numbers_problems(read[name], key)
        except ValueError as error:
            wrong = [Problem(key, f"{error}{hint_for(key, value)}")]
        if wrong:
            problems += wrong
            read[name] = reference.get(name)
    return read


def converted(value: Any, hint: Any) -> Any:
    """A value as an annotated type: 1 as the float 1.0, "8" as the integer 8.  Raises ValueError."""
    if isinstance(value, str) and value == MISSING:
        raise ValueError("has no value; write one")
    if hint is Any:
        return value
    if value is None:
        if NoneType not in get_args(hint):
            raise ValueError("cannot be null; write a value")
        return None
    if str in options_of(hint) and isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError:
        raise ValueError(mistake(value, hint)) from None


def mistake(value: Any, hint: Any) -> str:
    """What is wrong with a value that is not of its key's type."""
    option = options_of(hint)[0]
    choices = choices_of(hint)
    if get_origin(option) is list:
        if isinstance(value, list):
            return f"takes a list of {'names' if option == list[str] else 'numbers'}"
        return "takes a list; write [...]"
    if isinstance(value, list | dict) or option is str:
        return "takes one value"
    if get_origin(option) is Literal:
        meant = nearest(str(value), choices)
        hint_of_choice = f"; did you mean {meant}?" if meant else ""
        return f"must be one of {', '.join(choices)}; not {show(value) or 'nothing'}{hint_of_choice}"
    if value in ("None", "none") and NoneType in get_args(hint):
        return f"{value!r} is not {KINDS[getattr(option, '__origin__', option)]}; write null for none"
    return wrong_number(value, option, choices)


def wrong_number(value: Any, option: Any, choices: list[str]) -> str:
    """What is wrong with a value that is no number of a range, nor one of the words that the key also takes."""
    kind = getattr(option, "__origin__", option)
    low, high = range_of(option)
    if choices and kind is bool:
        return f"must be {', '.join(choices)}, true or false, not {value!r}"
    if choices:
        return f"must be {', '.join(choices)} or {KINDS[kind]} ≥ {low}, not {value!r}"
    try:
        number = msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return f"{value!r} is not {KINDS[kind]}"
    if isinstance(number, float) and not math.isfinite(number):
        return f"{number} is not a number to compute with; write a finite one"
    most = "" if high is None else f" and ≤ {readable_number(high)}"
    return f"must be ≥ {low:g}{most}, not {readable_number(number)}"


def hint_for(key: str, value: Any) -> str:
    """What to write for a key that takes one value and got a mapping, or a list, whose values may be compared."""
    if isinstance(value, dict):
        return f"; write {key}=VALUE"
    is_swept = key.partition(".")[0] not in (*WHOLE, "eval") and key != "optim.betas"
    if not is_swept or not isinstance(value, list) or len(value) < 2:
        return ""
    return f"; to compare several write {key}={','.join(map(str, value))}"


LARGEST = 10**9  # the largest size or number of steps
LARGEST_SEED = 2**53


def numbers_problems(value: Any, key: str) -> list[Problem]:
    """Problems of the numbers in a part of a configuration that are not finite or too large."""
    problems = []
    if isinstance(value, dict):
        for name, item in value.items():
            problems += numbers_problems(item, f"{key}.{name}")
    elif isinstance(value, list):
        for item in value:
            problems += numbers_problems(item, key)
    limit = LARGEST_SEED if key.startswith("seed") else LARGEST
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(Problem(key, f"{value} is not a number to compute with; write a finite one"))
    elif isinstance(value, int) and abs(value) > limit and key != "train.memory":
        problems.append(Problem(key, f"{readable_number(value)} is too large; write {readable_number(limit)} at most"))
    return problems


def readable_number(value: float) -> str:
    """A number for people: 1,000,000, or 7.3 × 10^23 if it has many digits."""
    if not 1e12 <= abs(value) < math.inf:  # an integer may be too large for math.isfinite
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    power = math.floor(math.log10(abs(value)))
    return f"{value / 10**power:.1f} × 10^{power}"
