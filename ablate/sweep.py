"""A planned study carried out: manifest, mirror and live view around the launch, then the summary."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.utils import JobStatus

from ablate.lengths import untested
from ablate.plan import Plan
from ablate.pool import Pool, environments
from ablate.progress import follow
from ablate.results import (
    Corrupt,
    Run,
    as_planned,
    load_study,
    log_look,
    now,
    renew_manifest,
    unit_file,
    write_json,
)
from ablate.schema import PlanError
from ablate.stop import DiskFull, Terminated, is_full, received, refusing_full_disks
from ablate.summary import summary
from ablate.sync import one_line
from ablate.units import read_unit

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
        if following.manifest["runs"] == plan.manifest["runs"]:  # the last round, or one that did not end
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
        with mirror(plan), follow(plan.results, plan.manifest["study"], plan.todo):
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
    name = plan.manifest["study"]
    renew_manifest(plan.results, plan.manifest)
    cells = {cell["id"]: cell for cell in plan.manifest["cells"]}
    runs = {run["path"]: run | {"cell": as_planned(cells[run["cell"]], run)} for run in plan.manifest["runs"]}
    for unit in units_to_do(plan):
        paths = plan.manifest["units"][unit]
        write_json(unit_file(plan.results, name, unit), {"runs": [runs[path] for path in paths]})


def units_to_do(plan: Plan) -> list[str]:
    """The units that hold a run to train."""
    todo = set(plan.todo)
    return [unit for unit, paths in plan.manifest["units"].items() if todo.intersection(paths)]


def job_overrides(plan: Plan) -> list[list[str]]:
    """One Hydra job per unit that has something to do."""
    names = {"study": plan.manifest["study"], "results_dir": str(plan.results)}
    common = [f"{key}={QuotedString(name, Quote.single).with_quotes()}" for key, name in names.items()]
    common.append(f"user=[{','.join(plan.user)}]")
    return [[f"unit={unit}", *common] for unit in units_to_do(plan)]


def run_here(overrides: Sequence[Sequence[str]]) -> list[Any]:
    """Carry out jobs on this machine's worker processes; runs that others hold are waited for at the end."""
    parser = OverridesParser.create()
    jobs = [{o.key_or_group: o.value() for o in map(parser.parse_override, job)} for job in overrides]
    jobs = [job_of(str(job["results_dir"]), str(job["study"]), job["unit"], job["user"]) for job in jobs]
    keys = [run["cell"]["config"]["train"] for job in jobs for run in runs_of(job)]
    device = "cuda" if any(key["device"] == "cuda" for key in keys) else "cpu"
    workers = environments(device, keys[0]["parallel"])
    outcomes = run_jobs(jobs, workers, wait=False)
    busy = [i for i, outcome in enumerate(outcomes) if "busy" in outcome]
    for i, outcome in zip(busy, run_jobs([jobs[i] for i in busy], workers, wait=True), strict=True):
        outcomes[i] = outcome
    return outcomes


def job_of(results: str, study: str, unit: str, user: Sequence[str]) -> dict[str, Any]:
    """What a worker is told of a job."""
    return {"results": results, "study": study, "unit": unit, "user": list(user)}


def run_jobs(jobs: list[dict[str, Any]], workers: list[dict[str, str]], wait: bool) -> list[Any]:
    """Carry out jobs in worker processes; the runs of one that died with its job are failed.  Raises DiskFull."""
    outcomes: list[Any] = Pool(workers).run([job | {"wait": wait} for job in jobs])
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, str):
            try:
                bury(job, outcome)
            except (Corrupt, FileNotFoundError) as error:  # what is no unit's file names no runs
                print(f"ablate: {error}", file=sys.stderr)
    return outcomes


def run_alone(results: str, study: str, unit: str, user: Sequence[str]) -> list[str]:
    """Carry out one job of another launcher, in a process of its own: its death must not be that of the launcher."""
    [outcome] = run_jobs([job_of(results, study, unit, user)], [{}], wait=True)
    return ["failed"] if isinstance(outcome, str) else outcome


def runs_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a job's unit."""
    return read_unit(Path(job["results"]), job["study"], job["unit"])


def bury(job: dict[str, Any], how: str) -> None:
    """Give the runs of a unit whose worker died the result that it could not write, unless others have taken over."""
    error = {"type": "WorkerDied", "message": how, "traceback": ""}
    for run in (Run(Path(job["results"]), planned["path"]) for planned in runs_of(job)):
        try:
            with run.lock(lambda: False) as mine:
                if mine and not run.result_file.exists():
                    result = {"status": "failed", "final": {}, "error": error, "ended": now()}
                    write_json(run.result_file, result, run.check)
        except OSError as trouble:
            if is_full(trouble):
                raise DiskFull(run.result_file) from None
            print(f"ablate: {run.result_file} cannot be written ({trouble.strerror})", file=sys.stderr)


@contextlib.contextmanager
def mirror(plan: Plan) -> Iterator[None]:
    """The tracking process beside the sweep, where any cell asks for one; training never waits for it."""
    if not any(cell["config"]["track"] for cell in plan.manifest["cells"]):
        yield
        return
    named = [plan.manifest["study"], *[f"user=[{','.join(plan.user)}]"] * bool(plan.user)]
    command = [sys.executable, "-m", "ablate.track", *named, "--results-dir", str(plan.results)]
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
    study = load_study(plan.results, plan.manifest["study"], plan.manifest)
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
