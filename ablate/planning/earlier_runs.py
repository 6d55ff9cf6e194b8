"""What earlier commands left on disk that a new plan has to mind: manifests, looks, seeds, results."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ablate.config.errors import Corrupt
from ablate.config.schema import TUNING_SEEDS
from ablate.planning.study import CheckedStudy
from ablate.results.damage import why_without
from ablate.results.lengths import untested
from ablate.results.manifest import read_manifest
from ablate.results.records import Cell, Look, Manifest, PlannedRun
from ablate.results.run import Run
from ablate.results.run_key import run_key


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What earlier commands left on disk: the manifest of one study, and those of all others beside it."""

    results: Path
    name: str
    manifest: Manifest | None  # None where there is none, or a damaged one
    notes: list[str]  # what to say about a damaged one

    @property
    def looks(self) -> list[Look]:
        """The looks that were taken at this study itself."""
        return [look for look in self.manifest.looks if look.study is None] if self.manifest else []

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs that were planned."""
        return self.manifest.runs if self.manifest else []

    @property
    def studies(self) -> set[str]:
        """The names of all studies."""
        return {file.parent.name for file in self.results.glob("studies/*/manifest.json")}

    def companions(
        self, rows: list[Cell], runs: list[PlannedRun], asked: Iterable[str]
    ) -> tuple[dict[str, str], list[str]]:
        """Placebo and exchange studies of earlier commands, not `asked` for by this one, that belong to its cells.

        Each holds a reference cell of this study, unchanged, with runs that are of this study, or would be at their
        seeds: what was measured on others, or by other code, says nothing of these.  Those of other code are told.
        """
        references = {row.id: row for row in rows if row.reference}
        planned, found, left = {run.path for run in runs}, dict[str, str](), list[str]()
        for role, name in self.manifest.beside().items() if self.manifest else ():
            manifest = read_earlier(self.results, name).manifest if role not in asked else None
            own = {cell.id for cell in manifest.cells if cell.reference} if manifest else set()
            if not manifest or not own or not own <= references.keys():
                continue
            others = [run for run in manifest.runs if run.cell in own and run.path not in planned]
            if all(_is_of_now(run, references[run.cell], name) for run in others):
                found[role] = name
            else:
                left.append(f"{name} was trained by other code or versions than this study is now; it is left aside")
        return found, left

    def same_runs(self, runs: list[PlannedRun]) -> list[PlannedRun]:
        """Runs in any study's manifest of these cells with these seeds, of other code or under reuse=none, too."""
        ours = {(run.cell, run.seed) for run in runs}
        known = (run for name in self.studies for run in read_earlier(self.results, name).runs)
        return [run for run in known if (run.cell, run.seed) in ours]


def read_earlier(results: Path, name: str) -> Earlier:
    """What an earlier command of a study left."""
    try:
        return Earlier(results, name, read_manifest(results, name), [])
    except FileNotFoundError:
        return Earlier(results, name, None, [])
    except Corrupt as error:
        told = f"{error}; it is set aside and written anew, and earlier looks at this study are forgotten"
        return Earlier(results, name, None, [told])


def _is_of_now(run: PlannedRun, row: Cell, name: str) -> bool:
    """Whether a run would have its key today: one of any study, or under reuse=none of the study `name` alone."""
    alone = dataclasses.replace(row.config, reuse="none", study=name)
    configs = (dataclasses.replace(row.config, reuse="same"), alone)
    return run.path.rpartition("/")[2] in {run_key(config, run.seed, row.task) for config in configs}


def choose_seeds(study: CheckedStudy, earlier: Earlier) -> list[int]:
    """The seeds that the command asks for; a confirmation takes the first that were never trained for these cells."""
    confirm, seeds = study.settings.confirm, study.settings.seeds
    if not confirm:
        return list(range(seeds)) if isinstance(seeds, int) else sorted(seeds)
    if earlier.manifest:
        return list(earlier.manifest.seeds)
    confirmed = read_earlier(study.results, study.base).manifest
    used = set(confirmed.seeds if confirmed else ())
    for name in {row.name for row in study.cells.rows}:
        for folder in (study.results / "runs" / name).glob("s*-*"):
            used |= {int(number) for number in re.findall(r"^s(\d+)-", folder.name)}
    first = max((seed for seed in used if seed not in TUNING_SEEDS), default=-1) + 1
    return list(range(first, first + confirm))


def status_of(results: Path, path: str) -> tuple[str, str | None]:
    """How a run ended, or missing, and what to say of it: a corrupt result counts as missing."""
    try:
        result = Run(results, path).result()
    except Corrupt as error:
        return "missing", f"{error}; that run is trained again"
    return result.status if result else "missing", None


def without_weights(results: Path, statuses: dict[str, str]) -> list[str]:
    """A sentence for each reason that runs are done and have no weights."""
    done = [Run(results, path) for path, status in statuses.items() if status == "done"]
    bare = Counter(why_without(run.result(), run.weights_file) for run in done if not run.weights_file.exists())
    return [
        f"{n} of these runs ended without weights ({why}), and are not trained again for them"
        for why, n in bare.items()
    ]


def to_test(results: Path, manifest: Manifest, statuses: dict[str, str]) -> tuple[list[str], list[str]]:
    """The runs that are done and whose weights are to be tested at lengths that they lack, and what to say of them."""
    lack = untested(results, manifest, statuses)
    bare = [path for path in lack if not Run(results, path).weights_file.exists()]
    kept = [path for path in lack if path not in bare]
    told = [f"{len(kept)} of these runs are done; their weights are tested at new eval.lengths"] * bool(kept)
    if bare:
        first = Run(results, bare[0])
        told.append(
            f"eval.lengths: {len(bare)} of these runs have no weights to test (the first "
            f"{why_without(first.result(), first.weights_file)}); leave lengths out, or move such runs away to train "
            f"them again: {first.folder}"
        )
    return kept, told
