"""The runs of a checked study: its seeds, the state of each run, and the manifest that records them."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import json
import platform
import shlex
import shutil
import sysconfig
from pathlib import Path

from ablate.config.errors import PlanError, Problem
from ablate.config.ladder import has_more_seeds
from ablate.config.schema import VARIED
from ablate.execution.pool import Order
from ablate.formatting import counted, first_of, grouped
from ablate.planning import earlier_runs
from ablate.planning.earlier_runs import Earlier, read_earlier, with_registrations
from ablate.planning.study import CheckedStudy, comparison_notes
from ablate.runs.folder import Run, noted, now
from ablate.runs.key import FORMAT as KEY_FORMAT
from ablate.runs.key import provenance, run_key, settings, torch_version
from ablate.runs.records import FORMAT, Cell, Manifest, PlannedRun, Provenance, Sequential

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
        runs, results, user = self.manifest.runs, str(self.results), self.study.settings.user
        if self.study.settings.timing == "isolated":
            seeds = [list(of_seed) for _, of_seed in itertools.groupby(runs, lambda run: run.seed)]
            runs = [run for i, of_seed in enumerate(seeds) for run in (of_seed[::-1] if i % 2 else of_seed)]
        left = [(run, cells[run.cell]) for run in runs if run.path in todo]
        return [Order(results=results, path=run.path, seed=run.seed, cell=cell, user=user) for run, cell in left]


def is_hydras(word: str) -> bool:
    """Whether an override is one of Hydra's own settings, such as a launcher."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def lacks_device(plan: Plan) -> str:
    """What asks for a GPU if this machine has none: a cell's train.device, or the study file's tier; else ""."""
    of_gpu_tier = plan.manifest.tier == GPU_TIER and plan.study.settings.train.device == "auto" and bool(plan.todo)
    on_cuda = any(cell.planned_config.train.device == "cuda" for cell in plan.manifest.cells)
    asks = "train.device" if on_cuda else f"tier={GPU_TIER}" * of_gpu_tier
    if not asks:
        return ""
    from ablate.training.devices import cards  # asks torch

    return "" if cards() else asks


def can_compile(device: str) -> bool:
    """Whether torch.compile can work: it needs Triton on a GPU, a C++ compiler and Python's headers on a CPU."""
    if device == "cuda":
        return importlib.util.find_spec("triton") is not None
    compiler = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    return compiler and (Path(sysconfig.get_paths()["include"]) / "Python.h").exists()


def device_problem(plan: Plan) -> Problem | None:
    """Why this machine cannot train a plan, if so; a dry run plans for any machine."""
    if plan.dry_run:
        return None
    if asks := lacks_device(plan):
        message = "there is no GPU here; run it where one is, plan it with dry_run=true, or write train.device=cpu"
        if asks == "train.device":
            message = "cuda is not available here; plan it with dry_run=true, or write train.device=cpu"
            message += " or hydra/launcher=…"
        return Problem(asks, message)
    train = plan.manifest.cells[0].planned_config.train
    if train.devices > 1 and plan.todo:
        from ablate.training.devices import environments, task_of_job, visible_devices

        if not environments(train.device, train.parallel, train.devices):
            there = f"{len(visible_devices(train.device))} {'GPUs' if train.device == 'cuda' else 'CPU cores'}"
            shared = f", and {task_of_job()[2]} tasks" * (task_of_job()[2] > 1)
            return Problem("train.devices", f"must be a number that {there}{shared} can share, not {train.devices}")
    for cell in plan.manifest.cells:
        train = cell.planned_config.train
        if plan.todo and train.compile is True and not can_compile(train.device):
            needs = "Triton" if train.device == "cuda" else "a C++ compiler and Python's headers (g++, python3-dev)"
            return Problem("train.compile", f"needs {needs}, which this machine lacks; leave it out")
    return None


def plan_runs(study: CheckedStudy) -> Plan:
    """The plan of a study, given the results of earlier commands.  Raises PlanError if it would replace these."""
    settings, factors, earlier = study.settings, study.cells.factors, read_earlier(study.results, study.name)
    refuse_replacing(earlier, study.cells.rows)
    seeds, looks = earlier_runs.choose_seeds(study, earlier), earlier_runs.looks_so_far(study, earlier)
    seen = sorted({seed for look in looks if look.planned != study.looks for seed in look.seeds} - set(seeds))
    seeds = sorted([*seeds, *seen])
    rows = study.cells.rows
    if settings.is_private:  # the study's name is in the keys of private runs
        rows = [dataclasses.replace(row, config=row.planned_config.with_value("study", study.name)) for row in rows]
    more = [row.id for row in rows if has_more_seeds(row.levels, factors)]
    cheap = [max(seeds) + 1 + i for i in range(len(seeds))] if more else []
    runs = [planned_run(row, seed) for seed in seeds for row in rows]
    runs += [planned_run(row, seed) for seed in cheap for row in rows if row.id in more]
    companions, companion_notes = earlier.companions(rows, runs, study.entries)
    manifest = Manifest(
        format=FORMAT,
        study=study.name,
        created=(earlier.manifest.created if earlier.manifest else "") or now(),
        updated=now(),
        command=study.command,
        versions={"python": platform.python_version(), "torch": torch_version()},
        **{key: getattr(settings, key) for key in ("design", "zip", "match", "tier")},
        factors=factors,
        components=[name for name in factors if {*VARIED} & {*name.split("+")}],
        reference=study.cells.reference,
        timing=settings.timing if settings.timing == "isolated" else None,
        seeds=seeds,
        sequential=Sequential(looks=study.looks, at=settings.seeds, max=study.looks[-1]) if study.looks else None,
        confirms=study.base if settings.confirm else None,
        looks=[*looks, *earlier_runs.other_looks(earlier, runs)],
        tasks=study.cells.tasks,
        cells=rows,
        runs=runs,
        **(companions | study.entries),
    )
    found = {run.path: earlier_runs.status_of(study.results, run.path) for run in runs}
    statuses = {path: status for path, (status, _) in found.items()}
    untested, testing = earlier_runs.to_test(study, manifest, statuses)
    notes = [
        *earlier.notes,
        *study.notes,
        *seed_notes(study, seen),
        *companion_notes,
        *comparison_notes(study.cells, settings.tune.key),
        *(note for _, damage in found.values() for note in damage),
        *timing_notes(study.results, runs, rows, statuses),
        *trained_again(earlier, runs, rows, statuses),
        *testing,
    ]
    statuses |= dict.fromkeys(untested, "untested")
    return Plan(study, with_registrations(manifest, study, earlier, statuses), statuses, notes, study.more)


def planned_run(row: Cell, seed: int) -> PlannedRun:
    """A cell's run with a seed."""
    key = run_key(row.planned_config, seed, row.task, row.user_code)
    return PlannedRun(cell=row.id, seed=seed, path=f"{row.name}/{key}")


def seed_notes(study: CheckedStudy, seen: list[int]) -> list[str]:
    """Notes on a confirmation without a study, on seeds kept because they were `seen`, and on planned looks."""
    confirm, lost = study.settings.confirm, not (study.results / "studies" / study.base).exists()
    given = any(word.startswith("seeds=") for word in shlex.split(study.command))
    notes = {
        f"{study.base} was never trained here, so there is nothing yet that this could confirm": confirm and lost,
        f"seeds is not used: confirm={confirm} says how many fresh seeds there are": confirm and given,
        f"seeds {', '.join(map(str, seen))} were looked at before and stay in the study": seen,
        f"seeds=auto: analysed at {', '.join(map(str, study.looks))}; now at {study.settings.seeds}": study.looks,
    }
    return [note for note, holds in notes.items() if holds]


SHOWN = 3  # definitions that are named


def refuse_replacing(earlier: Earlier, rows: list[Cell]) -> None:
    """Raise PlanError if cells would be replaced, if the data have changed, or if a timed study gets more cells."""
    before = earlier.manifest
    if not before:
        return
    new = {row.id for row in rows}
    gone = [cell for cell in before.cells if cell.id not in new]
    others = counted(len(gone), "other configuration")
    message = f"{earlier.name} holds {others}; add to its configurations, or write another name"
    if gone:
        known = {_settings(row): row for row in rows}
        now = [known.get(_settings(cell), cell).task for cell in gone]
        if all(task != cell.task for cell, task in zip(gone, now, strict=True)):
            old = gone[0].task
            changed = f"{before.tasks[old].title or 'the text'} is no longer {old[:8]} but {now[0][:8]}"
            message = f"{earlier.name} was trained on other data: {changed}; write another name, or restore the data"
        raise PlanError([Problem("study", message)])
    if before.timing and len(rows) > len(before.cells):
        message = f"{earlier.name} is timed: further configurations would not be trained in turn with those that ended"
        raise PlanError([Problem("study", f"{message}; write another name, which trains all of them")])


def _settings(cell: Cell) -> str:
    """All that a cell's numbers depend on, except its data."""
    return json.dumps([cell.name, settings(cell.planned_config)], sort_keys=True)


def timing_notes(results: Path, runs: list[PlannedRun], rows: list[Cell], statuses: dict[str, str]) -> list[str]:
    """Notes on how timed runs are trained, and on finished runs that are trained again because they were not timed."""
    cells, ended = {row.id: row for row in rows}, 0
    if rows[0].planned_config.timing != "isolated":
        return []
    for run in runs:
        cell = cells[run.cell]
        shared = cell.planned_config.with_value("timing", "shared")
        key = run_key(shared, run.seed, cell.task, cell.user_code)
        ended += statuses[run.path] == "missing" and Run(results, f"{cell.name}/{key}").result_file.exists()
    notes = ["timing=isolated: one run at a time, a seed's configurations in turn; let nothing else use the machine"]
    why = "with shared timing, which leaves their losses as they are and says nothing about speed; trained again"
    return notes + [f"{_counted(ended, 'of these')} trained {why}"] * bool(ended)


Similar = list[tuple[Run, Provenance]]  # the runs on disk of a cell with the same seed and settings


def similar_runs(results: Path, name: str) -> dict[tuple[str, str], Similar]:
    """The runs in a cell's folder with their provenance, by seed, as in their names, and settings."""
    folders = (file.parent for file in (results / "runs" / name).glob("s*-*/provenance.json"))
    runs = [Run(results, f"{name}/{folder.name}") for folder in folders]
    known = [(run, origin) for run in runs if (origin := noted(run.provenance)[0])]
    return grouped(((run.folder.name.partition("-")[0], origin.numbers), (run, origin)) for run, origin in known)


def changed_names(old: Provenance, new: Provenance) -> set[str]:
    """The definitions whose content occurs on one side only, even under another name."""
    one, other = old.definitions, new.definitions
    unique = set(one.values()) ^ set(other.values())
    return {name for side in (one, other) for name, digest in side.items() if digest in unique}


def _by(names: set[str]) -> str:
    return f"with other code ({first_of(sorted(names), SHOWN)})" if names else "with other code"


def _counted(count: int, what: str) -> str:
    return f"{counted(count, 'run')} {what} {'were' if count != 1 else 'was'}"


def trained_again(earlier: Earlier, runs: list[PlannedRun], rows: list[Cell], statuses: dict[str, str]) -> list[str]:
    """Notes on runs that are trained again, one per reason: this study had them, or their data have changed."""
    results, paths, cells = earlier.results, {run.path for run in runs}, {row.id: row for row in rows}
    read = functools.cache(functools.partial(similar_runs, results))
    had = {(run.cell, run.seed): run.path for run in earlier.runs if run.path not in paths}
    reasons: dict[str, list[set[str]]] = {}
    moved = 0
    of_earlier_format = 0
    for run in runs:
        if statuses[run.path] != "missing" or Run(results, run.path).provenance_file.exists():
            continue  # it has ended, or will resume
        cell = cells[run.cell]
        planned = provenance(cell.planned_config, run.seed, cell.task, cell.user_code)
        old = Run(results, had.get((run.cell, run.seed), "none"))
        if old.provenance_file.exists() or old.result_file.exists():
            origin = noted(old.provenance)[0]
            if origin and origin.format != KEY_FORMAT:
                of_earlier_format += 1
                continue
            names = changed_names(origin, planned) if origin else set()
            reasons.setdefault(_reason(origin, planned), []).append(names)
        else:  # runs on data of the same path, but none on its present content
            origins = [origin for _, origin in read(cell.name).get((f"s{run.seed}", planned.numbers), [])]
            present = any(origin.data == planned.data for origin in origins)
            moved += not present and any(origin.source == planned.source for origin in origins)
    notes = []
    if of_earlier_format:
        verb = "is" if of_earlier_format == 1 else "are"
        notes.append(f"{counted(of_earlier_format, 'run')} of an earlier format {verb} not reused")
    for reason, found in reasons.items():
        names = set().union(*found)
        how = [reason] * bool(reason) + [_by(names)] * bool(names or not reason)
        notes.append(f"{_counted(len(found), 'of this study')} trained {' and '.join(how)}; trained again")
    return notes + [f"{_counted(moved, 'of these configurations')} trained before the data changed; trained again"] * (
        moved > 0
    )


def _reason(old: Provenance | None, new: Provenance) -> str:
    """Why a run is not reused, apart from its code; "" if it differs in code only."""
    if old is None:
        return "with a provenance.json that is gone or damaged"
    if old.study != new.study:
        return f"under reuse={'none' if old.study else 'same'}"
    differ = {key: now for key, now in new.versions.items() if old.versions.get(key) != now}
    versions = ", ".join(f"{key} {old.versions.get(key)} (now {now})" for key, now in differ.items())
    return f"with {versions}" if differ else ""
