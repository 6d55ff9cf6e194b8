"""Records, the typed content of JSON files: checked when read, immutable; fields, in order, are the JSON's keys."""

import copy
import dataclasses
from typing import Any, TypeVar, dataclass_transform

import msgspec

from ablate.config.schema import MISSING, SECTIONS, Config, typed

C = TypeVar("C")
T = TypeVar("T", bound="Record")
# Settings that configurations had once; they are left out when a file is read, and `runs.key` counts what all had.
GONE = ("companions", "hold", "placebo_seeds", "reference", "model.head_bias", "seed.placebo", "tune.per_seed")


def optional(*, default: Any = None) -> Any:
    """A field that is not written while it has its default value."""
    return dataclasses.field(default_factory=lambda: copy.copy(default), metadata={"unless": default})


@dataclass_transform(kw_only_default=True, frozen_default=True)
def record(kind: type[C]) -> type[C]:
    """A class as a frozen dataclass with keyword arguments, as every subclass of `Record` is without this decorator."""
    return kind if "__dataclass_fields__" in vars(kind) else dataclasses.dataclass(frozen=True, kw_only=True)(kind)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field, optional))
@record
class Record:
    """Base class of records.  `unread` holds unknown entries, written by a newer version; they are written back."""

    unread: dict[str, object] = dataclasses.field(default_factory=dict, repr=False)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        record(cls)

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
        return _with_unread(msgspec.convert(value, kind), value)
    except msgspec.ValidationError as error:
        what, _, where = str(error).replace("`", "").partition(" - at ")
    where = where.removeprefix("$").removeprefix(".")
    if what.startswith("Object missing required field "):
        raise ValueError(f"has no {'.'.join(filter(None, [where, what.split()[-1]]))}")
    raise ValueError(f"has {where or 'content'} that cannot be read ({what[0].lower()}{what[1:]})")


def without_gone(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration in a file without the settings that later versions do not have."""
    kept = {name: value for name, value in config.items() if name not in GONE}
    for section in SECTIONS.keys() & kept.keys():
        kept[section] = {key: value for key, value in kept[section].items() if f"{section}.{key}" not in GONE}
    return kept


def stored(value: object) -> Config:
    """The configuration in a file.  Raises ValueError with the error, as in "has no train.steps in a configuration"."""
    try:
        plain = msgspec.convert(value, dict[str, Any])
        plain = without_gone(plain)
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


def unread(value: Any, where: str = "") -> dict[str, object]:
    """The unknown entries of a record and of the records inside it, by dotted name, such as cells.colour.  Records of
    one list share a name: the first value that is not empty is kept."""
    found: dict[str, object] = {}
    if isinstance(value, Record | Config):
        found = {f"{where}{name}": entry for name, entry in value.unread.items()}
    if isinstance(value, Record):
        inner = [(item, f"{where}{name}.") for name, item in vars(value).items() if name != "unread"]
    elif isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        inner = [(item, where) for item in items]
    else:
        inner = []
    for item, prefix in inner:
        for name, entry in unread(item, prefix).items():
            found[name] = found.get(name) or entry
    return found


def _with_unread(found: Any, value: Any) -> Any:
    """What was read from JSON data, with the unknown entries of every record in it, and configurations typed."""
    if isinstance(found, Config):
        return stored(value)
    if isinstance(found, list):
        return [_with_unread(*pair) for pair in zip(found, value, strict=True)]
    if isinstance(found, dict):
        return {name: _with_unread(item, value[name]) for name, item in found.items()}
    if not isinstance(found, Record):
        return found
    known = {name: _with_unread(getattr(found, name), item) for name, item in value.items() if name in vars(found)}
    beyond = {name: item for name, item in value.items() if name not in known}
    return dataclasses.replace(found, **known, unread=beyond)
