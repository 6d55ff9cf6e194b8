"""How the cells of foreign runs hang together: reference, design, order of levels, what cells are called."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any, NamedTuple

from ablate import evidence
from ablate.config.errors import Refused
from ablate.config.schema import Config
from ablate.format import show
from ablate.results.records import Cell, Manifest
from analysis.sources.request import Asked, Described
from analysis.sources.study_file import level_of

Levels = dict[str, Any]
FEW = 4  # factors that the label of a reference spells out
BASE = "base"  # its label where there are more
AROUND = ("one_at_a_time", "leave_one_out")  # designs whose cells all differ from the reference in one factor


class Layout(NamedTuple):
    """Levels by cell, the factors with their levels in order, the reference's levels, the design."""

    levels: dict[str, Levels]
    factors: dict[str, list[Any]]
    reference: Levels
    design: str


def arrange(levels: dict[str, Levels], asked: Asked) -> Layout:
    """The layout that was asked for, or else one that the cells show.  Raises `Refused`."""
    described = asked.described
    factors = _ordered(levels, described)
    reference = _reference(levels, factors, asked)
    if described.design in ("cumulative", "leave_one_out"):  # levels from the reference, or to it
        for name in reference.keys() - described.factors.keys():
            factors[name].sort(key=lambda level: (level == reference[name]) == (described.design == "leave_one_out"))
    made = Layout(levels, factors, reference, described.design or _shown(levels, reference))
    if described.design:
        if wrong := _contradiction(made):
            raise Refused(f"{described.file}: design: {described.design}: {wrong}")
        return made
    return made if made.design else _merged(made)


def _ordered(levels: dict[str, Levels], described: Described) -> dict[str, list[Any]]:
    """The levels of each factor, in the order of the study file, else in that of the runs."""
    found = {}
    for name in next(iter(levels.values())):
        known = list(dict.fromkeys(each[name] for each in levels.values()))
        written = [level_of(text, known) for text in described.factors.get(name, ())]
        for absent in (level for level in written if level not in known):
            there = ", ".join(map(show, known))
            raise Refused(f"{described.file}: factors.{name}: no run has the level {absent}; there are {there}")
        if written and (left := [level for level in known if level not in written]):
            raise Refused(f"{described.file}: factors.{name}: runs have the level {show(left[0])}, too; add it")
        if twice := next((level for i, level in enumerate(written) if level in written[:i]), None):
            raise Refused(
                f"{described.file}: factors.{name}: has {show(twice)} twice, spelled differently; write it once"
            )
        found[name] = written or known
    return found


def _reference(levels: dict[str, Levels], factors: dict[str, list[Any]], asked: Asked) -> Levels:
    """The levels that differences are measured against: those of the first cell that has the levels asked for.

    Where all cells are to differ from it in one factor, of the first such cell.
    """
    every = list(levels.values())
    if lost := [name for name in asked.within if name not in every[0]]:
        raise Refused(f"{lost[0]} is no factor of these runs; the factors are {', '.join(every[0])}")
    wanted = _wanted(factors, asked)
    fitting = [each for each in every if all(each[name] == level for name, level in wanted.items())]
    if not fitting:
        told = ",".join(f"{name}={show(level)}" for name, level in wanted.items())
        raise Refused(f"{_where(asked, '')} {told}: no run has all of these levels")
    if asked.described.design == "cumulative":
        ordered = [name for name in factors if name in asked.described.factors]
        fitting.sort(key=lambda each: sum(factors[name].index(each[name]) for name in ordered))
    compared = [[name for name in each if name not in asked.within] for each in fitting]
    if not compared[0]:
        raise Refused(f"--within {','.join(asked.within)}: no factor is left to compare")
    found = [{name: each[name] for name in names} for each, names in zip(fitting, compared, strict=True)]
    around = (each for each in found if asked.described.design in AROUND and _shown(levels, each) == "one_at_a_time")
    return next(around, found[0])


def _wanted(factors: dict[str, list[Any]], asked: Asked) -> Levels:
    """The levels of the reference that the command line asks for, and beside them those of the study file."""
    found = {}
    for name, text in (dict(asked.described.reference) | dict(asked.reference)).items():
        where = _where(asked, name)
        if name not in factors:
            raise Refused(f"{where}: {name} is no factor of these runs; the factors are {', '.join(factors)}")
        found[name] = level_of(text, factors[name])
        if found[name] not in factors[name]:
            there = ", ".join(map(show, factors[name]))
            raise Refused(f"{where} {name}={text}: there is no such level; there are {there}")
    return found


def _where(asked: Asked, name: str) -> str:
    """Who says what the reference's level of a factor is, or of any."""
    typed = name in dict(asked.reference) if name else asked.reference
    return "--reference" if typed else f"{asked.described.file}: reference"


def _shown(levels: dict[str, Levels], reference: Levels) -> str:
    """The design that cells show: `grid` where every combination of the compared levels is there in each stratum,
    `one_at_a_time` where each cell differs from the reference in one factor; "" where they show none.
    """
    if _lacking(levels, reference) is None:
        return "grid"
    base = reference.items()
    changed = [sum(each[name] != level for name, level in base) for each in levels.values()]
    return "one_at_a_time" if max(changed) == 1 else ""


def _strata(levels: dict[str, Levels], reference: Levels) -> list[list[str]]:
    """The cells that have the same levels of the factors that are not compared."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for cell, own in levels.items():
        found.setdefault(outside(own, reference), []).append(cell)
    return list(found.values())


def outside(levels: Levels, reference: Levels) -> tuple[Any, ...]:
    """A cell's levels of the factors that are not compared, which the cells of a stratum share."""
    return tuple(level for name, level in levels.items() if name not in reference)


def _lacking(levels: dict[str, Levels], reference: Levels) -> Levels | None:
    """A combination of the compared levels that a stratum lacks, although it has each of them; None in a grid."""
    for cells in _strata(levels, reference):
        there = {tuple(levels[cell][name] for name in reference): None for cell in cells}
        known = [dict.fromkeys(column) for column in zip(*there, strict=True)]
        if lost := next((row for row in itertools.product(*known) if row not in there), None):
            return dict(zip(reference, lost, strict=True))
    return None


def _contradiction(layout: Layout) -> str:
    """Why the cells are not of the design that the study file says; nothing where they are."""
    if layout.design == "grid":
        lost = _lacking(layout.levels, layout.reference)
        return f"no run has {label_of(lost)}; leave design out, or write another" if lost else ""
    manifest = manifest_of(layout, {cell: label_of(own) for cell, own in layout.levels.items()})
    if layout.design == "fractional":
        clear = {contrast.factor for contrast in evidence.contrasts(manifest) if contrast.kind == "main"}
        lost_factor = next((name for name in layout.reference if name not in clear), "")
        return f"the effect of {lost_factor} is mixed with others in these runs" if lost_factor else ""
    changed = evidence.changes(manifest)
    for cells in _strata(layout.levels, layout.reference):
        alone = [cell for cell in cells if cell not in changed]
        if others := [
            label_of(layout.levels[cell]) for cell in alone if not is_base(layout.levels[cell], layout.reference)
        ]:
            if layout.design in AROUND:
                return f"{others[0]} does not differ in one factor from the reference, {label_of(layout.reference)}"
            told = f"{others[0]} is no change of one factor of the cell before it"
            return f"{told}; write factors with the levels of each in the order of the steps, the reference's first"
    return ""


def is_base(levels: Levels, reference: Levels) -> bool:
    """Whether a cell with these levels is what the cells of its stratum are measured against."""
    return all(levels[name] == level for name, level in reference.items())


def _merged(layout: Layout) -> Layout:
    """All cells as levels of one factor, `variant`, so that each is compared with the reference."""
    reference = layout.reference
    called = distinct([{name: own[name] for name in reference} for own in layout.levels.values()])
    levels = {
        cell: {"variant": variant} | {name: level for name, level in own.items() if name not in reference}
        for (cell, own), variant in zip(layout.levels.items(), called, strict=True)
    }
    variants = list(dict.fromkeys(called))
    outside = {name: known for name, known in layout.factors.items() if name not in reference}
    base = next(levels[cell]["variant"] for cell, own in layout.levels.items() if is_base(own, reference))
    return Layout(levels, {"variant": variants} | outside, {"variant": base}, "grid")


def manifest_of(layout: Layout, labels: dict[str, str]) -> Manifest:
    """The manifest of a layout's cells: what contrasts are made of."""
    return Manifest(
        study="",
        design=layout.design,
        factors=layout.factors,
        components=[],
        reference=layout.reference,
        seeds=[],
        looks=[],
        tasks={},
        cells=[cell_of(cell, labels[cell], own, layout.reference) for cell, own in layout.levels.items()],
        runs=[],
        units={},
    )


def cell_of(name: str, label: str, levels: Levels, reference: Levels) -> Cell:
    """A cell of which no more than its levels is known."""
    return Cell(
        id=name,
        name=label,
        label=label,
        levels=levels,
        reference=is_base(levels, reference),
        params=math.nan,
        params_vs_reference=math.nan,
        flops_per_token=math.nan,
        shared_draws=math.nan,
        batches="",
        task="",
        config=Config(),
    )


def label_of(levels: Levels) -> str:
    """A cell's levels: variants by their name, numbers and dotted keys with their key."""
    return " + ".join(
        level if isinstance(level, str) and "." not in name else f"{name}={show(level)}"
        for name, level in levels.items()
    )


def distinct(rows: list[Levels]) -> list[str]:
    """The label of each row of levels; of rows that differ and would be called the same, with every key, as JSON."""
    called: dict[str, set[tuple[Any, ...]]] = {}
    for row in rows:
        called.setdefault(label_of(row), set()).add(tuple(row.values()))
    spelled = [
        ", ".join(f"{name}={json.dumps(level, ensure_ascii=False)}" for name, level in row.items()) for row in rows
    ]
    return [
        plain if len(called[plain]) == 1 else full for plain, full in zip(map(label_of, rows), spelled, strict=True)
    ]


def labels_of(layout: Layout, given: dict[str, set[str]]) -> dict[str, str]:
    """What cells are called: as `given`, where it gives each one label of its own; else by their levels.

    In designs that change one factor at a time a cell is called by its change, its reference by all levels.
    """
    alone = [next(iter(names)) for names in given.values() if len(names) == 1]
    if len(alone) == len(layout.levels) == len(set(alone)) and all(alone):
        return dict(zip(given, alone, strict=True))
    full = dict(zip(layout.levels, distinct(list(layout.levels.values())), strict=True))
    if (
        layout.design in ("grid", "fractional")
        or len(layout.factors) < 2
        or len(_strata(layout.levels, layout.reference)) > 1
    ):
        return full
    changed = evidence.changes(manifest_of(layout, full))
    steps = layout.design == "cumulative"
    found = {
        cell: f"+ {label_of({name: level})}" if steps else f"{name}={show(level)}"
        for cell, (name, level) in changed.items()
    }
    base = full if len(layout.factors) <= FEW else dict.fromkeys(full, BASE)
    return {cell: found.get(cell, base[cell]) for cell in layout.levels}
