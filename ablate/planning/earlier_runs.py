"""What earlier commands left on disk that a new plan has to mind: manifests, looks, seeds, results."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt
from ablate.config.schema import TUNING_SEEDS
from ablate.results.damage import why_without
from ablate.results.manifest import read_manifest
from ablate.results.records import Cell, Look, Manifest, PlannedRun
from ablate.results.run import Run, noted
from ablate.results.run_key import FORMAT, cell_id, run_key
from ablate.training.length_eval import untested


def read_earlier(results: Path, name: str) -> tuple[Manifest | None, list[str]]:
    """The study's manifest of an earlier command, or None, and what to say about a damaged one."""
    try:
        return as_now(read_manifest(results, name)), []
    except FileNotFoundError:
        return None, []
    except Corrupt as error:
        return None, [f"{error}; it is set aside and written anew, and earlier looks at this study are forgotten"]


def as_now(manifest: Manifest) -> Manifest:
    """A manifest with its cells by the names that they have now: an earlier release made them of paths of modules."""
    if manifest.format == FORMAT:
        return manifest
    new = {cell.id: _id_now(cell) for cell in manifest.cells}
    cells = [dataclasses.replace(cell, id=new[cell.id]) for cell in manifest.cells]
    runs = [dataclasses.replace(run, cell=new[run.cell]) for run in manifest.runs]
    return dataclasses.replace(manifest, cells=cells, runs=runs)


def _id_now(cell: Cell) -> str:
    try:
        return cell_id(cell.name, cell.config, cell.task)
    except (KeyError, TypeError, AttributeError):  # of a cell whose configuration lacks what every one has now
        return cell.id


def companions(
    results: Path, earlier: Manifest | None, rows: list[Cell], runs: list[PlannedRun], asked: Iterable[str]
) -> tuple[dict[str, str], list[str]]:
    """Placebo and exchange studies of earlier commands, not `asked` for by this one, that belong to its cells.

    Each holds a reference cell of this study, unchanged, with runs that are of this study, or would be at their seeds:
    what was measured on others, or by other code, says nothing of these.  Those of other code are noted.
    """
    references = {row.id: row for row in rows if row.reference}
    planned, found, notes = {run.path for run in runs}, {}, []
    for role, name in earlier.beside().items() if earlier else ():
        manifest = read_earlier(results, name)[0] if role not in asked else None
        own = {cell.id for cell in manifest.cells if cell.reference} if manifest else set()
        if not manifest or not own or not own <= references.keys():
            continue
        others = [run for run in manifest.runs if run.cell in own and run.path not in planned]
        if all(_is_of_now(run, references[run.cell], name) for run in others):
            found[role] = name
        else:
            notes.append(f"{name} was trained by other code or versions than this study is now; it is left aside")
    return found, notes


def _is_of_now(run: PlannedRun, row: Cell, name: str) -> bool:
    """Whether a run would have its key today: one of any study, or under reuse=none of the study `name` alone."""
    configs = [row.config | kept for kept in ({"reuse": "same"}, {"reuse": "none", "study": name})]
    return run.path.rpartition("/")[2] in {run_key(config, run.seed, row.task) for config in configs}


def other_looks(results: Path, name: str, runs: list[PlannedRun]) -> list[Look]:
    """Looks that other studies took at the cells of this one: seeds added after them were added after a look, too.

    Who saw a single cell of several, the common reference say, has seen no comparison of this study.  A run that is
    trained again, under reuse=none say, has been seen: its numbers are the same.
    """
    ours, found = {run.path for run in runs} | {(run.cell, run.seed) for run in runs}, []
    least = min(2, len({run.cell for run in runs}))
    for file in sorted(results.glob("studies/*/manifest.json")):
        other = read_earlier(results, file.parent.name)[0] if file.parent.name != name else None
        if other is None:
            continue
        known = [run for run in other.runs if ours & {run.path, (run.cell, run.seed)}]
        count = Counter(run.seed for run in known)
        shared = {seed for seed, cells in count.items() if cells >= least}
        for look in other.looks:
            seeds = sorted(shared.intersection(look.seeds))
            if seeds and look.study is None:
                found.append(dataclasses.replace(look, seeds=seeds, study=other.study))
    return found


def same_runs(results: Path, runs: list[PlannedRun]) -> list[PlannedRun]:
    """Runs in any study's manifest of these cells with these seeds, of other code or under reuse=none, too."""
    ours = {(run.cell, run.seed) for run in runs}
    manifests = (read_earlier(results, file.parent.name)[0] for file in results.glob("studies/*/manifest.json"))
    return [run for known in manifests if known for run in known.runs if (run.cell, run.seed) in ours]


def choose_seeds(
    results: Path, settings: dict[str, Any], base: str, earlier: Manifest | None, names: list[str]
) -> list[int]:
    """The seeds that the command asks for; a confirmation takes the first that were never trained for these cells."""
    if not settings["confirm"]:
        seeds = settings["seeds"]
        return list(range(seeds)) if isinstance(seeds, int) else sorted(seeds)
    if earlier:
        return earlier.seeds
    confirmed = read_earlier(results, base)[0]
    used = set(confirmed.seeds if confirmed else ())
    for folder in (path for name in set(names) for path in (results / "runs" / name).glob("s*-*")):
        used |= {int(number) for number in re.findall(r"^s(\d+)-", folder.name)}
    first = max((seed for seed in used if seed not in TUNING_SEEDS), default=-1) + 1
    return list(range(first, first + settings["confirm"]))


def status_of(results: Path, path: str) -> tuple[str, list[str]]:
    """How a run ended, or missing; a corrupt result counts as missing and is noted."""
    result, wrong = noted(Run(results, path).result)
    return result.status if result else "missing", [f"{why}; that run is trained again" for why in wrong]


def without_weights(results: Path, statuses: dict[str, str]) -> list[str]:
    """A sentence for each reason that runs are done and have no weights."""
    done = [Run(results, path) for path, status in statuses.items() if status == "done"]
    bare = Counter(why_without(run.result(), run.weights_file) for run in done if not run.weights_file.exists())
    return [
        f"{n} of these runs ended without weights ({why}), and are not trained again for them"
        for why, n in bare.items()
    ]


def to_test(results: Path, manifest: Manifest, statuses: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Status "untested" of each run that is done and whose weights are to be tested at lengths that it lacks; notes."""
    lack = untested(results, manifest, statuses)
    bare = [path for path in lack if not Run(results, path).weights_file.exists()]
    kept, notes = [path for path in lack if path not in bare], []
    if kept:
        notes.append(f"{len(kept)} of these runs are done; their weights are tested at new eval.lengths")
    if bare:
        first = Run(results, bare[0])
        notes.append(
            f"eval.lengths: {len(bare)} of these runs have no weights to test (the first "
            f"{why_without(first.result(), first.weights_file)}); leave lengths out, or move such runs away to train "
            f"them again: {first.folder}"
        )
    return dict.fromkeys(kept, "untested"), notes
