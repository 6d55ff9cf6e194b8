"""Records: what a JSON file holds, typed; parsed and checked once where it is read, and never changed in place.

The fields of a record, in their order, are the JSON of its file.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, TypeVar, dataclass_transform

import msgspec

from ablate.config.schema import MISSING, SECTIONS, Config, typed

C = TypeVar("C")
T = TypeVar("T", bound="Record")


def optional(*, default: Any = None) -> Any:
    """A field that is not written while it has its default, as it has in most files."""
    return dataclasses.field(default_factory=lambda: copy.copy(default), metadata={"unless": default})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field, optional))
def record(kind: type[C]) -> type[C]:
    """Make a class a record."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(kind)


@record
class Record:
    """Something that a file holds; entries that it has no field for are passed over."""

    def as_json(self) -> dict[str, Any]:
        """The record as its file holds it."""
        found = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not ("unless" in field.metadata and value == field.metadata["unless"]):
                found[field.name] = plain(value)
        return found


def plain(value: Any) -> Any:
    """A value with every record in it as its file holds it."""
    if isinstance(value, Record | Config):
        return value.as_json()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def parse(kind: type[T], value: object) -> T:
    """A record from what a file holds.  Raises ValueError with the first thing that is amiss, as "has no seeds"."""
    cells = value.get("cells") if isinstance(value, dict) else None
    if isinstance(cells, list):  # of a manifest, each with its configuration
        value = value | {"cells": [_with_config(cell) for cell in cells]}  # type: ignore[operator]
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_worded(str(error))) from None


def _with_config(cell: Any) -> Any:
    return cell | {"config": stored(cell["config"])} if isinstance(cell, dict) and "config" in cell else cell


def stored(value: object) -> Config:
    """The configuration that a file holds, without user packages, which no file allows.

    Raises ValueError with what is amiss, as "has no train.steps in a configuration".
    """
    try:
        plain = msgspec.convert(value, dict[str, Any])
        plain = plain | {"user": []} if plain else plain
        msgspec.convert(plain, Config)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise ValueError(f"has a configuration that cannot be read ({error})") from None
    found = typed(plain)
    parts = {"": found} | {f"{name}.": getattr(found, name) for name in SECTIONS} if plain else {}
    for name, part in parts.items():
        if lacking := [key for key, value in vars(part).items() if isinstance(value, str) and value == MISSING]:
            raise ValueError(f"has no {name}{lacking[0]} in a configuration")
    if plain and not isinstance(found.train.compile, bool):  # of which anything else would pass for true
        raise ValueError(f"has train.compile={found.train.compile!r}, neither true nor false, in a configuration")
    return found


def _worded(message: str) -> str:
    """What msgspec says of a value, as the end of a sentence: has no seeds; has cells[0].name that cannot be read."""
    what, _, where = message.replace("`", "").partition(" - at ")
    where = where.removeprefix("$").removeprefix(".")
    if what.startswith("Object missing required field "):
        return f"has no {'.'.join(filter(None, [where, what.split()[-1]]))}"
    return f"has {where or 'content'} that cannot be read ({what[0].lower()}{what[1:]})"
