"""figures.yaml: a user's changes to figures and names.  It is written once with the defaults, as comments, and read by
every analysis."""

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from matplotlib.colors import is_color_like, to_hex

from ablate import evidence
from ablate.config.errors import Corrupt, Refused
from ablate.config.factors import BASE
from ablate.config.files import parse_plain, read_regular
from ablate.config.ladder import RUNG, at_other_rate
from ablate.config.program_keys import CODE
from ablate.config.typed_json import Record, optional, parse, refuse_unknown_keys
from ablate.evidence.claim_text import claim_label
from ablate.formatting import instead, is_number, setting, show, visible
from ablate.runs import naming
from ablate.runs.files import write_atomic
from ablate.runs.records import Cell, Manifest
from ablate.runs.study import Study

FILE = "figures.yaml"
NARROWEST = 2.5  # inches
WIDEST = 12.0
SUBJECT = 40  # characters of a commit's message


# Widths of figures in inches by style, the default first: single is one of two columns, double both, text of one.
STYLES = {
    "default": {"text": 5.5, "single": 3.3, "double": 6.9},
    "neurips": {"text": 5.5},
    "icml": {"single": 3.25, "double": 6.75},
    "acl": {"single": 3.03, "double": 6.3},
}
HEADER = """\
# What the figures of this study look like (style, width, colours, subset), and what things are
# called wherever people read (labels).  Take the # away before what you change, and run the same command again.
# Statistics never change.  Delete this file for the defaults.
"""


class Subset(Record):
    """What is drawn."""

    figures: list[str] | None = optional(default=None)


class Entries(Record):
    """The file's entries as they are written."""

    style: str = optional(default="default")
    width: float | str | None = optional(default=None)
    labels: dict[Any, str | int | float] = optional(default={})
    colours: dict[str, dict[Any, Any]] = optional(default={})
    subset: Subset = optional(default=Subset())


@dataclass(frozen=True)
class Edits:
    """The checked entries; levels are texts, and what is missing keeps the study's values."""

    width: float = 5.5
    labels: dict[str, str] = field(default_factory=dict)
    colours: dict[tuple[str, str], str] = field(default_factory=dict)
    figures: list[str] | None = None


def edits_of(file: Path, manifest: Manifest, kinds: list[str] | None = None) -> Edits:
    """The entries of `file`, or the defaults if it does not exist.  Raises `Refused`.  `kinds` are the valid names of
    figures; None accepts any."""
    try:
        content = parse_plain(read_regular(file), str(file)) or {}
    except (FileNotFoundError, NotADirectoryError):
        content = {}
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror})") from None
    except Corrupt as error:
        raise Refused(f"{error}; delete it for the defaults") from None
    try:
        if not isinstance(content, dict):
            raise ValueError("write entries of the form `name: value`")
        return checked(content, manifest, kinds)
    except ValueError as error:
        raise Refused(f"{file}: {error}") from None


def checked(content: dict[str, Any], manifest: Manifest, kinds: list[str] | None) -> Edits:
    """The edits that a file's content describes.  Raises ValueError."""
    content = {name: entry for name, entry in content.items() if entry is not None}  # headings without entries
    refuse_unknown_keys(Entries, content)
    entries = parse(Entries, content)
    refuse_unknown_keys(Subset, content.get("subset", {}))
    refuse_unknown("style", entries.style, STYLES)
    for name in entries.subset.figures or []:
        if kinds is not None:
            refuse_unknown("subset.figures", name, kinds)
    return Edits(
        width=width_of(entries.width, STYLES[entries.style]),
        labels=labels_of(entries.labels, manifest),
        colours=colours_of(entries.colours, manifest),
        figures=entries.subset.figures,
    )


def refuse_unknown(where: str, name: str, choices: Iterable[str]) -> None:
    """Raise ValueError for a name that is none of the choices."""
    if name not in choices:
        raise ValueError(f"{where} names {name}; {instead(name, choices)}")


def width_of(value: float | str | None, widths: dict[str, float]) -> float:
    """A width in inches.  Raises ValueError."""
    if value is None:
        return next(iter(widths.values()))
    if isinstance(value, str) and value in widths:
        return widths[value]
    if is_number(value) and NARROWEST <= value <= WIDEST:
        return float(value)
    raise ValueError(f"width is {value}; write {', '.join(widths)} or inches from {NARROWEST} to {WIDEST:g}")


def colours_of(entries: dict[str, dict[Any, Any]], manifest: Manifest) -> dict[tuple[str, str], str]:
    """The colour of each factor's level.  Raises ValueError."""
    result = {}
    for factor, colours in entries.items():
        refuse_unknown("colours", factor, manifest.factors)
        for value, colour in colours.items():
            level = show(value)
            refuse_unknown(f"colours.{factor}", level, [show(level) for level in manifest.factors[factor]])
            if not is_color_like(colour):
                raise ValueError(f"colours.{factor}.{level} is {colour}; write '#0072B2' or a name such as teal")
            result[factor, level] = to_hex(colour).upper()
    return result


def labels_of(entries: dict[Any, Any], manifest: Manifest) -> dict[str, str]:
    """The labels by name, that of a claim by claims.NAME.  Raises ValueError for labels that make two factors, levels,
    configurations or claims look alike."""
    usual = naming.paper_labels(manifest)
    names = [*usual, *(key.partition("=")[2] for key in usual if "=" in key)]
    labels = {}
    for key, text in entries.items():
        name = show(key)
        refuse_unknown("labels", name, [*names, *manifest.claims])
        label = visible(" ".join(setting(text).split()))
        if not label:
            raise ValueError(f"labels.{name} is empty; write a name")
        if label != usual.get(name, name):
            labels[name if name in names else f"claims.{name}"] = label
    renamed = replace(manifest, shown=shown_names(manifest, labels))
    groups = [[naming.named(renamed, name) for name in manifest.factors]]
    groups.append([claim_label(renamed, name) for name in manifest.claims])
    for factor, levels in manifest.factors.items():
        groups.append([naming.named(renamed, level, factor) for level in levels])
    groups.append([cell_label(renamed, cell) for cell in manifest.cells])
    for group in groups:
        for name in group:
            if labels and group.count(name) > 1:
                raise ValueError(f"labels give several the same name, {name}; write different ones")
    return labels


def shown_names(manifest: Manifest, labels: Mapping[str, str]) -> dict[str, str]:
    """What stands in place of factors, levels and metrics that do not show their keys: the user's labels, by level or
    factor=level, else the names that papers use."""
    names = naming.paper_labels(manifest) | revisions(manifest)
    for key in names:
        level = key.partition("=")[2]
        if level in labels:
            names[key] = labels[level]
    names |= labels
    return {key: name for key, name in names.items() if name != (key.partition("=")[2] or key)}


def revisions(manifest: Manifest) -> dict[str, str]:
    """By code=COMMIT, the commit with the first line of its message, which is the first note of a cell."""
    names = {}
    for cell in manifest.cells:
        commit = cell.levels.get(CODE)
        subject = cell.notes[0].partition(": ")[2] if cell.notes else ""
        if subject and cell.notes[0].startswith(f"{commit}: "):
            names[f"{CODE}={commit}"] = f"{commit} {textwrap.shorten(subject, SUBJECT, placeholder=' …')}"
    return names


def shown_cells(manifest: Manifest) -> list[str]:
    """The ids of the cells of figures: of a ladder, those at its learning rate."""
    return [cell.id for cell in manifest.cells if not at_other_rate(cell.levels.get(RUNG))]


def write_defaults(file: Path, manifest: Manifest, kinds: Iterable[str], colours: dict[tuple[str, str], str]) -> None:
    """Write the defaults of a study as comments, if the file does not exist; `kinds` are the study's figures."""
    if file.exists():
        return
    labels = naming.paper_labels(manifest)
    for name in manifest.claims:
        labels.setdefault(name, name)
    shades: dict[str, dict[str, str]] = {factor: {} for factor in manifest.factors}
    for (factor, level), colour in colours.items():
        shades[factor][level] = colour
    defaults = {"style": "default", "width": "text", "labels": labels, "colours": shades}
    defaults["subset"] = {"figures": list(kinds)}
    text = yaml.safe_dump(defaults, sort_keys=False, allow_unicode=True, width=10**6)
    lines = [f"# {line}\n" for line in str(text).splitlines()]
    write_atomic(file, "".join([HEADER, *lines]).encode())


def relabelled(study: Study, names: Mapping[str, str]) -> Study:
    """The study with these names of factors, levels and metrics; columns and ids keep their keys."""
    manifest = replace(study.manifest, shown=dict(names))
    cells = [replace(cell, label=cell_label(manifest, cell)) for cell in manifest.cells]
    labels = {cell.id: cell.label for cell in cells}
    tables = []
    for table in (study.runs, study.curves):
        if "label" in table:
            table = table.assign(label=table["cell"].map(labels).fillna(table["label"]))
        tables.append(table)
    beside = {role: relabelled(other, names) for role, other in study.beside.items()}
    return replace(study, manifest=replace(manifest, cells=cells), runs=tables[0], curves=tables[1], beside=beside)


def cell_label(manifest: Manifest, cell: Cell) -> str:
    """A cell's label with the names that are shown: what it changes, or all of its levels."""
    if cell.label == BASE or not cell.levels:
        return cell.label
    change = evidence.changes(manifest).get(cell.id)
    if manifest.design in ("grid", "ladder") or len(manifest.factors) < 2 or change is None:
        return " + ".join(level_label(manifest, factor, level) for factor, level in cell.levels.items())
    label = naming.assigned(manifest, *change)
    return f"+ {label}" if manifest.design == "cumulative" else label


def level_label(manifest: Manifest, factor: str, level: Any) -> str:
    """A level as part of a label: a variant by its name, a setting with the setting's."""
    if isinstance(level, str) and "." not in factor and factor != RUNG:
        return naming.named(manifest, level, factor)
    return naming.assigned(manifest, factor, level)
