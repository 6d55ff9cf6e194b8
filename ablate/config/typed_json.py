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
        content = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_default = "unless" in field.metadata and value == field.metadata["unless"]
            if field.name != "unread" and not is_default:
                content[field.name] = plain(value)
        return content | self.unread


def plain(value: Any) -> Any:
    """A value with every record in it as plain JSON data."""
    if isinstance(value, Record | Config):
        return value.as_json()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def parse(kind: type[T], value: object) -> T:
    """A record from JSON data.  Raises ValueError with the first error, such as "has no seeds"."""
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(unreadable_part(str(error))) from None
    complete: T = with_unread(converted, value)
    return complete


def unreadable_part(error: str) -> str:
    """The message for an error of msgspec, which ends in the place: ... - at `$.cells[0]`."""
    what, _, where = error.replace("`", "").partition(" - at ")
    place = where.removeprefix("$").removeprefix(".")
    if what.startswith("Object missing required field "):
        field = what.split()[-1]
        return f"has no {place}.{field}" if place else f"has no {field}"
    return f"has {place or 'content'} that cannot be read ({what[0].lower()}{what[1:]})"


def without_gone(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration in a file without the settings that later versions do not have."""
    present = {name: value for name, value in config.items() if name not in GONE}
    for section in SECTIONS.keys() & present.keys():
        present[section] = {key: value for key, value in present[section].items() if f"{section}.{key}" not in GONE}
    return present


def stored(value: object) -> Config:
    """The configuration in a file.  Raises ValueError with the error, as in "has no train.steps in a configuration"."""
    try:
        content = without_gone(msgspec.convert(value, dict[str, Any]))
        if content:
            content["user"] = []  # a file may not allow packages to be imported
        msgspec.convert(content, Config)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise ValueError(f"has a configuration that cannot be read ({error})") from None
    config = typed(content)
    if not content:
        return config
    sections = {"": config} | {f"{name}.": getattr(config, name) for name in SECTIONS}
    for prefix, section in sections.items():
        for name, setting in vars(section).items():
            if isinstance(setting, str) and setting == MISSING:
                raise ValueError(f"has no {prefix}{name} in a configuration")
    if not isinstance(config.train.compile, bool):  # else any other value would count as true
        raise ValueError(f"has train.compile={config.train.compile!r}, neither true nor false, in a configuration")
    return config


def unread(value: Any, where: str = "") -> dict[str, object]:
    """The unknown entries of a record and of the records inside it, by dotted name, such as cells.colour.  Records of
    one list share a name: the first value that is not empty is kept."""
    entries: dict[str, object] = {}
    parts: list[tuple[Any, str]] = []
    if isinstance(value, Record | Config):
        entries = {f"{where}{name}": entry for name, entry in value.unread.items()}
    if isinstance(value, Record):
        parts = [(item, f"{where}{name}.") for name, item in vars(value).items() if name != "unread"]
    elif isinstance(value, dict):
        parts = [(item, where) for item in value.values()]
    elif isinstance(value, list):
        parts = [(item, where) for item in value]
    for part, prefix in parts:
        for name, entry in unread(part, prefix).items():
            entries[name] = entries.get(name) or entry
    return entries


def with_unread(converted: Any, value: Any) -> Any:
    """What msgspec has converted from JSON data, with the unknown entries of every record in it, and configurations
    typed."""
    if isinstance(converted, Config):
        return stored(value)
    if isinstance(converted, list):
        return [with_unread(item, original) for item, original in zip(converted, value, strict=True)]
    if isinstance(converted, dict):
        return {name: with_unread(item, value[name]) for name, item in converted.items()}
    if not isinstance(converted, Record):
        return converted
    fields = {}
    beyond = {}
    for name, item in value.items():
        if name in vars(converted):
            fields[name] = with_unread(getattr(converted, name), item)
        else:
            beyond[name] = item
    return dataclasses.replace(converted, **fields, unread=beyond)
