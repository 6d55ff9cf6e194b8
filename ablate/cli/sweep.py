"""A planned study carried out: manifest, mirror and live view around the launch, then the summary."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.utils import JobStatus

from ablate.cli.monitor.live_view import follow
from ablate.cli.summary import summary
from ablate.config.errors import Corrupt, PlanError
from ablate.execution.signals import DiskFull, Terminated, received, refusing_full_disks
from ablate.execution.tracking.mirror import one_line
from ablate.planning.plan import Plan
from ablate.results.atomic import write_json
from ablate.results.manifest import log_look, renew_manifest, unit_file
from ablate.results.records import Cell, PlannedRun, Unit, UnitRun
from ablate.results.run import now
from ablate.results.study import load_study
from ablate.results.tables import as_planned
from ablate.training.length_eval import untested

Launch = Callable[[list[list[str]], int], Any]

DONE, FAILED, WRONG, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
DRAIN = 60.0  # seconds that the mirror has, once training is over, to bring over what is left
HURRY = 1.0  # seconds that it has when the command was told to stop


def carry_out(plan: Plan, launch: Launch | None, replan: Callable[[], Plan]) -> int:
    """Train what a plan leaves to do, round after round, show the summary and return the exit code of the command."""
    try:
        return carry_out_rounds(plan, launch, replan)
    except (KeyboardInterrupt, Terminated) as stop:
        print("ablate: stopped; checkpoints are kept, and the same command continues", file=sys.stderr)
        return INTERRUPTED if isinstance(stop, KeyboardInterrupt) else TERMINATED
    except DiskFull as full:
        folder = plan.folder if full.file.is_relative_to(plan.results) else full.file
        how = "free some space (or move the results and write results_dir=...), and the same command continues"
        print(f"ablate: no space left for {folder}: {how}", file=sys.stderr)
        return FAILED


def carry_out_rounds(plan: Plan, launch: Launch | None, replan: Callable[[], Plan]) -> int:
    """What `carry_out` does while nothing comes between.  Raises DiskFull."""
    started, trained = time.monotonic(), bool(plan.todo)
    while True:
        stopped = carry_out_round(plan, launch)
        if stopped is not None:
            return stopped
        try:
            following = replan() if plan.more else plan
        except PlanError as error:  # tuning found another value than was scored before, say
            print(*(f"ablate: {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
            return WRONG
        if following.manifest.runs == plan.manifest.runs:  # the last round, or one that did not end
            return conclude(following, time.monotonic() - started if trained else None)
        plan = following


def carry_out_round(plan: Plan, launch: Launch | None) -> int | None:
    """Train what one round leaves to do; the exit code where the command must end."""
    try:
        with refusing_full_disks(plan.results):
            for planned in [*plan.ended, plan]:
                record(planned)
    except OSError as error:
        print(f"ablate: results_dir: {plan.results} cannot be written ({error.strerror})", file=sys.stderr)
        return WRONG
    for note in plan.notes:
        print(f"ablate: {note}", file=sys.stderr)
    if plan.todo and launch:
        with mirror(plan), follow(plan.results, plan.manifest.study, plan.todo):
            trouble = launched(launch, job_overrides(plan))
        if trouble:
            print(f"ablate: {trouble}; the same command continues with what is missing", file=sys.stderr)
    return None


def launched(launch: Launch, jobs: list[list[str]]) -> str | None:
    """Hand jobs to a launcher; in words what went wrong, of whatever kind: what has ended is on disk."""
    try:
        for job in launch(jobs, 0) or ():
            if getattr(job, "status", None) == JobStatus.FAILED:
                return f"a job failed ({one_line(job._return_value)})"
    except Exception as error:
        return f"the launcher failed ({one_line(error)})"
    return None


def record(plan: Plan) -> None:
    """Write the manifest, and what each unit's job reads."""
    name = plan.manifest.study
    renew_manifest(plan.results, plan.manifest)
    cells = {cell.id: cell for cell in plan.manifest.cells}
    runs = {run.path: with_cell(run, as_planned(cells[run.cell], run)) for run in plan.manifest.runs}
    for unit in units_to_do(plan):
        paths = plan.manifest.units[unit]
        write_json(unit_file(plan.results, name, unit), Unit(runs=[runs[path] for path in paths]).as_json())


def with_cell(run: PlannedRun, cell: Cell) -> UnitRun:
    """A run as the file of its unit holds it."""
    return UnitRun(cell=cell, seed=run.seed, tuned=run.tuned, path=run.path)


def units_to_do(plan: Plan) -> list[str]:
    """The units that hold a run to train."""
    todo = set(plan.todo)
    return [unit for unit, paths in plan.manifest.units.items() if todo.intersection(paths)]


def job_overrides(plan: Plan) -> list[list[str]]:
    """One Hydra job per unit that has something to do."""
    names = {"study": plan.manifest.study, "results_dir": str(plan.results)}
    common = [f"{key}={QuotedString(name, Quote.single).with_quotes()}" for key, name in names.items()]
    common.append(f"user=[{','.join(plan.user)}]")
    return [[f"unit={unit}", *common] for unit in units_to_do(plan)]


@contextlib.contextmanager
def mirror(plan: Plan) -> Iterator[None]:
    """The tracking process beside the sweep, where any cell asks for one; training never waits for it."""
    if not any(cell.config["track"] for cell in plan.manifest.cells):
        yield
        return
    named = [plan.manifest.study, *[f"user=[{','.join(plan.user)}]"] * bool(plan.user)]
    command = [sys.executable, "-m", "ablate.cli.mirror", *named, "--results-dir", str(plan.results)]
    said = tempfile.TemporaryFile()  # noqa: SIM115 (what it says must not fall into the live table)
    process = subprocess.Popen([*command, "--follow"], stdin=subprocess.PIPE, stderr=said, start_new_session=True)
    try:
        yield
    finally:
        assert process.stdin
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(HURRY if received else DRAIN)
        except BaseException as error:  # a request to stop, too
            process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            print("ablate: tracking is not done yet; bring the rest over with python -m ablate.sync", file=sys.stderr)
        said.seek(0)
        sys.stderr.write(said.read().decode(errors="replace"))
        said.close()


def conclude(plan: Plan, seconds: float | None) -> int:
    """Log the look that the summary is, print it, and return the exit code."""
    study = load_study(plan.results, plan.manifest.study, plan.manifest)
    try:
        with refusing_full_disks(plan.results):  # what is not logged must not be seen
            log_look(plan.results, plan.manifest, now())
    except (OSError, Corrupt) as error:
        print(f"ablate: this look at the results cannot be logged ({error})", file=sys.stderr)
    print(summary(study, plan.folder, seconds), flush=True)
    lack = untested(plan.results, plan.manifest, dict(zip(study.runs["path"], study.runs["status"], strict=True)))
    for path, lengths in lack.items():
        print(f"ablate: {path} was not tested at eval.lengths={lengths}; its result stands", file=sys.stderr)
    return FAILED if lack or set(study.runs["status"]) & {"failed", "missing"} else DONE
