"""Records: what a JSON file holds, typed; parsed and checked once where it is read, and never changed in place.

The fields of a record, in their order, are the JSON of its file.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from typing import Any, NamedTuple, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec

from ablate.config.schema import Config, stored

C = TypeVar("C")
T = TypeVar("T", bound="Record")


def later(*, default: Any = None) -> Any:
    """A field that a later version added, or that few files have: it is not written while it says nothing."""
    return dataclasses.field(default_factory=lambda: copy.copy(default), metadata={"unless": default})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field, later))
def record(kind: type[C]) -> type[C]:
    """Make a class a record."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(kind)


@record
class Record:
    """Something that a file holds.  `unread` is what a newer version wrote beside it; it is written back as it was."""

    unread: dict[str, object] = dataclasses.field(default_factory=dict, repr=False)

    def as_json(self) -> dict[str, Any]:
        """The record as its file holds it."""
        found = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "unread" and not ("unless" in field.metadata and value == field.metadata["unless"]):
                found[field.name] = plain(value)
        return found | self.unread


def plain(value: Any) -> Any:
    """A value with every record in it as its file holds it."""
    if isinstance(value, Record | Config):
        return value.as_json()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def parse(kind: type[T], value: object) -> T:
    """A record from what a file holds.  Raises ValueError with the first thing that is amiss, as "has no seeds"."""
    try:
        return msgspec.convert(_sorted(kind, value), kind)
    except msgspec.ValidationError as error:
        raise ValueError(_worded(str(error))) from None


def unread(value: Any, where: str = "") -> list[str]:
    """The entries of a newer version in a record, and in the records that it holds: cells.colour; each once."""
    found: dict[str, None] = {}
    if isinstance(value, Record | Config):
        found |= dict.fromkeys(f"{where}{name}" for name in value.unread)
        for name, holds in _fields(type(value)).items() if isinstance(value, Record) else ():  # type: ignore[arg-type]
            held = getattr(value, name) if holds else None
            for one in held.values() if isinstance(held, dict) else held if isinstance(held, list) else [held]:
                found |= dict.fromkeys(unread(one, f"{where}{name}."))
    return list(found)


def _sorted(kind: type[Record | Config], value: object) -> object:
    """A value with the entries that no field of the record is for apart, in it and in the records that it holds."""
    if kind is Config:
        return stored(value)
    if not isinstance(value, dict):
        return value
    fields = _fields(kind)  # type: ignore[arg-type]
    known = {name: item for name, item in value.items() if name in fields}
    for name, item in known.items():
        if holds := fields[name]:
            known[name] = holds.sorted(item)
    if len(known) < len(value):
        known["unread"] = {name: item for name, item in value.items() if name not in fields}
    return known


class _Holds(NamedTuple):
    """What a field holds that is no plain value: a record, or a list or mapping of them."""

    container: object
    kind: type[Record | Config]

    def sorted(self, value: object) -> object:
        """A value of the field with what is unknown in its records apart."""
        if self.container is list and isinstance(value, list):
            return [_sorted(self.kind, item) for item in value]
        if self.container is dict and isinstance(value, dict):
            return {name: _sorted(self.kind, item) for name, item in value.items()}
        return _sorted(self.kind, value) if self.container is None else value


@functools.cache
def _fields(kind: Any) -> dict[str, _Holds | None]:
    hints = get_type_hints(kind)
    return {field.name: _held(hints[field.name]) for field in dataclasses.fields(kind) if field.name != "unread"}


def _held(hint: Any) -> _Holds | None:
    for one in get_args(hint) if isinstance(hint, types.UnionType) else [hint]:
        container = get_origin(one)
        inner = get_args(one)[-1] if container in (list, dict) else one
        if isinstance(inner, type) and issubclass(inner, Record | Config):
            return _Holds(container, inner)
    return None


def _worded(message: str) -> str:
    """What msgspec says of a value, as the end of a sentence: has no seeds; has cells[0].name that cannot be read."""
    what, _, where = message.replace("`", "").partition(" - at ")
    where = where.removeprefix("$").removeprefix(".")
    if what.startswith("Object missing required field "):
        return f"has no {'.'.join(filter(None, [where, what.split()[-1]]))}"
    return f"has {where or 'content'} that cannot be read ({what[0].lower()}{what[1:]})"
