"""How imported configurations are compared: the reference, the kind of design, the order of levels, labels."""

import dataclasses
import json
import math
import re
from typing import Any

from ablate import evidence, formatting
from ablate.config.errors import Refused
from ablate.formatting import is_number, show
from ablate.runs.records import Cell, Manifest
from analysis.sources import Request
from analysis.sources.roles import some

Levels = dict[str, Any]
TASK = "runs"
# Words of a level that is compared with, in lower case.
BASELINES = {"base", "baseline", "reference", "control", "default", "vanilla", "standard", "original", "main", "master"}
NOTHING = {"none", "null", "no", "off", "false", "0"}


def arrange(
    cells: dict[str, Levels], facts: dict[str, Levels], request: Request, reference_first: bool, doubts: list[str]
) -> Manifest:
    """The manifest, as yet without study, tasks and runs, of configurations with these levels and facts (sizes and
    batches) by id.  Without a design, or with grid, it is a grid if all combinations exist, else changes of one factor.
    `reference_first`: the first with the requested levels is the reference.  Adds to `doubts` where another reference
    could be meant.  Raises `Refused`."""
    factors = ordered_levels(cells, request)
    reference = choose_reference(cells, factors, request, reference_first, doubts)
    design = request.design
    if design in ("", "grid"):
        design = "grid" if is_grid(cells, reference) else "one_at_a_time"
    sizes = {}
    planned = []
    for name, levels in cells.items():
        is_reference = reference.items() <= levels.items()
        if is_reference:
            sizes[stratum_of(levels, reference)] = facts[name].get("params")
        label = label_of(levels)
        cell = Cell(id=name, name=label, label=label, task=TASK, levels=levels, reference=is_reference, **facts[name])
        planned.append(cell)
    for i, cell in enumerate(planned):
        size = sizes.get(stratum_of(cell.levels, reference))
        if size and cell.params is not None:
            planned[i] = dataclasses.replace(cell, params_vs_reference=cell.params / size - 1)
    if len({cell.label for cell in planned}) < len(planned):
        planned = [dataclasses.replace(cell, name=cell.id, label=json.dumps(cell.levels)) for cell in planned]
    later: dict[str, Any] = {"components": [], "seeds": [], "looks": [], "tasks": {}, "runs": []}
    manifest = Manifest(study="", design=design, factors=factors, reference=reference, cells=planned, **later)
    changed = evidence.changes(manifest)
    odd = [cell.label for cell in planned if not cell.reference and cell.id not in changed]
    if odd and design != "grid":
        what = f"{odd[0]} does not differ in one factor from the reference, or from the configuration before it"
        how = "compare by one column that names them, --factors COLUMN, or name design and factors in a study file"
        raise Refused(f"{formatting.listed(factors)} form no {design}: {what}; {how}")
    return manifest


def ordered_levels(cells: dict[str, Levels], request: Request) -> dict[str, list[Any]]:
    """The levels of each factor, in the order of the study file, or else of the runs.  Raises `Refused`."""
    factors = {}
    for name in next(iter(cells.values())):
        levels = list(dict.fromkeys(levels_of_cell[name] for levels_of_cell in cells.values()))
        written = [level_of(text, levels) for text in request.levels.get(name, levels)]
        if len(written) != len(levels) or set(written) != set(levels):
            there = some(map(show, levels))
            raise Refused(f"{request.study_yaml}: factors.{name}: write each level of the runs once; they are {there}")
        factors[name] = written
    return factors


def number_of(text: Any) -> Any:
    """A text as the number that it is; the text itself if it is none."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def level_of(text: Any, levels: list[Any]) -> Any:
    """The level that a text stands for, as 1e-3 does for 0.001; the text itself if it is none."""
    for level in levels:
        if text == show(level) or (is_number(level) and number_of(text) == level):
            return level
    return text


def choose_reference(
    cells: dict[str, Levels], factors: dict[str, list[Any]], request: Request, reference_first: bool, doubts: list[str]
) -> Levels:
    """The levels that are compared with: those that the user named, else the first of a study file, else one called a
    baseline; where configurations form no grid, preferably those of one from which all others differ in one factor.
    Raises `Refused`."""
    named = {name: level_of(text, factors.get(name, [])) for name, text in request.reference}
    for name in (*named, *request.within):
        if name not in factors:
            raise Refused(f"{name} is no factor of these runs; the factors are {some(factors, name)}")
    for name, level in named.items():
        if level not in factors[name]:
            there = some(map(show, factors[name]), show(level))
            raise Refused(f"reference: {name}={show(level)}: there is no such level; there are {there}")
    compared = [name for name in factors if name not in request.within]
    candidates = [{name: cell[name] for name in compared} for cell in cells.values() if named.items() <= cell.items()]
    if not compared:
        raise Refused("--within: no factor is left to compare")
    if not candidates:
        raise Refused(f"reference: no run has all of {label_of(named)}")
    likely = {}
    for name in compared:
        listed = factors[name][:1] if name in request.levels else baselines(factors[name])
        if len(listed) == 1:
            likely[name] = listed[0]
    if reference_first:
        likely = candidates[0]

    centres = []
    if request.design != "cumulative" and not reference_first:
        centres = [levels for levels in candidates if is_around(cells, levels)]
    reference = max(centres or candidates, key=lambda levels: len(levels.items() & likely.items()))
    unnamed = [name for name in compared if name not in named]
    open_factors = [name for name in unnamed if len(factors[name]) > 2 and name not in likely]
    if request.design or reference_first:
        return reference
    if unnamed and not is_grid(cells, reference):
        doubts.append(f"{formatting.listed(compared)} form no grid, and the reference is not named")
    elif open_factors:
        doubts.append(f"any value of {formatting.listed(open_factors)} could be the reference")
    return reference


def baselines(levels: list[Any]) -> list[Any]:
    """The levels that are called a baseline, or else that say that something is absent."""
    called = [level for level in levels if BASELINES & {*re.split(r"[^a-z0-9]+", show(level).lower())}]
    return called or [level for level in levels if show(level).lower() in NOTHING]


def stratum_of(levels: Levels, reference: Levels) -> tuple[Any, ...]:
    """The levels that are not compared: effects are given at each of them."""
    return tuple(level for name, level in levels.items() if name not in reference)


def is_grid(cells: dict[str, Levels], reference: Levels) -> bool:
    """Whether there are all combinations of levels, in each stratum of those that it has."""
    strata = formatting.grouped((stratum_of(levels, reference), levels) for levels in cells.values())
    for stratum in strata.values():
        counts = [len({levels[name] for levels in stratum}) for name in reference]
        if len(stratum) < math.prod(counts):
            return False
    return True


def is_around(cells: dict[str, Levels], reference: Levels) -> bool:
    """Whether each configuration differs from the reference in at most one of the compared factors."""
    return all(len(reference.items() - levels.items()) < 2 for levels in cells.values())


def label_of(levels: Levels) -> str:
    """A configuration's levels: texts alone, numbers and those of dotted keys with their key."""
    words = []
    for name, level in levels.items():
        is_alone = isinstance(level, str) and "." not in name
        words.append(level if is_alone else f"{name}={show(level)}")
    return " + ".join(words)
