"""Records: what a JSON file holds, typed; parsed and checked once where it is read, and never changed in place.

The fields of a record, in their order, are the JSON of its file.
"""

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
    """A field that is not written while it has its default, as it has in most files."""
    return dataclasses.field(default_factory=lambda: copy.copy(default), metadata={"unless": default})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field, optional))
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


def unread(value: Any, where: str = "") -> list[str]:
    """The entries of a newer version in a record, and in the records that it holds: cells.colour; each once."""
    if not isinstance(value, Record | Config):
        return []
    found = dict.fromkeys(f"{where}{name}" for name in value.unread)
    for name in _holding(type(value)) if isinstance(value, Record) else ():  # type: ignore[arg-type]
        held = getattr(value, name)
        for one in held.values() if isinstance(held, dict) else held if isinstance(held, list) else [held]:
            found |= dict.fromkeys(unread(one, f"{where}{name}."))
    return list(found)


def _sorted(hint: Any, value: Any) -> Any:
    """A value of a type with unknown entries moved to `unread`, in every record that it holds."""
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
    """The fields of a record that hold records, with their types."""
    return {name: hint for name, hint in get_type_hints(kind).items() if _holds(hint)}


def _holds(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, Record | Config)) or any(map(_holds, get_args(hint)))


def _worded(message: str) -> str:
    """What msgspec says of a value, as the end of a sentence: has no seeds; has cells[0].name that cannot be read."""
    what, _, where = message.replace("`", "").partition(" - at ")
    where = where.removeprefix("$").removeprefix(".")
    if what.startswith("Object missing required field "):
        return f"has no {'.'.join(filter(None, [where, what.split()[-1]]))}"
    return f"has {where or 'content'} that cannot be read ({what[0].lower()}{what[1:]})"
