"""figures.yaml: the user's changes for a paper; written once with the defaults, read at every analysis.

`relabelled` puts what is shown in place of factors, levels and metrics into the study, where `naming` and the labels of
cells find it: the names that papers use, or the user's labels.  Columns and ids keep their keys.  The other entries are
about figures.
"""

import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import yaml
from matplotlib.colors import is_color_like, to_hex

from ablate import evidence, formatting
from ablate.config.choices import unzipped
from ablate.config.errors import Corrupt, Refused
from ablate.config.files import parse_plain, read_regular
from ablate.config.ladder import RUNG, at_other_rate
from ablate.formatting import ACTING, instead, is_number, visible
from ablate.runs import naming
from ablate.runs.files import write_atomic
from ablate.runs.records import Cell, Manifest
from ablate.runs.study import Study

FILE = "figures.yaml"
TEMPLATES = Path(__file__).parents[1] / "templates"
LETTERS = 7.0  # points of titles and axis labels at which figures are laid out
NARROWEST, WIDEST = 2.5, 12.0
KEYS = ("style", "sort", "width", "caption", "labels", "order", "colours", "subset")
EDGES = r"(?:^|(?<=^\+ )|(?<= \+ )|(?<=, )){}(?=$| \+ |, )"  # matches a whole level within a cell's label
SUBSET = ("figures", "levels", "cells")


class Style(NamedTuple):
    """A template: widths of figures in inches, the default first; points of titles; least height over width."""

    widths: dict[str, float]
    letters: float = LETTERS
    shape: float = 0.0


# Of each template's style file: single is one of two columns, double both, text one-column text.
STYLES = {
    "default": Style({"text": 5.5, "single": 3.3, "double": 6.9}),
    "neurips": Style({"text": 5.5}, 8.0),
    "icml": Style({"single": 3.25, "double": 6.75}, 8.0),
    "acl": Style({"single": 3.03, "double": 6.3}, 8.0),
    "slides": Style({"slide": 13.333}, 17.0, 9 / 16),
}
CHOICES = {"style": [*STYLES], "sort": ["effect"]}  # entries that the command line can set, too
NONE: Mapping[str, str] = {}


@dataclass(frozen=True)
class Edits:
    """The entries of figures.yaml; levels are texts, and missing entries keep the study's values."""

    width: float = 5.5
    labels: dict[str, str] = field(default_factory=dict)
    order: dict[str, list[str]] = field(default_factory=dict)
    colours: dict[tuple[str, str], str] = field(default_factory=dict)
    figures: list[str] | None = None
    levels: dict[str, list[str]] = field(default_factory=dict)
    cells: list[str] | None = None
    caption: bool = False
    style: str = "default"
    sort: str | None = None

    @property
    def scale(self) -> float:
        """How many times as large as laid out the figures are written."""
        return STYLES[self.style].letters / LETTERS


def edits_of(file: Path, manifest: Manifest, kinds: list[str] | None = None, words: Mapping[str, str] = NONE) -> Edits:
    """The entries of `file`, or the defaults if it does not exist.  Raises `Refused`.  `kinds` are the valid names of
    figures; None accepts any.  `words` replace entries of the file."""
    try:
        given = parse_plain(read_regular(file), str(file))
    except (FileNotFoundError, NotADirectoryError):
        given = None
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror})") from None
    except Corrupt as error:
        raise Refused(f"{error}; delete it for the defaults") from None
    try:
        return _checked(_mapping(given, "the file") | dict(words), manifest, kinds)
    except ValueError as error:
        raise Refused(f"{file}: {error}") from None


def _checked(entries: dict[str, Any], manifest: Manifest, kinds: list[str] | None) -> Edits:
    subset = _mapping(entries.get("subset"), "subset")
    for keys, allowed, where in ((entries, KEYS, ""), (subset, SUBSET, "subset.")):
        if unknown := [key for key in keys if key not in allowed]:
            raise ValueError(f"unknown {where}{unknown[0]}; {instead(str(unknown[0]), allowed)}")
    cells = [written(cell) for cell in manifest.cells]
    if not isinstance(caption := entries.get("caption", False), bool):
        raise ValueError(f"caption is {_shown(caption)}; write true or false")
    for key, choices in CHOICES.items():
        if (value := entries.get(key)) is not None and value not in choices:
            raise ValueError(f"{key} is {_shown(value)}; {instead(str(value), choices)}")
    style = entries.get("style") or "default"
    edits = Edits(
        _width(entries.get("width"), STYLES[style].widths),
        _labels(_mapping(entries.get("labels"), "labels"), manifest),
        _levels(entries.get("order"), "order", manifest),
        _colours(_mapping(entries.get("colours"), "colours"), manifest),
        _names(subset.get("figures"), "subset.figures", kinds),
        _levels(subset.get("levels"), "subset.levels", manifest),
        _names(subset.get("cells"), "subset.cells", cells),
        caption,
        style,
        entries.get("sort"),
    )
    if not shown_cells(manifest, edits):
        raise ValueError("subset leaves no configuration; name levels and cells that go together")
    return edits


def shown_cells(manifest: Manifest, edits: Edits) -> list[str]:
    """The ids of the cells in the subset; without one, those of a ladder at its learning rate."""
    return [
        cell.id
        for cell in manifest.cells
        if (edits.cells is None or written(cell) in edits.cells)
        and (edits.cells or RUNG in edits.levels or not at_other_rate(cell.levels.get(RUNG)))
        and all(formatting.show(cell.levels.get(name)) in shown for name, shown in edits.levels.items())
    ]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise ValueError(f"{where} must be entries of the form `name: value`, not {_shown(value)}")
    return value or {}


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _width(value: Any, widths: dict[str, float]) -> float:
    if value is None or (isinstance(value, str) and value in widths):
        return widths[value or next(iter(widths))]
    if not is_number(value) or not NARROWEST <= value <= WIDEST:
        allowed = f"write {', '.join(widths)} or inches from {NARROWEST} to {WIDEST:g}"
        raise ValueError(f"width is {_shown(value)}; {allowed}")
    return float(value)


def _level(value: Any, factor: str, manifest: Manifest, where: str) -> str:
    """A level as text; numbers in any spelling, also 1e-3, which YAML reads as a string."""
    there = [formatting.show(level) for level in manifest.factors[factor]]
    text = formatting.show(value)
    if text not in there and isinstance(value, str):
        with contextlib.suppress(ValueError):
            text = formatting.show(float(value))
    if text not in there:
        raise ValueError(f"{where} has no level {formatting.show(value)}; {instead(text, there)}")
    return text


def _factor(name: Any, manifest: Manifest, where: str) -> str:
    if name not in manifest.factors:
        raise ValueError(f"{where} names {name}, which is no factor; {instead(str(name), manifest.factors)}")
    return str(name)


def _levels(value: Any, where: str, manifest: Manifest) -> dict[str, list[str]]:
    found = {}
    for name, levels in _mapping(value, where).items():
        factor = _factor(name, manifest, where)
        if not isinstance(levels, list) or not levels:
            raise ValueError(f"{where}.{factor} must be a list of levels, [a, b], not {_shown(levels)}")
        found[factor] = [_level(level, factor, manifest, f"{where}.{factor}") for level in levels]
    return found


def shown_names(manifest: Manifest, labels: Mapping[str, str]) -> dict[str, str]:
    """What stands in place of factors, levels and metrics that do not show their keys: the user's labels, by level or
    factor=level, else the names that papers use."""
    default = naming.paper_labels(manifest)
    by_level = {key: labels[level] for key in default if (level := key.partition("=")[2]) in labels}
    found = default | by_level | dict(labels)
    return {key: name for key, name in found.items() if name != (key.partition("=")[2] or key)}


def _labels(entries: dict[Any, Any], manifest: Manifest) -> dict[str, str]:
    """The labels by name; refuses labels that make two factors, levels of a factor, or cells look the same."""
    default, labels = naming.paper_labels(manifest), dict[str, str]()
    groups = [list(manifest.factors), *([key for key in default if key.startswith(f"{f}=")] for f in manifest.factors)]
    texts = {key: key.partition("=")[2] or key for group in groups for key in group}
    there = [*default, *texts.values()]
    for key, text in entries.items():
        name = formatting.show(key)
        if name not in there:
            raise ValueError(f"labels names {key}, which is no factor, level or metric; {instead(str(key), there)}")
        if not isinstance(text, str | int | float) or isinstance(text, bool):
            raise ValueError(f"labels.{name} must be a text, not {_shown(text)}")
        labels[name] = " ".join(str(text).split())
        if not labels[name]:
            raise ValueError(f"labels.{name} is empty; write a name")
        if hidden := ACTING.search(labels[name]):
            raise ValueError(f"labels.{name} holds {visible(hidden[0])}, an invisible character; leave it out")
    shown = shown_names(manifest, labels)
    named = [[(texts[key], shown.get(key, texts[key])) for key in group] for group in groups]
    for group in [*named, [(written(cell), cell_label(cell, shown)) for cell in manifest.cells]] * bool(labels):
        first: dict[str, str] = {}
        for name, text in group:
            if first.setdefault(text, name) != name:
                raise ValueError(f"labels give {first[text]} and {name} the same name, {text}; write different ones")
    return {name: text for name, text in labels.items() if text != default.get(name, name)}


def _colours(entries: dict[Any, Any], manifest: Manifest) -> dict[tuple[str, str], str]:
    found = {}
    for name, colours in entries.items():
        factor = _factor(name, manifest, "colours")
        for value, colour in _mapping(colours, f"colours.{factor}").items():
            level = _level(value, factor, manifest, f"colours.{factor}")
            if not is_color_like(colour):
                text = f"colours.{factor}.{level} is {_shown(colour)}"
                raise ValueError(f"{text}; write '#0072B2' or a name such as teal")
            found[factor, level] = to_hex(colour).upper()
    return found


def _names(value: Any, where: str, there: list[str] | None) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where} must be a list, [a, b], not {_shown(value)}")
    for name in value:
        if there is not None and name not in there:
            raise ValueError(f"{where} names {_shown(name)}; {instead(str(name), there)}")
    return value


def write_defaults(
    file: Path, manifest: Manifest, kinds: Iterable[str], colours: dict[tuple[str, str], str], words: Mapping[str, str]
) -> None:
    """Write the defaults as comments, or only `words` if the file exists; `kinds` are the study's figures."""
    if file.exists():
        text = re.sub(rf"^({'|'.join(words)}):.*\n?", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        text = "".join(f"{key}: {value}\n" for key, value in words.items()) + text
        if words:
            if re.search(r"^\{", text, re.MULTILINE):  # a line would not go with it
                raise Refused(f"{file} is one {{…}}; write {', '.join(words)} inside of it")
            write_atomic(file, text.encode())
        return
    factors = {name: [formatting.show(level) for level in levels] for name, levels in manifest.factors.items()}
    names = naming.paper_labels(manifest)
    loader = jinja2.FileSystemLoader(TEMPLATES)
    templates = jinja2.Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True)
    templates.filters |= {"yaml": _yaml, "row": lambda names: f"[{', '.join(map(_yaml, names))}]"}
    cells = [written(cell) for cell in manifest.cells[:24]]
    content = {"factors": factors, "names": names, "colours": colours, "kinds": kinds, "cells": cells}
    write_atomic(file, templates.get_template(FILE).render(content, styles=STYLES, words=words).encode())


def _yaml(text: str) -> str:
    """A text as one line of YAML that is read back as the same text."""
    plain = yaml.safe_dump(text, width=10**6, allow_unicode=True, default_flow_style=True).split("\n")[0]
    is_read_back = parse_plain(plain, text) == text  # not so for 1e-5, a number
    return plain if is_read_back and not any(mark in text for mark in ",[]{}#\n") else json.dumps(text)


def relabelled(study: Study, labels: Mapping[str, str]) -> Study:
    """The study with these names of factors, levels and metrics.  Each cell keeps its planned label as `written`."""
    changed = evidence.changes(study.manifest) if study.manifest.design == "cumulative" else {}
    by_id = {cell.id: cell_label(cell, labels, changed.get(cell.id)) for cell in study.manifest.cells}
    cells = [replace(cell, label=by_id[cell.id], written=written(cell)) for cell in study.manifest.cells]
    by_label = {written(cell): cell.label for cell in cells}
    siblings = {name: _sibling(each, labels, by_label) for name, each in study.beside.items()}
    manifest = replace(study.manifest, shown=dict(labels), cells=cells)
    runs, curves = (
        table.assign(label=table["cell"].map(by_id).fillna(table["label"])) if "label" in table else table
        for table in (study.runs, study.curves)
    )
    return replace(study, manifest=manifest, runs=runs, curves=curves, beside=siblings)


def written(cell: Cell) -> str:
    """A cell's planned label, by which users refer to it."""
    return cell.written or cell.label


def _sibling(study: Study, labels: Mapping[str, str], by_label: Mapping[str, str]) -> Study:
    """Exchange runs with these labels; their cells' labels are those of the study plus the change."""
    cells = []
    for cell in study.manifest.cells:
        whose = [name for name in by_label if cell.label == name or cell.label.startswith(f"{name}, ")]
        name = max(whose, key=len, default="")
        changed = cell.label.removeprefix(name)
        cells.append(replace(cell, label=by_label.get(name, "") + changed))
    return replace(study, manifest=replace(study.manifest, shown=dict(labels), cells=cells))


def cell_label(cell: Cell, labels: Mapping[str, str], changed: tuple[str, Any] | None = None) -> str:
    """A cell's label with the names of its levels, and of their factors, replaced as whole words in order: the first
    none of "none + none" is the first factor's.  `changed`: the factor and level of a label that has no other."""
    parts: dict[str, list[str]] = {}
    for factor, level in [changed] if changed else cell.levels.items():
        plain, text = formatting.show(level), str(level)  # a label may use Python's spelling: True, 1e-05
        found = _parts(factor, plain, labels)
        spellings = {plain: text, f"{factor}={plain}": f"{factor}={text}"} if text != plain else {}
        for form, name in (found | {text: found[key] for key, text in spellings.items() if key in found}).items():
            parts.setdefault(form, []).append(name)
    if not parts:
        return str(cell.label)
    form = EDGES.format(f"({'|'.join(map(re.escape, sorted(parts, key=len, reverse=True)))})")
    return re.sub(form, lambda f: names.pop(0) if len(names := parts[f[1]]) > 1 else names[0], str(cell.label))


def _parts(factor: str, level: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Replacements for the forms that a level can have in a label, alone or with its factor."""
    name, title = labels.get(f"{factor}={level}", labels.get(level, level)), labels.get(factor, factor)
    found = {level: name, f"{factor}={level}": naming.standing(title, factor, level, name)} if labels else {}
    if name != level and (alone := unzipped(factor, level)):  # factors that change together: any mix of the two forms
        forms = [(value, f"{member}={value}") for member, value in alone.items()]
        found |= {", ".join(mix): name for mix in itertools.product(*forms)}
    return found
