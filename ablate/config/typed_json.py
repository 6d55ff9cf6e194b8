"""Records, the typed content of JSON files: checked when read, immutable; fields, in order, are the JSON's keys."""

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import msgspec

from ablate.config.read_config import check
from ablate.config.schema import VARIED, Config, typed
from ablate.formatting import instead

C = TypeVar("C")
T = TypeVar("T", bound="Record")
# Settings that configurations had once; they are left out when a file is read, and `runs.key` counts what all had.
GONE = (
    *("companions", "hold", "placebo_seeds", "reference"),
    *("model.head_bias", "seed.placebo", "train.memory", "tune.per_seed"),
)


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
    """Base class of records."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        record(cls)

    def as_json(self) -> dict[str, Any]:
        """The record as plain JSON data."""
        content = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if "unless" not in field.metadata or value != field.metadata["unless"]:
                content[field.name] = plain(value)
        return content


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
    """A record from JSON data; keys that it does not have are left out.  Raises ValueError with the first error."""
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"cannot be read: {str(error).replace('`', '')}") from None
    complete: T = with_configurations(converted, value)
    return complete


def refuse_unknown_keys(kind: type[Record], content: Iterable[object]) -> None:
    """Raise ValueError for a key that a kind of record does not have, with the one that is meant."""
    names = [field.name for field in dataclasses.fields(kind)]
    for key in content:
        if key not in names:
            raise ValueError(f"no such key: {key}; {instead(str(key), names)}")


def stored(value: object) -> Config:
    """The configuration in a file, which may not allow packages to be imported.  Raises ValueError with the error."""
    content = dict(value) if isinstance(value, dict) else {}
    for name in GONE:
        section, _, key = name.rpartition(".")
        if section and isinstance(content.get(section), dict):
            content[section] = {other: setting for other, setting in content[section].items() if other != key}
        content.pop(name, None)
    try:
        config = typed(content | {"user": []})
    except AttributeError:
        raise ValueError("has a configuration with a section that is no mapping") from None
    for problem in check(config):
        if problem.key not in VARIED:  # components are checked where they are built
            raise ValueError(f"has a configuration that cannot be read ({problem})")
    return config


def with_configurations(converted: Any, value: Any) -> Any:
    """What msgspec has converted from JSON data, with the settings beyond the base schema of every configuration."""
    if isinstance(converted, Config):
        return stored(value)
    if isinstance(converted, list):
        return [with_configurations(item, original) for item, original in zip(converted, value, strict=True)]
    if isinstance(converted, dict):
        return {name: with_configurations(item, value[name]) for name, item in converted.items()}
    if not isinstance(converted, Record):
        return converted
    fields = {
        name: with_configurations(getattr(converted, name), value[name]) for name in value.keys() & vars(converted)
    }
    return dataclasses.replace(converted, **fields)
