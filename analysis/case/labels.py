"""The names that a user gives to factors and levels: put into a study once, where everything that is shown reads them.

Keys stay: factors, levels, columns, ids.  What is made for people asks `naming.named`, and cells carry their labels.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

from ablate import formatting
from ablate.results.records import Cell
from ablate.results.study import Study

Labels = Mapping[str, str]
EDGES = r"(?:^|(?<=^\+ )|(?<= \+ )|(?<=, )){}(?=$| \+ |, )"  # between the levels that a cell is called by


def shown(study: Study, labels: Labels) -> Study:
    """The study as it is shown by these labels of factors and levels.

    Each cell keeps the label that it was planned with as `written`.
    """
    cells = [replace(cell, label=cell_label(cell, labels), written=written(cell)) for cell in study.manifest.cells]
    by_id = {cell.id: cell.label for cell in cells}
    by_label = {written(cell): cell.label for cell in cells}
    beside = {name: _beside(each, labels, by_label) for name, each in study.beside.items()}
    manifest = replace(study.manifest, shown=dict(labels), cells=cells)
    runs, curves = (
        table.assign(label=table["cell"].map(by_id).fillna(table["label"])) if "label" in table else table
        for table in (study.runs, study.curves)
    )
    return replace(study, manifest=manifest, runs=runs, curves=curves, beside=beside)


def written(cell: Cell) -> str:
    """A cell's label as it was planned, by which a user names it."""
    return cell.written or cell.label


def _beside(study: Study, labels: Labels, by_label: Mapping[str, str]) -> Study:
    """Placebos and exchange runs, whose cells are called by a cell of the study and by what is changed of it."""
    cells = []
    for cell in study.manifest.cells:
        whose = [name for name in by_label if cell.label == name or cell.label.startswith(f"{name}, ")]
        name = max(whose, key=len, default="")
        changed = cell.label.removeprefix(name)
        for kind in cell.levels.values():  # of a placebo, what is drawn anew
            changed = f", {labels.get(str(kind), kind)} drawn anew" if changed == f", {kind} drawn anew" else changed
        cells.append(replace(cell, label=by_label.get(name, "") + changed))
    return replace(study, manifest=replace(study.manifest, shown=dict(labels), cells=cells))


def cell_label(cell: Cell, labels: Labels) -> str:
    """A cell's label with the names of its own levels, and of their factors, replaced, each as a whole."""
    parts: dict[str, str] = {}
    for factor, level in cell.levels.items():
        parts |= _parts(factor, formatting.show(level), labels)
        plain, text = formatting.show(level), str(level)  # a label may spell it as Python does: True, 1e-05
        spellings = {plain: text, f"{factor}={plain}": f"{factor}={text}"} if text != plain else {}
        parts |= {text: parts[key] for key, text in spellings.items() if key in parts}
    if not parts:
        return str(cell.label)
    either = "|".join(map(re.escape, sorted(parts, key=len, reverse=True)))
    return re.sub(EDGES.format(f"({either})"), lambda found: parts[found[1]], str(cell.label))


def _parts(factor: str, level: str, labels: Labels) -> dict[str, str]:
    """How a level can stand in a label, alone or with its factor, and what stands there instead."""
    found, name = {}, labels.get(level, level)
    if name != level or factor in labels:
        found = {level: name, f"{factor}={level}": f"{labels.get(factor, factor)}={name}"}
    members, values = factor.split("+"), level.split("+")
    if level in labels and 1 < len(members) == len(values):  # of factors that change together: any mix of the two forms
        forms = [(value, f"{member}={value}") for member, value in zip(members, values, strict=True)]
        found |= {", ".join(mix): name for mix in itertools.product(*forms)}
    return found
