"""What a manifest must be beside its types before anything is made of it: it may be somebody else's, or damaged."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from ablate.config.claim_relations import weighed
from ablate.config.designs import DESIGNS
from ablate.config.margin import fraction_of
from ablate.formatting import SPEED
from ablate.results.naming import measured_as
from ablate.results.records import Cell, Manifest


def flaws(manifest: Manifest) -> Iterator[str]:
    """What a manifest has and cannot have, each as the end of a sentence."""
    yield from (f"has no {name}" for name in ("cells", "runs") if not getattr(manifest, name))
    others = (manifest.confirms, manifest.tunes, manifest.placebo_of, manifest.exchange_of)
    named = (manifest.study, *others, manifest.placebos, manifest.exchange)
    yield from (f"names the study {name!r}" for name in named if name is not None and not is_name(name))
    for task in manifest.tasks.values():
        yield from [f"has no metrics of its task {task.name}"] * (not task.metrics)
        yield from [f"has no train_tokens of its task {task.name}"] * (task.train_tokens == 0)
    if manifest.design not in DESIGNS:
        yield f"has the design {manifest.design!r}, which is none of {', '.join(DESIGNS)}"
    if manifest.sequential and not manifest.sequential.looks:
        yield "has no looks in its sequential"
    if manifest.margin and isinstance(manifest.margin.value, str) and fraction_of(manifest.margin.value) is None:
        yield f"has the margin {manifest.margin.value!r}, which is no number and no share of the steps"
    yield from _of_factors(manifest)
    yield from _of_claims(manifest)
    seeds = (*manifest.seeds, *(run.seed for run in manifest.runs))
    yield from (f"has the seed {seed}, which is none" for seed in seeds if not 0 <= seed < 2**63)
    for cell in manifest.cells:
        yield from _of_cell(manifest, cell)
    for run in manifest.runs:
        parts = run.path.split("/")  # a folder of a cell and in it one of a run, and nothing outside
        if len(parts) != 2 or not all(map(is_name, parts)):
            yield f"has a run whose path is {run.path!r}, no folder of its results"
    known = {cell.id for cell in manifest.cells}
    yield from (f"has a run of a cell {run.cell}, which it has not" for run in manifest.runs if run.cell not in known)


def is_name(text: str) -> bool:
    """Whether a text can name a file or folder, and nothing outside the one that it is in."""
    return text not in ("", ".", "..") and not set(text) & set("/\\\0")


def outside(results: Path, paths: list[str]) -> str | None:
    """The first of some runs whose folder links lead out of the results, or None."""
    base, seen = os.path.realpath(results), dict[str, bool]()
    for path in paths:
        cell, _, key = path.partition("/")
        if cell not in seen:
            seen[cell] = _inside(results / "runs" / cell, base)
        folder = results / "runs" / cell / key
        if not seen[cell] or (folder.is_symlink() and not _inside(folder, base)):
            return path
    return None


def _inside(folder: Path, base: str) -> bool:
    return os.path.realpath(folder).startswith(base + os.sep)


def _of_factors(manifest: Manifest) -> Iterator[str]:
    factors = manifest.factors
    yield from (f"has no levels of its factor {name}" for name, levels in factors.items() if not levels)
    yield from (
        f"has a component {name}, which is no factor of it" for name in manifest.components if name not in factors
    )
    for name, level in manifest.reference.items():
        if level not in factors.get(name, ()):
            yield f"has the reference {name}={level}, which is no level of its factors"


def _of_claims(manifest: Manifest) -> Iterator[str]:
    measured = {name for task in manifest.tasks.values() for name in task.metrics}
    for name, entry in [*manifest.claims.items(), *manifest.withdrawn.items()]:
        for claim in (entry.claim, *(old.claim for old in entry.earlier)):
            yield from [f"has a claim {name} that {claim.flaw}"] if claim.flaw else []
        if name in manifest.claims and not all(weighed(entry.claim, manifest.cells)):
            yield f"has a claim {name} of which its cells say nothing"
        for metric in entry.claim.metrics:
            if measured_as(metric) not in measured and metric not in SPEED:
                yield f"has a claim {name} about {metric}, which none of its tasks measures"
    criterion = manifest.replicated.value if manifest.replicated else None
    if criterion:
        names, needed = criterion.of, criterion.needed
        lost = [name for name in names if name not in manifest.claims]
        yield from (f"counts as replicated by a claim {name}, which it has not" for name in lost)
        yield from [f"counts as replicated by {needed} of {len(names)} claims"] * (not 1 <= needed <= len(names))


def _of_cell(manifest: Manifest, cell: Cell) -> Iterator[str]:
    if not is_name(cell.name):
        yield f"has a cell with the name {cell.name!r}, which can name no folder"
    for size in ("params", "flops_per_token", "tokens_per_step"):
        if not 0 <= (getattr(cell, size) or 0) < math.inf:
            yield f"has a cell {cell.label} with the {size} {getattr(cell, size)}"
    if manifest.factors.keys() - cell.levels:
        yield f"has no levels of its cell {cell.label}"
    if cell.task not in manifest.tasks:
        yield f"has no task of its cell {cell.label}"
