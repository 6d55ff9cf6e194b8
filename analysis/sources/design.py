"""The design of imported runs: reference, kind of design, order of levels, labels of cells."""

import dataclasses
import itertools
import json
from collections import Counter
from typing import Any

from ablate import evidence
from ablate.config.errors import Refused
from ablate.formatting import show
from ablate.runs.records import Cell, Manifest
from analysis.sources import Request, StudyDescription
from analysis.sources.columns import some
from analysis.sources.study_file import level_of

Levels = dict[str, Any]
TASK = "runs"
FEW = 4  # factors up to which the label of a reference lists its levels
BASE = "base"  # its label if there are more
AROUND = ("one_at_a_time", "leave_one_out")  # designs whose cells differ from the reference in one factor


def arrange(levels: dict[str, Levels], facts: dict[str, Any], given: dict[str, set[str]], request: Request) -> Manifest:
    """A manifest of cells with these levels, facts (sizes and batches) and `given` labels, in the design of the study
    file or an inferred one: a grid, one factor at a time, or else one factor, `variant`.  Raises `Refused`."""
    described = request.described
    factors = _ordered(levels, described)
    reference = _reference(levels, factors, request)
    if described.design in ("cumulative", "leave_one_out"):  # the reference's level is first, or last
        for name in reference.keys() - described.factors.keys():
            factors[name].sort(key=lambda level: (level == reference[name]) == (described.design == "leave_one_out"))
    planned = []
    for name, own in levels.items():
        known = facts[name] | {"levels": own, "reference": reference.items() <= own.items()}
        planned.append(Cell(id=name, name=name, label=label_of(own), task=TASK, **known))
    given_later: dict[str, Any] = {"components": [], "seeds": [], "looks": [], "tasks": {}, "runs": []}
    design = described.design or "grid"
    made = Manifest(study="", design=design, factors=factors, reference=reference, cells=planned, **given_later)
    wrong = _contradiction(made)
    if wrong and described.design:
        raise Refused(f"{described.file}: design: {described.design}: {wrong}")
    if wrong:
        around = _is_around(levels, reference)
        made = dataclasses.replace(made, design="one_at_a_time") if around else _merged(made)
    found: dict[str, Cell] = {}
    for _, cells in evidence.strata(made):
        size = next((cell.params for cell in cells if cell.reference), None)
        for cell in cells:
            more = cell.params / size - 1 if cell.params is not None and size else None
            found[cell.id] = dataclasses.replace(cell, params_vs_reference=more)
    labels = labels_of(made, given)
    cells = [dataclasses.replace(found[c.id], name=labels[c.id], label=labels[c.id]) for c in made.cells]
    return dataclasses.replace(made, cells=cells)


def _ordered(levels: dict[str, Levels], described: StudyDescription) -> dict[str, list[Any]]:
    """The levels of each factor, in the order of the study file, or else of the runs."""
    found = {}
    for name in next(iter(levels.values())):
        where, known = f"{described.file}: factors.{name}", list(dict.fromkeys(each[name] for each in levels.values()))
        written = [level_of(text, known) for text in described.factors.get(name, ())]
        for absent in (level for level in written if level not in known):
            raise Refused(f"{where}: no run has the level {absent}; there are {', '.join(map(show, known))}")
        if written and (left := [level for level in known if level not in written]):
            raise Refused(f"{where}: runs have the level {show(left[0])}, too; add it")
        if twice := next((level for i, level in enumerate(written) if level in written[:i]), None):
            raise Refused(f"{where}: has {show(twice)} twice, spelled differently; write it once")
        found[name] = written or known
    return found


def _reference(levels: dict[str, Levels], factors: dict[str, list[Any]], request: Request) -> Levels:
    """The levels of the reference: of the first cell with the requested levels.  In designs around the reference, of
    the first such cell from which all others differ in one factor."""
    every = list(levels.values())
    if lost := [name for name in request.within if name not in every[0]]:
        raise Refused(f"--within {lost[0]}: it is no factor of these runs; the factors are {some(every[0], lost[0])}")
    wanted = _wanted(factors, request)
    fitting = [each for each in every if wanted.items() <= each.items()]
    if not fitting:
        where = "--reference" if request.reference else f"{request.described.file}: reference"
        levels_asked = ",".join(f"{name}={show(level)}" for name, level in wanted.items())
        raise Refused(f"{where} {levels_asked}: no run has all of these levels")
    design = request.described.design
    if design == "cumulative":
        ordered = [name for name in factors if name in request.described.factors]
        fitting.sort(key=lambda each: sum(factors[name].index(each[name]) for name in ordered))
    found = [{name: level for name, level in each.items() if name not in request.within} for each in fitting]
    if not found[0]:
        raise Refused(f"--within {','.join(request.within)}: no factor is left to compare")
    return next((each for each in found if design in AROUND and _is_around(levels, each)), found[0])


def _wanted(factors: dict[str, list[Any]], request: Request) -> Levels:
    """The requested levels of the reference, from the command line or else the study file."""
    found, typed = {}, dict(request.reference)
    for name, text in (request.described.reference | typed).items():
        where = "--reference" if name in typed else f"{request.described.file}: reference"
        if name not in factors:
            raise Refused(f"{where}: {name} is no factor of these runs; the factors are {some(factors, name)}")
        found[name] = level_of(text, factors[name])
        if found[name] not in factors[name]:
            there = some(map(show, factors[name]), text)
            raise Refused(f"{where} {name}={text}: there is no such level; there are {there}")
    return found


def _is_around(levels: dict[str, Levels], reference: Levels) -> bool:
    """Whether each cell differs from the reference in at most one of the compared factors."""
    return all(sum(each[name] != level for name, level in reference.items()) < 2 for each in levels.values())


def _contradiction(manifest: Manifest) -> str:
    """Why the cells do not form the manifest's design; "" if they do."""
    design, reference = manifest.design, manifest.reference
    if design == "grid":
        for _, cells in evidence.strata(manifest):  # each has every combination of the levels that it has
            there = {tuple(cell.levels[name] for name in reference) for cell in cells}
            known = (dict.fromkeys(cell.levels[name] for cell in cells) for name in reference)
            if lost := next((row for row in itertools.product(*known) if row not in there), None):
                missing = label_of(dict(zip(reference, lost, strict=True)))
                return f"no run has {missing}; leave design out, or write another"
        return ""
    changed = evidence.changes(manifest)
    other = next((cell.label for cell in manifest.cells if cell.id not in changed and not cell.reference), "")
    if other and design in AROUND:
        return f"{other} does not differ in one factor from the reference, {label_of(reference)}"
    order = "write factors with the levels of each in the order of the steps, the reference's first"
    return f"{other} is no change of one factor of the configuration before it; {order}" if other else ""


def _merged(manifest: Manifest) -> Manifest:
    """The manifest with all cells as levels of one factor, `variant`, each compared with the reference."""
    called = distinct([{name: cell.levels[name] for name in manifest.reference} for cell in manifest.cells])
    others = {name: known for name, known in manifest.factors.items() if name not in manifest.reference}
    cells = []
    for cell, variant in zip(manifest.cells, called, strict=True):
        own: Levels = {"variant": variant, **{name: cell.levels[name] for name in others}}
        cells.append(dataclasses.replace(cell, levels=own))
    factors: dict[str, list[Any]] = {"variant": list(dict.fromkeys(called))} | others
    reference = {"variant": next(cell.levels["variant"] for cell in cells if cell.reference)}
    return dataclasses.replace(manifest, design="grid", factors=factors, reference=reference, cells=cells)


def label_of(levels: Levels) -> str:
    """A cell's levels: variants by their name, numbers and dotted keys with their key."""
    alone = [name for name, level in levels.items() if isinstance(level, str) and "." not in name]
    return " + ".join(level if name in alone else f"{name}={show(level)}" for name, level in levels.items())


def distinct(rows: list[Levels]) -> list[str]:
    """The label of each row of levels; rows that differ but have the same label get every key, as JSON."""
    short = [label_of(row) for row in rows]
    long = [", ".join(f"{name}={json.dumps(row[name], ensure_ascii=False)}" for name in row) for row in rows]
    alike = Counter(label for label, _ in {*zip(short, long, strict=True)})
    return [whole if alike[label] > 1 else label for label, whole in zip(short, long, strict=True)]


def labels_of(manifest: Manifest, given: dict[str, set[str]]) -> dict[str, str]:
    """The labels of cells: the `given` ones, if each cell has exactly one and all differ; else their levels.  In
    designs that change one factor at a time a cell's label is its change, the reference's all levels."""
    cells, factors = manifest.cells, manifest.factors
    alone = {cell: next(iter(names)) for cell, names in given.items() if len(names) == 1}
    if len(alone) == len(cells) == len({*alone.values()}) and all(alone.values()):
        return alone
    full = dict(zip([cell.id for cell in cells], distinct([cell.levels for cell in cells]), strict=True))
    if manifest.design == "grid" or len(factors) < 2 or len(evidence.strata(manifest)) > 1:
        return full
    steps = manifest.design == "cumulative"
    labels = full if len(factors) <= FEW else dict.fromkeys(full, BASE)
    for cell, (name, level) in evidence.changes(manifest).items():
        labels[cell] = f"+ {label_of({name: level})}" if steps else f"{name}={show(level)}"
    return labels
