"""The design of imported runs: reference, kind of design, order of levels, labels of cells."""

import dataclasses
import itertools
import json
import re
from collections import Counter
from typing import Any

from ablate import evidence, formatting
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
# Words of a level that is compared with, in lower case.
BASELINES = {"base", "baseline", "reference", "control", "default", "vanilla", "standard", "original", "main", "master"}
ABSENT = {"none", "no", "off", "false", "0"}


def arrange(
    levels: dict[str, Levels],
    facts: dict[str, Any],
    labels: dict[str, set[str]],
    request: Request,
    is_ordered: bool,
    doubts: list[str],
) -> tuple[Manifest, Levels]:
    """A manifest of cells with these levels, facts (sizes and batches) and labels, and its reference by factor.  The
    design is that of the study file or an inferred one: a grid, one factor at a time, or else one factor, `variant`.
    `is_ordered`: the first cell is the reference.  Adds to `doubts` what nobody named and could be otherwise.  Raises
    `Refused`."""
    described = request.described
    factors = _ordered(levels, described)
    clues = {} if is_ordered or described.design else _clues(factors, request)
    reference = _reference(levels, factors, clues, request)
    is_grid = not _contradiction(_manifest("grid", factors, reference, levels, facts))
    design = described.design or "grid"
    if design in ("cumulative", "leave_one_out"):  # the reference's level is first, or last
        for name in reference.keys() - described.factors.keys():
            factors[name].sort(key=lambda level: (level == reference[name]) == (design == "leave_one_out"))
    named = {*dict(request.reference), *described.reference}
    centres = [name for name, cell in levels.items() if _is_around(levels, {key: cell[key] for key in reference})]
    if not is_grid and not described.design and not is_ordered and named < {*reference}:
        first = levels[centres[0]] if len(centres) == 1 else None
        if first is None or any(first[name] != reference[name] for name in reference):
            reference = reference if first is None else {name: first[name] for name in reference}
            doubts.append(f"{' and '.join(reference)} form no grid, and the reference is not named")
    elif not described.design and not is_ordered:
        open_ = [name for name in reference if len(factors[name]) > 2 and name not in named and name not in clues]
        if open_:
            doubts.append(f"any value of {formatting.listed(open_)} could be the reference")
    manifest = _manifest(design, factors, reference, levels, facts)
    wrong = _contradiction(manifest)
    if wrong and described.design:
        raise Refused(f"{described.file}: design: {design}: {wrong}")
    if wrong:
        around = _is_around(levels, reference)
        manifest = dataclasses.replace(manifest, design="one_at_a_time") if around else _merged(manifest)
    sized: dict[str, Cell] = {}
    for _, cells in evidence.strata(manifest):
        size = next((cell.params for cell in cells if cell.reference), None)
        for cell in cells:
            more = cell.params / size - 1 if cell.params is not None and size else None
            sized[cell.id] = dataclasses.replace(cell, params_vs_reference=more)
    text = labels_of(manifest, labels)
    cells = [dataclasses.replace(sized[c.id], name=text[c.id], label=text[c.id]) for c in manifest.cells]
    return dataclasses.replace(manifest, cells=cells), reference


def _manifest(
    design: str, factors: dict[str, list[Any]], reference: Levels, levels: dict[str, Levels], facts: dict[str, Any]
) -> Manifest:
    cells = []
    for name, own in levels.items():
        more = facts[name] | {"levels": own, "reference": reference.items() <= own.items()}
        cells.append(Cell(id=name, name=name, label=label_of(own), task=TASK, **more))
    later: dict[str, Any] = {"components": [], "seeds": [], "looks": [], "tasks": {}, "runs": []}
    return Manifest(study="", design=design, factors=factors, reference=reference, cells=cells, **later)


def _ordered(levels: dict[str, Levels], described: StudyDescription) -> dict[str, list[Any]]:
    """The levels of each factor, in the order of the study file, or else of the runs."""
    ordered = {}
    for name in next(iter(levels.values())):
        where = f"{described.file}: factors.{name}"
        there = list(dict.fromkeys(cell[name] for cell in levels.values()))
        written = [level_of(text, there) for text in described.factors.get(name, ())]
        for absent in (level for level in written if level not in there):
            raise Refused(f"{where}: no run has the level {absent}; there are {', '.join(map(show, there))}")
        left = [level for level in there if level not in written]
        if written and left:
            raise Refused(f"{where}: runs have the level {show(left[0])}, too; add it")
        twice = [level for i, level in enumerate(written) if level in written[:i]]
        if twice:
            raise Refused(f"{where}: has {show(twice[0])} twice, spelled differently; write it once")
        ordered[name] = written or there
    return ordered


def _clues(factors: dict[str, list[Any]], request: Request) -> Levels:
    """The level of each factor that is surely compared with: the first one that a study file lists, else the only one
    that is called a baseline, else the only one that says that something is absent."""
    clues = {}
    for name, levels in factors.items():
        if name in request.described.factors:
            clues[name] = levels[0]
            continue
        texts = {show(level).lower(): level for level in levels}
        called = [level for text, level in texts.items() if BASELINES & {*re.split(r"[^a-z0-9]+", text)}]
        absent = [level for text, level in texts.items() if text in ABSENT]
        for several in (called, absent):
            if len(several) == 1 and name not in clues:
                clues[name] = several[0]
    return clues


def _reference(levels: dict[str, Levels], factors: dict[str, list[Any]], clues: Levels, request: Request) -> Levels:
    """The levels of the reference: of the first cell with the requested levels, if possible also with the `clues`.  In
    designs around the reference, of the first such cell from which all others differ in one factor."""
    every = list(levels.values())
    lost = [name for name in request.within if name not in every[0]]
    if lost:
        raise Refused(f"--within {lost[0]}: it is no factor of these runs; the factors are {some(every[0], lost[0])}")
    wanted = _wanted(factors, request)
    fitting = [cell for cell in every if wanted.items() <= cell.items()]
    if not fitting:
        where = "--reference" if request.reference else f"{request.described.file}: reference"
        levels_asked = ",".join(f"{name}={show(level)}" for name, level in wanted.items())
        raise Refused(f"{where} {levels_asked}: no run has all of these levels")
    fitting.sort(key=lambda cell: -sum(cell[name] == level for name, level in clues.items()))
    design = request.described.design
    if design == "cumulative":
        ordered = [name for name in factors if name in request.described.factors]
        fitting.sort(key=lambda cell: sum(factors[name].index(cell[name]) for name in ordered))
    compared = [{name: level for name, level in cell.items() if name not in request.within} for cell in fitting]
    if not compared[0]:
        raise Refused(f"--within {','.join(request.within)}: no factor is left to compare")
    return next((cell for cell in compared if design in AROUND and _is_around(levels, cell)), compared[0])


def _wanted(factors: dict[str, list[Any]], request: Request) -> Levels:
    """The requested levels of the reference, from the command line or else the study file."""
    found = {}
    typed = dict(request.reference)
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
