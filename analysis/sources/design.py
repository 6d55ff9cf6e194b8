"""How imported configurations are compared: the reference, the kind of design, labels."""

import math
import re
from dataclasses import replace
from typing import Any

from ablate.config.errors import Refused
from ablate.formatting import is_number, listed, show
from ablate.runs.records import Cell, Manifest
from analysis.sources import Request
from analysis.sources.roles import some

Levels = dict[str, Any]
Factors = dict[str, list[Any]]
# Words of a level that is compared with, in lower case.
BASELINES = {"base", "baseline", "reference", "control", "default", "vanilla", "standard", "original", "main", "master"}
NOTHING = {"none", "null", "no", "off", "false", "0"}


def arrange(cells: list[Cell], request: Request, doubts: list[str]) -> Manifest:
    """The manifest, as yet without study, tasks and runs: a grid if all combinations of levels exist, else changes of
    one factor.  Adds to `doubts` where another reference could be meant.  Raises `Refused`."""
    factors = {}
    for name in cells[0].levels:
        factors[name] = list(dict.fromkeys(cell.levels[name] for cell in cells))
    if len({cell.label for cell in cells}) < len(cells):
        raise Refused(f"two configurations of {listed(factors)} have the same name; write other values")
    reference = choose_reference(cells, factors, request, doubts)
    design = "grid" if is_grid(cells, factors) else "one_at_a_time"
    if design != "grid" and not is_centre(reference, cells):
        why = (
            f"{listed(factors)} form no grid, and some configurations differ from {reference.label} in several of them"
        )
        raise Refused(f"{why}; compare by one column that names the configurations: --factors COLUMN")
    size = reference.params
    planned = []
    for cell in cells:
        change = cell.params / size - 1 if size and cell.params is not None else None
        planned.append(replace(cell, reference=cell is reference, params_vs_reference=change))
    later: dict[str, Any] = {"components": [], "seeds": [], "looks": [], "tasks": {}, "runs": []}
    return Manifest(study="", design=design, factors=factors, reference=reference.levels, cells=planned, **later)


def level_of(text: str, levels: list[Any]) -> Any:
    """The level that a text stands for, as 1e-3 does for 0.001; the text itself if it is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    for level in levels:
        if text == show(level) or (is_number(level) and value == level):
            return level
    return text


def choose_reference(cells: list[Cell], factors: Factors, request: Request, doubts: list[str]) -> Cell:
    """The cell that is compared with: the one with the levels that the user named and, in factors that nobody named,
    with levels that are called a baseline.  Where cells form no grid, preferably one from which all others differ in
    one factor.  Raises `Refused`."""
    named = {name: level_of(text, factors.get(name, [])) for name, text in request.reference}
    for name, level in named.items():
        if name not in factors:
            raise Refused(f"{name} is no factor of these runs; the factors are {some(factors, name)}")
        if level not in factors[name]:
            there = some(map(show, factors[name]), show(level))
            raise Refused(f"reference: {name}={show(level)}: there is no such level; there are {there}")
    candidates = [cell for cell in cells if named.items() <= cell.levels.items()]
    if not candidates:
        raise Refused(f"reference: no run has all of {label_of(named)}")
    likely = {}
    for name, levels in factors.items():
        called = baselines(levels)
        if len(called) == 1:
            likely[name] = called[0]
    centres = [cell for cell in candidates if is_centre(cell, cells)]
    reference = max(centres or candidates, key=lambda cell: len(cell.levels.items() & likely.items()))
    unnamed = [name for name in factors if name not in named]
    unclear = [name for name in unnamed if len(factors[name]) > 2 and name not in likely]
    if unnamed and not is_grid(cells, factors):
        doubts.append(f"{listed(factors)} form no grid, and the reference is not named")
    elif unclear:
        doubts.append(f"any value of {listed(unclear)} could be the reference")
    return reference


def baselines(levels: list[Any]) -> list[Any]:
    """The levels that are called a baseline, or else that say that something is absent."""
    called = [level for level in levels if BASELINES & {*re.split(r"[^a-z0-9]+", show(level).lower())}]
    return called or [level for level in levels if show(level).lower() in NOTHING]


def is_grid(cells: list[Cell], factors: Factors) -> bool:
    """Whether there is a cell for each combination of levels."""
    return len(cells) == math.prod(len(levels) for levels in factors.values())


def is_centre(reference: Cell, cells: list[Cell]) -> bool:
    """Whether each cell differs from this one in at most one factor."""
    return all(len(reference.levels.items() - cell.levels.items()) < 2 for cell in cells)


def label_of(levels: Levels) -> str:
    """A configuration's levels: texts alone, numbers and those of dotted keys with their key."""
    words = []
    for name, level in levels.items():
        is_alone = isinstance(level, str) and "." not in name
        words.append(level if is_alone else f"{name}={show(level)}")
    return " + ".join(words)
