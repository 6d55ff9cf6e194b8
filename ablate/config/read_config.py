"""A composed configuration as a `Config`: every value as its key's type, and everything that cannot be one."""

import functools
from typing import Any, get_args, get_type_hints

import msgspec

from ablate.config.errors import Problem
from ablate.config.schema import KEYS, MISSING, SECTIONS, VARIED, WHOLE, Config, typed

COMPONENTS = (*VARIED, "data")  # whose schema is a constructor
KINDS = {int: "a whole number", float: "a number", bool: "true or false"}
ITEMS = {"list[int]": "numbers", "list[float]": "numbers", "list[str]": "names"}


def read_config(plain: dict[str, Any], reference: dict[str, Any]) -> tuple[Config, list[Problem]]:
    """The configuration, with `reference` values in place of those that are wrong, and all problems."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in plain.items():
        if key in SECTIONS and not isinstance(value, dict):
            problems.append(Problem(key, f"is a section of keys; set one of them, as in {key}.KEY=VALUE"))
            values[key] = reference[key]
        elif key in SECTIONS:
            values[key] = read_fields(SECTIONS[key], value, reference[key], f"{key}.", problems)
        elif key in COMPONENTS and not isinstance(value, dict):
            problems.append(Problem(key, f"is a section of keys; set one of them, as in {key}.KEY=VALUE"))
            values[key] = {}
        else:
            values[key] = value
    whole_study = {key: value for key, value in values.items() if key in KEYS and key not in (*SECTIONS, *COMPONENTS)}
    values |= read_fields(Config, whole_study, reference, "", problems)
    return typed(values), problems


def read_fields(
    kind: type, values: dict[str, Any], reference: dict[str, Any], prefix: str, problems: list[Problem]
) -> dict[str, Any]:
    """The values of a section, each of its type; a wrong one is reported, and the reference's is taken."""
    hints = types_of(kind)
    read = {}
    for name, value in values.items():
        hint = hints.get(name, Any)
        key = f"{prefix}{name}"
        try:
            read[name] = converted(value, hint)
        except ValueError as error:
            problems.append(Problem(key, f"{error}{hint_for(key, value)}"))
            read[name] = reference.get(name)
    return read


@functools.cache
def types_of(kind: type) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    return get_type_hints(kind)


def converted(value: Any, hint: Any) -> Any:
    """A value as an annotated type: 1 as the float 1.0, "8" as the integer 8.  Raises ValueError."""
    options = get_args(hint) if "|" in str(hint) else (hint,)
    kind = options[0]
    if hint is Any or value == MISSING:
        return value
    if value is None:
        if type(None) in options:
            return None
        raise ValueError("cannot be null; write a value")
    if kind is str and isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        pass
    if str(kind).startswith("list"):
        if not isinstance(value, list):
            raise ValueError("takes a list; write [...]")
        raise ValueError(f"takes a list of {ITEMS.get(str(kind), 'values')}")
    if isinstance(value, list | dict) or kind is str:
        raise ValueError("takes one value")
    hint_null = "; write null for none" if value == "None" and type(None) in options else ""
    raise ValueError(f"{value!r} is not {KINDS[kind]}{hint_null}")


def hint_for(key: str, value: Any) -> str:
    """What to write for a key that takes one value and got a mapping, or a list, whose values may be compared."""
    if isinstance(value, dict):
        return f"; write {key}=VALUE"
    is_swept = key.partition(".")[0] not in (*WHOLE, "eval") and key != "optim.betas"
    if not is_swept or not isinstance(value, list) or len(value) < 2:
        return ""
    return f"; to compare several write {key}={','.join(map(str, value))}"
