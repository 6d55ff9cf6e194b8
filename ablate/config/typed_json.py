"""Records, the typed content of JSON files: checked when read, immutable; fields, in order, are the JSON's keys."""

import copy
import dataclasses
import functools
import types
from typing import Any, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec

from ablate.config.schema import MISSING, SECTIONS, Config, typed

C = TypeVar("C")
T = TypeVar("T", bound="Record")


def optional(*, default: Any = None) -> Any:
    """A field that is not written while it has its default value."""
    return dataclasses.field(default_factory=lambda: copy.copy(default), metadata={"unless": default})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field, optional))
def record(kind: type[C]) -> type[C]:
    """Decorator that makes a class a record: a frozen dataclass with keyword arguments."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(kind)


@record
class Record:
    """Base class of records.  `unread` holds unknown entries, written by a newer version; they are written back."""

    unread: dict[str, object] = dataclasses.field(default_factory=dict, repr=False)

    def as_json(self) -> dict[str, Any]:
        """The record as plain JSON data."""
        found = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "unread" and not ("unless" in field.metadata and value == field.metadata["unless"]):
                found[field.name] = plain(value)
        return found | self.unread


def plain(value: Any) -> Any:
    """A value with every record in it as plain JSON data."""
    if isinstance(value, Record | Config):
        return value.as_json()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def parse(kind: type[T], value: object) -> T:
    """A record from JSON data.  Raises ValueError with the first error, such as "has no seeds"."""
    try:
        return msgspec.convert(_sorted(kind, value), kind)
    except msgspec.ValidationError as error:
        raise ValueError(_worded(str(error))) from None


def stored(value: object) -> Config:
    """The configuration in a file.  Raises ValueError with the error, as in "has no train.steps in a configuration"."""
    try:
        plain = msgspec.convert(value, dict[str, Any])
        plain = plain | {"user": []} if plain else plain  # a file may not allow packages to be imported
        msgspec.convert(plain, Config)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise ValueError(f"has a configuration that cannot be read ({error})") from None
    found = typed(plain)
    parts = {"": found} | {f"{name}.": getattr(found, name) for name in SECTIONS} if plain else {}
    for name, part in parts.items():
        if lacking := [key for key, value in vars(part).items() if isinstance(value, str) and value == MISSING]:
            raise ValueError(f"has no {name}{lacking[0]} in a configuration")
    if plain and not isinstance(found.train.compile, bool):  # else any other value would count as true
        raise ValueError(f"has train.compile={found.train.compile!r}, neither true nor false, in a configuration")
    return found


def unread(value: Any, where: str = "") -> list[str]:
    """The dotted names of unknown entries in a record and the records inside it, such as cells.colour."""
    if not isinstance(value, Record | Config):
        return []
    found = dict.fromkeys(f"{where}{name}" for name in value.unread)
    for name in _holding(type(value)) if isinstance(value, Record) else ():  # type: ignore[arg-type]
        held = getattr(value, name)
        for one in held.values() if isinstance(held, dict) else held if isinstance(held, list) else [held]:
            found |= dict.fromkeys(unread(one, f"{where}{name}."))
    return list(found)


def _sorted(hint: Any, value: Any) -> Any:
    """A value for a type, with unknown entries moved to `unread` in every record inside it."""
    if hint is Config:
        return stored(value)
    if isinstance(hint, types.UnionType):
        hint = next(filter(_holds, get_args(hint)))
    container, inner = get_origin(hint), get_args(hint)
    if container is list and isinstance(value, list):
        return [_sorted(inner[0], item) for item in value]
    if container is dict and isinstance(value, dict):
        return {name: _sorted(inner[1], item) for name, item in value.items()}
    if container or not isinstance(value, dict):
        return value
    fields = {field.name for field in dataclasses.fields(hint)} - {"unread"}
    known = {name: item for name, item in value.items() if name in fields}
    known |= {name: _sorted(of, known[name]) for name, of in _holding(hint).items() if name in known}
    beyond = {name: item for name, item in value.items() if name not in fields}
    return known | {"unread": beyond} if beyond else known


@functools.cache
def _holding(kind: Any) -> dict[str, Any]:
    """The fields of a record type that contain records, with their types."""
    return {name: hint for name, hint in get_type_hints(kind).items() if _holds(hint)}


def _holds(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, Record | Config)) or any(map(_holds, get_args(hint)))


def _worded(message: str) -> str:
    """msgspec's message as the end of a sentence: has no seeds; has cells[0].name that cannot be read."""
    what, _, where = message.replace("`", "").partition(" - at ")
    where = where.removeprefix("$").removeprefix(".")
    if what.startswith("Object missing required field "):
        return f"has no {'.'.join(filter(None, [where, what.split()[-1]]))}"
    return f"has {where or 'content'} that cannot be read ({what[0].lower()}{what[1:]})"
