"""Generates the pages of `docs/` that list variants and keys.

    make catalogue
    python tools/write_catalogue.py

Types and ranges of keys come from the schema, defaults and meanings from `ablate/conf/`.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from ablate.config.citations import papers, short
from ablate.config.groups import CONF, description, groups, read_groups
from ablate.config.read_config import expected
from ablate.config.schema import SECTIONS, VARIED, Config, types_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
WRITTEN = "<!-- written by `make catalogue`: edit ablate/conf/ instead -->"
CATALOGUE = """\
# Catalogue

Every variant, with what it is and its paper. `norm=rms` on the command line chooses one, `norm=ln,rms` compares two,
and `ablate help norm` prints a group. Their settings are in [keys](keys.md#settings-of-variants); a variant of your own
is [one class and one file](how-to/own-component.md).
"""
KEYS = """\
# Keys

Every key of a command line or a study file. Several values are compared, as in `optim.lr=1e-3,3e-3`; keys of the
study and of tuning take one. Used most: `seeds`, `margin`, `match`, `design`, `confirm`, `tune.key`, `optim.lr`,
`train.steps`. Settings of single variants are [below](#settings-of-variants).
"""
SETTINGS = """\
## Settings of variants

`group.setting=value` changes one of a variant's settings: `norm.eps=1e-6`, `attention.kv_heads=1`, `data.length=40`.
An explanation that holds for several variants stands above the table. Settings that no YAML holds are added with a
plus: [options](models-and-tasks.md#options).
"""
SHOWN = (*VARIED, "model", "preset", "data", "scale", "optim")  # groups of the catalogue
SCALES = ("tiny", "small", "base")
FILES = ("config.yaml", "scale/tiny.yaml", "model/decoder.yaml", "optim/adamw.yaml")  # of defaults
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
HIDDEN = {*SECTIONS, *VARIED, "data", "track", "unread", "_target_"}  # no keys of the study itself
# Settings of model forms and optimisers that are keys of the base schema.
FRAMED = {(section, field.name) for section, frame in SECTIONS.items() for field in dataclasses.fields(frame)}
Settings = dict[str, tuple[str, str]]  # by key a value and the comment after it
LINE = re.compile(r"( *)([\w.]+):(?: (.*?))?(?: +# (.*))?$")


def pages() -> dict[str, str]:
    """The content of each generated page of `docs/`, by file name."""
    return {
        "catalogue.md": "\n".join([WRITTEN, "", CATALOGUE, catalogue()]),
        "keys.md": "\n".join([WRITTEN, "", KEYS, key_tables(), SETTINGS, setting_tables((*SHOWN, "track"))]),
    }


def catalogue() -> str:
    """A table for each group: variants, what they are, their papers."""
    tables = []
    for group in SHOWN:
        rows = "".join(variant_rows(group))
        tables.append(f"## `{group}=`\n\n| variant | what it is | source |\n|---|---|---|\n{rows}")
    return "\n".join(tables)


def variant_rows(group: str) -> Iterator[str]:
    """The row of each variant of a group."""
    there = read_groups()
    variants = there.variants[group]
    cited = papers(({group: name} for name in variants), there)
    for name, file in variants.items():
        sources = [paper_link(entry) for entry in cited.get(f"{group}={name}", {}).values()]
        title = f"`{name}` (default)" if name == there.defaults.get(group) else f"`{name}`"
        yield f"| {title} | {cell(description(file).removesuffix('.'))} | {'; '.join(sources)} |\n"


def paper_link(entry: dict[str, Any]) -> str:
    """A paper's authors and year, linked to arXiv where it is there."""
    if "eprint" in entry:
        return f"[{short(entry)}](https://arxiv.org/abs/{entry['eprint']})"
    return short(entry)


def cell(text: str) -> str:
    """Text as it stands in a cell of a Markdown table."""
    return text.replace("|", "\\|")


def key_tables() -> str:
    """A table for each section: key, default, accepted values, description."""
    written: Settings = {}
    for name in FILES:
        group = name.partition("/")[0] if name.startswith(("model", "optim")) else ""
        written |= settings_in(CONF / name, group)
    scales = [settings_in(CONF / "scale" / f"{name}.yaml") for name in SCALES]
    tables = []
    for section, title in TITLES.items():
        rows = []
        for key, accepted in keys_of(section).items():
            value, comment = written.get(key, ("", ""))
            if all(key in scale for scale in scales):
                value = " / ".join(scale[key][0] for scale in scales)
            default = f"`{value}`" if value else ""
            rows.append(f"| `{key}` | {default} | {accepted} | {cell(comment)} |\n")
        tables.append(f"## {title}\n\n| key | default | takes | |\n|---|---|---|---|\n{''.join(rows)}")
    strokes = f"Three defaults with a stroke between them are those of `scale={'`, `'.join(SCALES)}`.\n"
    return "\n".join([*tables, strokes])


def keys_of(section: str) -> dict[str, str]:
    """The keys of a section of the schema, with the values that they accept."""
    if section == "data":
        return {"data.context": "≥ 1"}
    keys = {}
    for name, hint in types_of(SECTIONS[section] if section else Config).items():
        if name != "_target_" and (section or name not in HIDDEN):
            key = f"{section}.{name}" if section else name
            keys[key] = "" if hint is Any else expected(hint)
    return keys


def setting_tables(shown: Iterable[str]) -> str:
    """A table for each group: variants with their settings, defaults and comments."""
    tables = [setting_table(group) for group in shown if group not in ("scale", "preset")]
    return "\n".join(filter(None, tables))


def setting_table(group: str) -> str:
    """The settings of a group's variants, equal ones in one row; empty without any.

    A comment that stands in several rows is written once, above the table.
    """
    names_of: dict[tuple, list[str]] = {}
    for name, file in groups()[group].items():
        settings = {}
        for key, entry in settings_in(file).items():
            if key not in ("_target_", "_partial_") and (group, key) not in FRAMED:
                settings[key] = entry
        if settings:
            names_of.setdefault(tuple(settings.items()), []).append(f"`{name}`")
    if not names_of:
        return ""
    rows = [dict(items) for items in names_of]
    shared = shared_comments(rows)
    lines = [f"### `{group}=`\n\n"]
    for key, comment in shared.items():
        lines.append(f"- `{key}`: {comment}\n")
    if shared:
        lines.append("\n")
    lines.append("| variant | settings |\n|---|---|\n")
    for names, settings in zip(names_of.values(), rows, strict=True):
        lines.append(f"| {', '.join(names)} | {settings_text(settings, shared)} |\n")
    return "".join(lines)


def shared_comments(rows: list[Settings]) -> dict[str, str]:
    """By key the comment of several rows, where it is the only such comment and every row with that key has one."""
    counts: dict[str, Counter[str]] = {}
    for settings in rows:
        for key, (_, comment) in settings.items():
            counts.setdefault(key, Counter())[comment] += 1
    shared = {}
    for key, counter in counts.items():
        repeated = [comment for comment, count in counter.items() if count > 1]
        if "" not in counter and len(repeated) == 1:
            shared[key] = repeated[0]
    return shared


def settings_text(settings: Settings, shared: dict[str, str]) -> str:
    """Settings with their values and the comments that do not stand above the table."""
    texts = []
    for key, (value, comment) in settings.items():
        text = f"`{key}: {value}`"
        if comment and shared.get(key) != comment:
            text += f" ({cell(comment)})"
        texts.append(text)
    return "<br>".join(texts)


def settings_in(file: Path, prefix: str = "") -> Settings:
    """Every key of a YAML file, dotted, with its value as written and the comment after it."""
    settings = {}
    above = [(-1, prefix)] if prefix else []  # the keys around a line, with their indents
    for line in file.read_text(encoding="utf-8").splitlines():
        match = LINE.match(line)
        if not match:
            continue
        indent = len(match[1])
        above = [(place, name) for place, name in above if place < indent]
        value = match[3] or ""
        key = ".".join([*(name for _, name in above), match[2]])
        if value.startswith("{") and "$" not in value:
            for name, inner in yaml.safe_load(value).items():
                text = str(yaml.safe_dump(inner, default_flow_style=True))
                settings[f"{key}.{name}"] = (text.removesuffix("\n").removesuffix("\n..."), "")
        elif value:
            settings[key] = (value, match[4] or "")
        else:
            above.append((indent, match[2]))
    return settings


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(DOCS / name)


if __name__ == "__main__":
    main()
