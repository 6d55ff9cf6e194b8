"""The keys of the configuration as tables: type and range from the schema, default and meaning from `conf/`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from ablate.config.groups import CONF, groups
from ablate.config.schema import SECTIONS, VARIED, Config

SCALES = ("tiny", "small", "base")
FILES = ("config.yaml", "scale/tiny.yaml", "model/decoder.yaml", "optim/adamw.yaml")  # where defaults and comments are
TITLES = {
    "": "The study",
    "tune": "Tuning",
    "model": "The model",
    "data": "The data (and each task's own settings, below)",
    "train": "Training",
    "optim": "The optimiser",
    "eval": "Evaluation",
    "seed": "Seeds",
}
INNER = ("_target_",)  # keys that nobody types
TYPES = {"bool": "true, false", "str": "a name", "list[str]": "a list", "list[int]": "a list", "list[float]": "a list"}
# Settings of model forms and optimisers that are keys of the frame.
FRAMED = {(section, field.name) for section, frame in SECTIONS.items() for field in dataclasses.fields(frame)}
LINE = re.compile(r"( *)([\w.]+):(?: (.*?))?(?: +# (.*))?$")


def key_tables() -> str:
    """A table per section: key, default, what it takes, what it is."""
    says, values = dict[str, str](), dict[str, str]()
    for name in FILES:
        group = name.partition("/")[0] if name.startswith(("model", "optim")) else ""
        found = dict(entries(CONF / name, group))
        says |= {key: comment for key, (_, comment) in found.items()}
        values |= {key: value for key, (value, _) in found.items()}
    scaled = [{key: value for key, (value, _) in entries(CONF / f"scale/{scale}.yaml")} for scale in SCALES]
    tables = []
    for section, title in TITLES.items():
        rows = [_row(key, takes, says.get(key, ""), values.get(key, ""), scaled) for key, takes in _keys(section)]
        tables.append(f"## {title}\n\n| key | default | takes | |\n|---|---|---|---|\n{''.join(rows)}")
    strokes = f"Three defaults with a stroke between them are those of `scale={'`, `'.join(SCALES)}`.\n"
    return "\n".join([*tables, strokes])


def setting_tables(shown: Iterable[str]) -> str:
    """A table per group: each variant with its settings, their defaults and comments."""
    found, tables = groups(), []
    for group in shown:
        rows = [_settings(name, file, group) for name, file in found[group].items() if group not in ("scale", "preset")]
        if rows := [row for row in rows if row]:
            tables.append(f"| `{group}=` | settings |\n|---|---|\n{''.join(rows)}")
    return "\n".join(tables)


def entries(file: Path, prefix: str = "") -> Iterator[tuple[str, tuple[str, str]]]:
    """Every key of a YAML file, dotted, with its value as it is written and the comment behind it."""
    above: list[tuple[int, str]] = [(-1, prefix)] if prefix else []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not (match := LINE.match(line)):
            continue
        indent, key, value, comment = len(match[1]), match[2], match[3] or "", match[4] or ""
        above = [(place, name) for place, name in above if place < indent]
        dotted = ".".join([*(name for _, name in above), key])
        if value.startswith("{") and "$" not in value:
            inner = yaml.safe_load(value)
            yield from ((f"{dotted}.{name}", (_written(each), "")) for name, each in inner.items())
        elif value:
            yield dotted, (value, comment)
        else:
            above.append((indent, key))


def _written(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True)).removesuffix("\n").removesuffix("\n...")


def _keys(section: str) -> Iterator[tuple[str, str]]:
    """The keys of a section with what each takes, by the schema."""
    if section == "data":
        yield "data.context", "≥ 1"
        return
    for field in dataclasses.fields(SECTIONS[section] if section else Config):
        hidden = {*INNER, *SECTIONS, *VARIED, "data", "track", "unread"} if not section else set(INNER)
        if field.name not in hidden:
            yield f"{section}.{field.name}".lstrip("."), _takes(field)


def _takes(field: dataclasses.Field[Any]) -> str:
    if choices := field.metadata.get("choices"):
        return ", ".join(f"`{choice}`" for choice in choices)
    if limits := field.metadata.get("range"):
        low, high = (f"{limit:,}" if isinstance(limit, int) else f"{limit:g}" for limit in limits)
        return f"≥ {low}" if math.isinf(limits[1]) else f"{low} to {high}"
    return TYPES.get(str(field.type).removesuffix(" | None"), "")


def _row(key: str, takes: str, says: str, value: str, scaled: list[dict[str, str]]) -> str:
    if all(key in scale for scale in scaled):
        value = " / ".join(scale[key] for scale in scaled)
    return f"| `{key}` | {f'`{value}`' if value else ''} | {takes} | {_cell(says)} |\n"


def _settings(name: str, file: Path, group: str) -> str:
    found = [
        f"`{key}: {value}`" + f" ({_cell(comment)})" * bool(comment)
        for key, (value, comment) in entries(file)
        if key not in ("_target_", "_partial_") and (group, key) not in FRAMED
    ]
    return f"| `{name}` | {'<br>'.join(found)} |\n" if found else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
