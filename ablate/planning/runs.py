"""The runs of a checked study: its seeds, the state of each run, and the manifest that records them."""

from __future__ import annotations

import dataclasses
import importlib.util
import platform
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from ablate.config.errors import PlanError, Problem
from ablate.config.ladder import has_more_seeds
from ablate.config.schema import VARIED
from ablate.execution.pool import Order
from ablate.formatting import counted, grouped
from ablate.planning import earlier_runs
from ablate.planning.earlier_runs import Earlier
from ablate.planning.study import PlannedStudy, comparison_notes
from ablate.planning.trained_again import trained_again
from ablate.runs.folder import now
from ablate.runs.key import run_key, torch_version
from ablate.runs.naming import directions
from ablate.runs.records import FORMAT, Cell, Look, Manifest, PlannedRun, Sequential, TaskFacts

GPU_TIER = "gpu"  # what study files call the tier that is too large for a CPU


@dataclasses.dataclass(frozen=True)
class Plan:
    """A round of a command: its manifest, the state of its runs, and notes for the user."""

    study: PlannedStudy
    manifest: Manifest
    statuses: dict[str, str]  # run path -> done, diverged, failed, missing, or untested: done without some eval.lengths
    notes: list[str]
    more: bool = False  # whether another round of the same command follows
    ended: list[Plan] = dataclasses.field(default_factory=list)  # earlier rounds, with nothing left to train
    requested: PlannedStudy | None = None  # the study of the command
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
        return from_here(self.results)

    @property
    def todo(self) -> list[str]:
        """Paths of the runs to train (missing and failed ones) or only to test."""
        return [path for path, status in self.statuses.items() if status in ("missing", "failed", "untested")]

    @property
    def is_local(self) -> bool:
        """Whether its runs are trained by this process's workers instead of one of Hydra's launchers."""
        return not any(word.lstrip("+~").startswith("hydra/launcher=") for word in self.launcher)

    @property
    def further_seeds(self) -> list[int]:
        """The seeds that only the lower rungs of a ladder have."""
        return sorted({run.seed for run in self.manifest.runs} - {*self.manifest.seeds})

    def orders(self) -> list[Order]:
        """The remaining runs, for workers, seed by seed; in turn if they are timed."""
        runs = list(self.manifest.runs)
        request = self.study.request
        if self.study.settings.timing == "isolated" or request:
            runs = in_turn(runs)
        cells = {cell.id: cell for cell in self.manifest.cells}
        values = {row.id: draft.choices for row, draft in zip(self.study.rows, self.study.drafts, strict=True)}
        todo = set(self.todo)
        results = str(self.results)
        user = self.study.settings.user
        orders = []
        for run in runs:
            if run.path in todo:
                order = Order(results=results, path=run.path, seed=run.seed, cell=cells[run.cell], user=user)
                if request:
                    program = request.program(values[run.cell], run.seed, self.results / "runs" / run.path)
                    order = dataclasses.replace(order, program=program)
                orders.append(order)
        return orders


def in_turn(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Runs seed by seed, every other seed in reverse, so that a machine's drift affects all cells equally."""
    ordered: list[PlannedRun] = []
    by_seed = grouped((run.seed, run) for run in runs)
    for place, of_seed in enumerate(by_seed.values()):
        ordered += reversed(of_seed) if place % 2 else of_seed
    return ordered


def from_here(folder: Path) -> Path:
    """A folder relative to the working directory if it is inside."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def is_hydras(word: str) -> bool:
    """Whether an override is one of Hydra's own settings, such as a launcher."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def lacks_device(plan: Plan) -> str:
    """What asks for a GPU if this machine has none: a cell's train.device, or the study file's tier; else ""."""
    if any(cell.planned_config.train.device == "cuda" for cell in plan.manifest.cells):
        asks = "train.device"
    elif plan.manifest.tier == GPU_TIER and plan.study.settings.train.device == "auto" and plan.todo:
        asks = f"tier={GPU_TIER}"
    else:
        return ""
    from ablate.training.hardware import cards  # asks torch

    return "" if cards() else asks


def can_compile(device: str) -> bool:
    """Whether torch.compile can work: it needs Triton on a GPU, a C++ compiler and Python's headers on a CPU."""
    if device == "cuda":
        return importlib.util.find_spec("triton") is not None
    has_compiler = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    return has_compiler and (Path(sysconfig.get_paths()["include"]) / "Python.h").exists()


def device_problem(plan: Plan) -> Problem | None:
    """Why this machine cannot train a plan, if so; a dry run plans for any machine."""
    if plan.dry_run:
        return None
    asks = lacks_device(plan)
    if asks:
        how = "run it where one is, plan it with dry_run=true, or write train.device=cpu"
        return Problem(asks, f"there is no GPU here; {how}")
    if not plan.todo:
        return None
    train = plan.manifest.cells[0].planned_config.train
    if train.devices > 1:
        from ablate.training.hardware import environments, visible_devices

        if not environments(train.device, train.parallel, train.devices):
            devices = f"{len(visible_devices(train.device))} {'GPUs' if train.device == 'cuda' else 'CPU cores'}"
            return Problem("train.devices", f"must be a number that {devices} and a job's tasks can share")
    for cell in plan.manifest.cells:
        train = cell.planned_config.train
        if train.compile is True and not can_compile(train.device):
            needs = "Triton" if train.device == "cuda" else "a C++ compiler and Python's headers (g++, python3-dev)"
            return Problem("train.compile", f"needs {needs}, which this machine lacks; leave it out")
    return None


def plan_runs(study: PlannedStudy, further_seeds: Sequence[int] | None = None) -> Plan:
    """The plan of a study, given the results of earlier commands.  `further_seeds` are those of a ladder's lower rungs,
    if another study has chosen them.  Raises PlanError if it would replace earlier results."""
    earlier = earlier_runs.read_earlier(study.results, study.name)
    refuse_replacing(earlier, study.rows, study.tasks)
    looks = earlier_runs.looks_so_far(study, earlier)
    requested = earlier_runs.choose_seeds(study, earlier)
    seen = {seed for look in looks if look.planned != study.looks for seed in look.seeds} - {*requested}
    seeds = sorted([*requested, *seen])
    if further_seeds is None:
        further_seeds = earlier_runs.seeds_of_lower_rungs(seeds, looks)
    cells = study.rows
    if study.settings.is_private:  # the study's name is in the keys of private runs
        cells = [dataclasses.replace(row, config=row.planned_config.with_value("study", study.name)) for row in cells]
    cheap = [cell for cell in cells if has_more_seeds(cell.levels, study.factors)]
    if study.request:
        runs = program_runs(study, seeds)
    else:
        runs = planned_runs(cells, seeds) + planned_runs(cheap, further_seeds)
    manifest = new_manifest(study, earlier, cells, runs, seeds, looks)
    statuses = {}
    damage = []
    for run in runs:
        statuses[run.path], notes = earlier_runs.status_of(study.results, run.path)
        damage += notes
    untested, testing = earlier_runs.to_test(study, manifest, statuses)
    notes = [
        *earlier.notes,
        *study.notes,
        *seed_notes(study, sorted(seen)),
        *([] if study.request else comparison_notes(study)),
        *damage,
        *(run_again(earlier, runs) if study.request else trained_again(study.results, runs, cells, statuses)),
        *testing,
    ]
    statuses |= dict.fromkeys(untested, "untested")
    manifest = earlier_runs.with_registrations(manifest, study, earlier, statuses)
    notes += earlier_runs.post_hoc_notes(manifest)
    return Plan(study, manifest, statuses, notes, study.more)


def planned_runs(cells: Sequence[Cell], seeds: Sequence[int]) -> list[PlannedRun]:
    """The runs of cells with these seeds, seed by seed."""
    runs = []
    for seed in seeds:
        for cell in cells:
            key = run_key(cell.planned_config, seed, cell.task, cell.user_code)
            runs.append(PlannedRun(cell=cell.id, seed=seed, path=f"{cell.name}/{key}"))
    return runs


def program_runs(study: PlannedStudy, seeds: Sequence[int]) -> list[PlannedRun]:
    """The runs of a program with these seeds."""
    assert study.request
    runs = []
    for seed in seeds:
        for cell, draft in zip(study.rows, study.drafts, strict=True):
            name = study.request.run_name(draft.choices, seed)
            runs.append(PlannedRun(cell=cell.id, seed=seed, path=f"{cell.name}/{name}"))
    return runs


def run_again(earlier: Earlier, runs: list[PlannedRun]) -> list[str]:
    """A note on the runs of a program that have a result of other files than it has now."""
    planned_before = earlier.manifest.runs if earlier.manifest else []
    before = {(run.cell, run.seed): run.path for run in planned_before}
    changed = [run for run in runs if before.get((run.cell, run.seed), run.path) != run.path]
    return [f"a file of the command has changed: {counted(len(changed), 'run')} again"] if changed else []


def new_manifest(
    study: PlannedStudy,
    earlier: Earlier,
    cells: list[Cell],
    runs: list[PlannedRun],
    seeds: list[int],
    looks: list[Look],
) -> Manifest:
    """The manifest of a study, without its claims, margin and criterion."""
    keys = study.settings
    factors = study.factors
    sequential = None
    if study.looks:
        sequential = Sequential(looks=study.looks, at=keys.seeds, max=study.looks[-1])
    return Manifest(
        format=FORMAT,
        study=study.name,
        created=(earlier.manifest.created if earlier.manifest else "") or now(),
        updated=now(),
        command=study.command,
        versions={} if study.request else {"python": platform.python_version(), "torch": torch_version()},
        design=keys.design,
        zip=keys.zip,
        match=keys.match,
        tier=keys.tier,
        factors=factors,
        components=[] if study.request else [name for name in factors if {*VARIED} & {*name.split("+")}],
        reference=study.reference,
        timing=keys.timing if keys.timing == "isolated" else None,
        seeds=seeds,
        sequential=sequential,
        confirms=study.base if keys.confirm else None,
        looks=[*looks, *earlier_runs.looks_of_others(earlier, cells, runs)],
        tasks=study.tasks,
        cells=cells,
        runs=runs,
        **study.entries,
    )


def seed_notes(study: PlannedStudy, seen: list[int]) -> list[str]:
    """Notes on seeds that stay because they were `seen`, on planned looks and timing."""
    notes = []
    if seen:
        notes.append(f"seeds {', '.join(map(str, seen))} were looked at before and stay in the study")
    if study.looks:
        notes.append(f"seeds=auto: analysed at {', '.join(map(str, study.looks))}; now at {study.settings.seeds}")
    if study.settings.timing == "isolated":
        notes.append("timing=isolated: one run at a time, in turn; let nothing else use the machine")
    return notes


def refuse_replacing(earlier: Earlier, cells: list[Cell], tasks: Mapping[str, TaskFacts]) -> None:
    """Raise PlanError if cells would be replaced, if a metric changes its direction, or if a timed study gets more
    cells."""
    before = earlier.manifest
    if before is None:
        return
    ids = {cell.id for cell in cells}
    gone = [cell for cell in before.cells if cell.id not in ids]
    ways = directions(tasks.values())
    turned = [metric for metric, way in directions(before.tasks.values()).items() if ways.get(metric, way) != way]
    if turned:
        message = f"takes {turned[0]} as better in the other direction; write another name, or better= as before"
    elif gone:
        message = f"holds {counted(len(gone), 'other configuration')}; add to its configurations, on the same data, or "
        message += "write another name"
    elif before.timing and len(cells) > len(before.cells):
        message = "is timed: further configurations would not be trained in turn with those that ended; write another "
        message += "name, which trains all of them"
    else:
        return
    raise PlanError([Problem("study", f"{before.study} {message}")])
