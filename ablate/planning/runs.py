"""The runs of a checked study: its seeds, what is done of them, and the manifest that says so."""

from __future__ import annotations

import dataclasses
import itertools
import platform
from pathlib import Path
from typing import Any

from ablate.config.errors import Problem
from ablate.config.schema import is_component
from ablate.execution.orders import Order
from ablate.planning.cells import one_rate, other_tasks, slow_starts
from ablate.planning.earlier_runs import Earlier, choose_seeds, read_earlier, status_of, to_test, without_weights
from ablate.planning.looks import looked_at, other_looks, sequence_of
from ablate.planning.registration import register, registered_criterion, registered_margin
from ablate.planning.reuse import (
    about_timing,
    kept_apart,
    refuse_late_cells,
    refuse_replacing,
    take_others,
    trained_again,
)
from ablate.planning.study import CheckedStudy
from ablate.results.records import FORMAT, Cell, Manifest, PlannedRun, Tuning
from ablate.results.run import now
from ablate.results.run_key import run_key
from ablate.results.tables import as_planned
from ablate.results.versions import torch_version

GPU_TIER = "gpu"  # what study files call the tier that is too large for a CPU


@dataclasses.dataclass(frozen=True)
class Plan:
    """A round of a command: its manifest, as it will be written, the state of its runs, and what to tell the user."""

    study: CheckedStudy
    manifest: Manifest
    statuses: dict[str, str]  # run path -> done, diverged, failed, missing, or untested: done but for eval.lengths
    notes: list[str]
    more: bool = False  # whether another round of the same command comes after this one
    ended: list[Plan] = dataclasses.field(default_factory=list)  # the rounds before it, with nothing left to train
    asked: CheckedStudy | None = None  # what the command asks for, of which this is a round
    launcher: list[str] = dataclasses.field(default_factory=list)  # Hydra's own words of the command

    @property
    def results(self) -> Path:
        """The results folder."""
        return self.study.results

    @property
    def dry_run(self) -> bool:
        """Whether the command only asks what it would do."""
        return bool(self.study.settings.dry_run)

    @property
    def user(self) -> list[str]:
        """The packages that the command line allows."""
        return list(self.study.settings.user)

    @property
    def folder(self) -> Path:
        """The results folder as people name it: from where they are, if it lies below."""
        here = Path.cwd()
        return self.results.relative_to(here) if self.results.is_relative_to(here) else self.results

    @property
    def todo(self) -> list[str]:
        """Paths of the runs to train (those without a result, and failed ones again), or only to test."""
        return [path for path, status in self.statuses.items() if status in ("missing", "failed", "untested")]

    @property
    def is_local(self) -> bool:
        """Whether its runs are trained by this process's own workers, and not by another engine's launcher."""
        return not any(word.lstrip("+~").startswith("hydra/launcher=") for word in self.launcher)

    def orders(self) -> list[Order]:
        """What workers are told of the runs to do, in the order in which these are trained."""
        cells, todo = {cell.id: cell for cell in self.manifest.cells}, set(self.todo)
        return [
            Order(
                results=str(self.results),
                path=run.path,
                seed=run.seed,
                cell=as_planned(cells[run.cell], run),
                user=self.user,
            )
            for run in in_turn(self.manifest.runs, self.study.settings.timing)
            if run.path in todo
        ]


def is_hydras(word: str) -> bool:
    """Whether a word of a command line is about Hydra itself: a launcher, say."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def lacks_device(plan: Plan) -> bool:
    """Whether some cell is to be trained on a GPU and this machine has none."""
    if not (on_cuda(plan) or of_gpu_tier(plan)):
        return False
    from ablate.training.devices import cards  # asks torch

    return not cards()


def on_cuda(plan: Plan) -> bool:
    """Whether the configuration of some cell says that it is trained on a GPU."""
    return any(cell.config.train.device == "cuda" for cell in plan.manifest.cells)


def of_gpu_tier(plan: Plan) -> bool:
    """Whether a study file's tier for GPUs is to be trained on whatever device there is, which a CPU takes days for."""
    return plan.manifest.tier == GPU_TIER and plan.study.settings.train.device == "auto" and bool(plan.todo)


def device_problem(plan: Plan) -> Problem | None:
    """What is wrong with training a plan on the devices of this machine; its tier for GPUs can be planned on any."""
    if not lacks_device(plan):
        return None
    if on_cuda(plan):
        said = "cuda is not available here; write train.device=cpu, or hydra/launcher=… for jobs where it is"
        return Problem("train.device", said)
    said = "there is no GPU here; run it where one is, plan it with dry_run=true, or write train.device=cpu"
    return None if plan.dry_run else Problem(f"tier={GPU_TIER}", said)


def plan_runs(study: CheckedStudy) -> Plan:
    """The plan of a study: its seeds and runs, beside what an earlier command of this study left.

    Raises PlanError where that would be replaced.
    """
    settings, earlier = study.settings, read_earlier(study.results, study.name)
    refuse_replacing(earlier, study.cells.rows)
    refuse_late_cells(earlier, study.cells.rows)
    seeds = choose_seeds(study, earlier)
    looks, kept = looked_at(study, earlier, seeds)
    seeds = sorted({*seeds, *kept})
    runs, rows = runs_of(study, seeds)
    beside, left_aside = earlier.companions(rows, runs, study.entries)
    manifest = Manifest(
        **described(study, earlier),
        seeds=seeds,
        sequential=sequence_of(study),
        confirms=study.base if settings.confirm else None,
        looks=looks + other_looks(earlier, runs),
        tasks=study.cells.tasks,
        cells=rows,
        runs=runs,
        **(beside | study.entries),
    )
    found = {run.path: status_of(study.results, run.path) for run in runs}
    statuses = {path: status for path, (status, _) in found.items()}
    untested, testing = to_test(study.results, manifest, statuses)
    notes = [
        *earlier.notes,
        *study.notes,
        *about_seeds(study, kept),
        *left_aside,
        *[f"seeds=auto: looks at {', '.join(map(str, study.looks))}; now at {settings.seeds}"] * bool(study.looks),
        *slow_starts([row.config for row in study.cells.rows]),
        *other_tasks(study.cells),
        *one_rate(study.cells, settings.tune.key),
        *(damage for _, damage in found.values() if damage),
        *about_timing(study.results, runs, rows, statuses),
        *trained_again(earlier, runs, rows, statuses, settings.reuse),
        *(without_weights(study.results, statuses) if settings.keep != "none" else []),
        *testing,
    ]
    statuses |= dict.fromkeys(untested, "untested")
    return Plan(study, registered(manifest, study, earlier, statuses), statuses, notes, study.more)


def described(study: CheckedStudy, earlier: Earlier) -> dict[str, Any]:
    """The manifest's entries about a study itself, its command and its design."""
    settings, factors = study.settings, study.cells.factors
    return {
        "format": FORMAT,
        "study": study.name,
        "created": (earlier.manifest.created if earlier.manifest else "") or now(),
        "updated": now(),
        "command": study.command,
        "versions": {"python": platform.python_version(), "torch": torch_version()},
        "design": settings.design,
        "zip": settings.zip,
        "factors": factors,
        "components": [name for name in factors if is_component(name.split("+"))],
        "reference": study.cells.reference,
        "match": settings.match,
        "tier": settings.tier,
        "timing": settings.timing if settings.timing == "isolated" else None,
    }


def runs_of(study: CheckedStudy, seeds: list[int]) -> tuple[list[PlannedRun], list[Cell]]:
    """A study's runs, and the manifest's rows of its cells, with those of other code taken where that is asked for."""
    rows, reuse = study.cells.rows, study.settings.reuse
    rows = kept_apart(study.name, rows) if study.settings.apart else rows
    runs = [planned_run(row, seed, study.entries.get("tuning")) for seed in seeds for row in rows]
    return take_others(study.results, runs, rows) if reuse == "any" else (runs, rows)


def planned_run(row: Cell, seed: int, tuning: Tuning | None) -> PlannedRun:
    """A cell's run with a seed, at the value that tuning chose for this seed where it did."""
    tuned = {tuning.key: tuning.cells[row.id].values[str(seed)]} if tuning and tuning.per_seed else None
    run = PlannedRun(cell=row.id, seed=seed, tuned=tuned, path="")
    return dataclasses.replace(run, path=f"{row.name}/{run_key(as_planned(row, run).config, seed, row.task)}")


def in_turn(runs: list[PlannedRun], timing: str) -> list[PlannedRun]:
    """Runs in the order in which they are trained: seed by seed, where they are timed every other seed backwards.

    What a machine's speed drifts by hits all cells alike then: in a fixed order the last of a seed would be the latest.
    """
    if timing != "isolated":
        return runs
    seeds = [list(of_seed) for _, of_seed in itertools.groupby(runs, lambda run: run.seed)]
    return [run for i, of_seed in enumerate(seeds) for run in (reversed(of_seed) if i % 2 else of_seed)]


def about_seeds(study: CheckedStudy, kept: list[int]) -> list[str]:
    """What to say of a confirmation of nothing, and of seeds that were `kept`."""
    told = []
    if study.settings.confirm and not (study.results / "studies" / study.base).exists():
        told.append(f"{study.base} was never trained here, so there is nothing yet that this could confirm")
    if kept:
        told.append(f"seeds {', '.join(map(str, kept))} were looked at before and stay in the study")
    return told


def registered(manifest: Manifest, study: CheckedStudy, earlier: Earlier, statuses: dict[str, str]) -> Manifest:
    """The manifest with its claims, margin and criterion, beside what the earlier one and the tuning's said of them."""
    known = earlier.manifest
    before = (known.withdrawn if known else {}) | study.written | (known.claims if known else {})
    margin, old = study.settings.margin, (known and known.margin) or study.entries.get("margin")
    criterion = (known and known.replicated) or study.entries.get("replicated")
    seen = scored(earlier, manifest.runs, statuses) if study.claims or before or margin or old or criterion else {}
    entries = register(study.claims, before, study.cells.rows, seen, now())
    return dataclasses.replace(
        manifest,
        **entries._asdict(),
        margin=registered_margin(margin, old, seen, now()),
        replicated=registered_criterion(study.replicated, criterion, seen, now()),
        effects=registered_margin(study.entries.get("effects"), known.effects if known else None, seen, now()),
    )


def scored(earlier: Earlier, runs: list[PlannedRun], statuses: dict[str, str]) -> dict[int, set[str]]:
    """The cells of this study that have a result, by seed; those of its earlier manifest and other studies', too."""
    found: dict[int, set[str]] = {}
    for run in [*runs, *earlier.runs, *earlier.same_runs(runs)]:
        status = statuses.get(run.path) or status_of(earlier.results, run.path)[0]
        if status in ("done", "diverged", "untested"):
            found.setdefault(run.seed, set()).add(run.cell)
    return found
