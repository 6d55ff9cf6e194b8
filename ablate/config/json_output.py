"""What `--json` prints: one document on standard output, of which docs/json.md says what it holds."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.typed_json import Record

SCHEMA = 1  # raised where a name changes its meaning or goes; names that come raise nothing


class Outcome(NamedTuple):
    """What a command ends with: its exit code, what it found, and what is wrong or to be known of it."""

    code: int
    result: object = None
    remarks: list[str] = []  # noqa: RUF012


def document(prog: str, outcome: Outcome) -> str:
    """The JSON of an outcome: schema, command, exit_code, remarks, result."""
    head = {"schema": SCHEMA, "command": prog, "exit_code": outcome.code, "remarks": outcome.remarks}
    return json.dumps(head | {"result": plain(outcome.result)}, ensure_ascii=False, allow_nan=False, indent=1)


def plain(value: object) -> Any:
    """A value as JSON has it: tables are lists of rows, paths texts, and numbers that are not finite null."""
    if isinstance(value, Record):
        return plain(value.as_json())
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a table
        return plain(value.to_dict("records"))
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if hasattr(value, "item"):  # of NumPy
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value) if isinstance(value, Path) else plain(vars(value))
