"""The runs of a checked study: its seeds, the state of each run, and the manifest that records them."""

from __future__ import annotations

import dataclasses
import itertools
import platform
import shlex
from pathlib import Path

from ablate.config.errors import Problem
from ablate.config.schema import is_component
from ablate.execution.pool import Order
from ablate.planning import earlier_runs, reuse
from ablate.planning.earlier_runs import read_earlier, with_registrations
from ablate.planning.study import CheckedStudy, comparison_notes
from ablate.results.records import FORMAT, Cell, Manifest, PlannedRun, Sequential, Tuning
from ablate.results.run import now
from ablate.results.run_key import run_key, torch_version
from ablate.results.tables import as_planned

GPU_TIER = "gpu"  # what study files call the tier that is too large for a CPU


@dataclasses.dataclass(frozen=True)
class Plan:
    """A round of a command: its manifest, the state of its runs, and notes for the user."""

    study: CheckedStudy
    manifest: Manifest
    statuses: dict[str, str]  # run path -> done, diverged, failed, missing, or untested: done without some eval.lengths
    notes: list[str]
    more: bool = False  # whether another round of the same command follows
    ended: list[Plan] = dataclasses.field(default_factory=list)  # earlier rounds, with nothing left to train
    requested: CheckedStudy | None = None  # the study of the command
    launcher: list[str] = dataclasses.field(default_factory=list)  # overrides of Hydra's own settings

    @property
    def results(self) -> Path:
        """The results folder."""
        return self.study.results

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be trained."""
        return bool(self.study.settings.dry_run)

    @property
    def folder(self) -> Path:
        """The results folder, relative to the working directory if it is inside."""
        here = Path.cwd()
        return self.results.relative_to(here) if self.results.is_relative_to(here) else self.results

    @property
    def todo(self) -> list[str]:
        """Paths of the runs to train (missing and failed ones) or only to test."""
        return [path for path, status in self.statuses.items() if status in ("missing", "failed", "untested")]

    @property
    def is_local(self) -> bool:
        """Whether its runs are trained by this process's workers instead of one of Hydra's launchers."""
        return not any(word.lstrip("+~").startswith("hydra/launcher=") for word in self.launcher)

    def orders(self) -> list[Order]:
        """The remaining runs, for workers, seed by seed.  If runs are timed, every other seed goes in reverse, so that
        a machine's drift affects all cells equally."""
        cells, todo = {cell.id: cell for cell in self.manifest.cells}, set(self.todo)
        runs = self.manifest.runs
        if self.study.settings.timing == "isolated":
            seeds = [list(of_seed) for _, of_seed in itertools.groupby(runs, lambda run: run.seed)]
            runs = [run for i, of_seed in enumerate(seeds) for run in (of_seed[::-1] if i % 2 else of_seed)]
        return [
            Order(
                results=str(self.results),
                path=run.path,
                seed=run.seed,
                cell=as_planned(cells[run.cell], run),
                user=self.study.settings.user,
            )
            for run in runs
            if run.path in todo
        ]


def is_hydras(word: str) -> bool:
    """Whether an override is one of Hydra's own settings, such as a launcher."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def lacks_device(plan: Plan) -> str:
    """What asks for a GPU if this machine has none: a cell's train.device, or the study file's tier; else ""."""
    of_gpu_tier = plan.manifest.tier == GPU_TIER and plan.study.settings.train.device == "auto" and bool(plan.todo)
    on_cuda = any(cell.config.train.device == "cuda" for cell in plan.manifest.cells)
    asks = "train.device" if on_cuda else f"tier={GPU_TIER}" * of_gpu_tier
    if not asks:
        return ""
    from ablate.training.devices import cards  # asks torch

    return "" if cards() else asks


def device_problem(plan: Plan) -> Problem | None:
    """Why this machine cannot train a plan, if so; a dry run plans for any machine."""
    if plan.dry_run or not (asks := lacks_device(plan)):
        return None
    message = "there is no GPU here; run it where one is, plan it with dry_run=true, or write train.device=cpu"
    if asks == "train.device":
        message = "cuda is not available here; plan it with dry_run=true, or write train.device=cpu or hydra/launcher=…"
    return Problem(asks, message)


def plan_runs(study: CheckedStudy) -> Plan:
    """The plan of a study, given the results of earlier commands.  Raises PlanError if it would replace these."""
    settings, factors, earlier = study.settings, study.cells.factors, read_earlier(study.results, study.name)
    reuse.refuse_replacing(earlier, study.cells.rows)
    seeds, looks = earlier_runs.choose_seeds(study, earlier), earlier_runs.looks_so_far(study, earlier)
    seen = sorted({seed for look in looks if look.planned != study.looks for seed in look.seeds} - set(seeds))
    seeds = sorted([*seeds, *seen])
    runs, rows = runs_of(study, seeds)
    companions, companion_notes = earlier.companions(rows, runs, study.entries)
    manifest = Manifest(
        format=FORMAT,
        study=study.name,
        created=(earlier.manifest.created if earlier.manifest else "") or now(),
        updated=now(),
        command=study.command,
        versions={"python": platform.python_version(), "torch": torch_version()},
        design=settings.design,
        zip=settings.zip,
        factors=factors,
        components=[name for name in factors if is_component(name.split("+"))],
        reference=study.cells.reference,
        match=settings.match,
        tier=settings.tier,
        timing=settings.timing if settings.timing == "isolated" else None,
        seeds=seeds,
        sequential=Sequential(looks=study.looks, at=settings.seeds, max=study.looks[-1]) if study.looks else None,
        confirms=study.base if settings.confirm else None,
        looks=looks + earlier_runs.other_looks(earlier, runs),
        tasks=study.cells.tasks,
        cells=rows,
        runs=runs,
        **(companions | study.entries),
    )
    found = {run.path: earlier_runs.status_of(study.results, run.path) for run in runs}
    statuses = {path: status for path, (status, _) in found.items()}
    untested, testing = earlier_runs.to_test(study.results, manifest, statuses)
    notes = [
        *earlier.notes,
        *study.notes,
        *seed_notes(study, seen),
        *companion_notes,
        *comparison_notes(study.cells, settings.tune.key),
        *(note for _, damage in found.values() for note in damage),
        *reuse.timing_notes(study.results, runs, rows, statuses),
        *reuse.trained_again(earlier, runs, rows, statuses),
        *(earlier_runs.without_weights(study.results, statuses) if settings.keep != "none" else []),
        *testing,
    ]
    statuses |= dict.fromkeys(untested, "untested")
    return Plan(study, with_registrations(manifest, study, earlier, statuses), statuses, notes, study.more)


def runs_of(study: CheckedStudy, seeds: list[int]) -> tuple[list[PlannedRun], list[Cell]]:
    """A study's runs and the rows of its cells; `reuse=any` takes runs of other code."""
    rows = study.cells.rows
    if study.settings.is_private:  # the study's name is in the keys of private runs
        rows = [dataclasses.replace(row, config=dataclasses.replace(row.config, study=study.name)) for row in rows]
    runs = [planned_run(row, seed, study.entries.get("tuning")) for seed in seeds for row in rows]
    return reuse.take_others(study.results, runs, rows) if study.settings.reuse == "any" else (runs, rows)


def planned_run(row: Cell, seed: int, tuning: Tuning | None) -> PlannedRun:
    """A cell's run with a seed, at the value that tuning chose for it, if any."""
    tuned = {tuning.key: tuning.cells[row.id].values[str(seed)]} if tuning and tuning.per_seed else None
    run = PlannedRun(cell=row.id, seed=seed, tuned=tuned, path="")
    return dataclasses.replace(run, path=f"{row.name}/{run_key(as_planned(row, run).config, seed, row.task)}")


def seed_notes(study: CheckedStudy, seen: list[int]) -> list[str]:
    """Notes on a confirmation without a study, on seeds kept because they were `seen`, and on planned looks."""
    notes = []
    if study.settings.confirm and not (study.results / "studies" / study.base).exists():
        notes.append(f"{study.base} was never trained here, so there is nothing yet that this could confirm")
    if study.settings.confirm and any(word.startswith("seeds=") for word in shlex.split(study.command)):
        notes.append(f"seeds is not used: confirm={study.settings.confirm} says how many fresh seeds there are")
    if seen:
        notes.append(f"seeds {', '.join(map(str, seen))} were looked at before and stay in the study")
    if study.looks:
        notes.append(f"seeds=auto: looks at {', '.join(map(str, study.looks))}; now at {study.settings.seeds}")
    return notes
