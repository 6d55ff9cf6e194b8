"""A composed configuration as a `Config`: every value as its key's type, and everything that cannot be one."""

import math
from decimal import Decimal
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
    typed,
    types_of,
)
from ablate.formatting import nearest, show

COMPONENTS = (*VARIED, "data")  # whose schema is a constructor
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", list[str]: "a list of names"}
KINDS[list[Any]] = "a list of values"


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
            example = "; for the seeds of runs write seeds=[0,1]" if key == "seed" else f", as in {key}.KEY=VALUE"
            problems.append(Problem(key, f"is a section of keys; set one of them{example}"))
            values[key] = reference.get(key, {}) if key in SECTIONS else {}
        elif key in SECTIONS:
            if key not in WITH_ARGUMENTS:  # others are for the constructor of a model form or optimiser
                types = types_of(SECTIONS[key])
                there = ", ".join(sorted(types))
                for name in value.keys() - types.keys():
                    problems.append(Problem(f"{key}.{name}", f"no such key; there are {there}"))
            values[key] = read_fields(SECTIONS[key], value, reference.get(key, {}), f"{key}.", problems)
        elif key in COMPONENTS:
            values[key] = value
            problems += numbers_problems(value, key)
        elif key in KEYS:
            top_level[key] = value
        else:
            problems.append(Problem(key, "no such key"))
    values |= read_fields(Config, top_level, reference, "", problems)
    return typed(values), problems


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
            message = str(error)
            if isinstance(value, list) and len(value) > 1 and takes_sweep(key):
                message += f"; to compare several write {key}={','.join(map(str, value))}"
            wrong = [Problem(key, message)]
        if wrong:
            problems += wrong
            read[name] = reference.get(name)
    return read


def takes_sweep(key: str) -> bool:
    """Whether configurations can be compared that differ in a key."""
    return key.partition(".")[0] not in (*WHOLE, "eval", "experiment")


def converted(value: Any, hint: Any) -> Any:
    """A value as an annotated type: 1 as the float 1.0, "8" as the integer 8.  Raises ValueError."""
    if isinstance(value, str) and value == MISSING:
        raise ValueError("has no value; write one")
    if hint is Any:
        return value
    if str in options_of(hint) and isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError:
        meant = nearest(str(value), choices_of(hint))
        hint_of_choice = f"; did you mean {meant}?" if meant else ""
        text = readable_number(value) if isinstance(value, int) else show(value) or "nothing"
        raise ValueError(f"must be {expected(hint)}, not {text}{hint_of_choice}") from None


def expected(hint: Any) -> str:
    """What a key of an annotated type takes, in words: "a whole number ≥ 1 or auto"."""
    options: list[str] = []
    for option in options_of(hint):
        if get_origin(option) is Literal:
            options += get_args(option)
        elif option in KINDS:
            options.append(KINDS[option])
        else:
            options.append(in_range(option))
    if NoneType in get_args(hint):
        options.append("null")
    return " or ".join(options) if len(options) < 3 else f"one of {', '.join(options)}"


def in_range(option: Any) -> str:
    """An annotated type in words: its own, or a number with its range."""
    limits = option.__metadata__[0]
    if limits.description:
        return str(limits.description)
    text = KINDS[option.__origin__]
    if limits.ge is not None:
        text += f" ≥ {limits.ge:g}"
    if limits.le is not None:
        text += f" and ≤ {readable_number(limits.le)}"
    return text


def numbers_problems(value: Any, key: str) -> list[Problem]:
    """Problems of the numbers in a part of a configuration that are not finite."""
    problems = []
    if isinstance(value, dict):
        for name, item in value.items():
            problems += numbers_problems(item, f"{key}.{name}")
    elif isinstance(value, list):
        for item in value:
            problems += numbers_problems(item, key)
    elif isinstance(value, float) and not math.isfinite(value):
        problems.append(Problem(key, f"{value} is not a number to compute with; write a finite one"))
    return problems


def readable_number(value: float) -> str:
    """A number for people: 1,000,000, or 7.3e+23 from 10^12 on."""
    if abs(value) < 10_000:
        return show(value)
    return f"{value:,}" if abs(value) < 1e12 else f"{Decimal(value):.1e}"
