"""Jobs, each a unit of runs, carried out by the workers of this machine."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from ablate.config.errors import Corrupt
from ablate.execution.machine import machine
from ablate.execution.messages import Answer, Job
from ablate.execution.pool import Pool
from ablate.execution.signals import DiskFull, is_full
from ablate.results.atomic import write_json
from ablate.results.records import UnitRun
from ablate.results.result import Result, RunError
from ablate.results.run import Run, now
from ablate.results.unit_file import read_unit
from ablate.training.devices import environments, share


def run_here(overrides: Sequence[Sequence[str]]) -> list[Answer]:
    """Carry out jobs on this machine's worker processes; runs that others hold are waited for at the end."""
    parser = OverridesParser.create()
    told = [{o.key_or_group: o.value() for o in map(parser.parse_override, job)} for job in overrides]
    jobs = [
        Job(results=str(job["results_dir"]), study=str(job["study"]), unit=job["unit"], user=job["user"], wait=False)
        for job in told
    ]
    workers = environments(*devices_of(jobs))
    with machine(alone=runs_of(jobs[0])[0].cell.config.timing == "isolated"):
        outcomes = run_jobs(jobs, workers)
        busy = [i for i, outcome in enumerate(outcomes) if "busy" in outcome.statuses]
        again = [dataclasses.replace(jobs[i], wait=True) for i in busy]
        for i, outcome in zip(busy, run_jobs(again, workers), strict=True):
            outcomes[i] = outcome
    return outcomes


def run_jobs(jobs: list[Job], workers: list[dict[str, str]]) -> list[Answer]:
    """Carry out jobs in worker processes; the runs of one that died with its job are failed.  Raises DiskFull."""
    outcomes = Pool(workers).run(jobs)
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome.died:
            try:
                bury(job, outcome.died)
            except (Corrupt, FileNotFoundError) as error:  # what is no unit's file names no runs
                print(f"ablate: {error}", file=sys.stderr)
    return outcomes


def run_alone(results: str, study: str, unit: str, user: Sequence[str], number: int) -> list[str]:
    """Carry out one job of another launcher, in a process of its own: its death must not be that of the launcher.

    By its number it takes its turn among the GPUs that there are: launchers that give none would all have the first.
    """
    job = Job(results=results, study=study, unit=unit, user=list(user))
    with machine(alone=False):
        [outcome] = run_jobs([job], [share(devices_of([job])[0], number)])
    return ["failed"] if outcome.died else outcome.statuses


def devices_of(jobs: Sequence[Job]) -> tuple[str, str | int]:
    """Which kind of device the runs of jobs are to be trained on, and in how many processes."""
    keys = [run.cell.config.train for job in jobs for run in runs_of(job)]
    return "cuda" if any(key.device == "cuda" for key in keys) else "cpu", keys[0].parallel


def runs_of(job: Job) -> list[UnitRun]:
    """The runs of a job's unit."""
    return read_unit(Path(job.results), job.study, job.unit)


def bury(job: Job, how: str) -> None:
    """Give the runs of a unit whose worker died the result that it could not write, unless others have taken over."""
    error = RunError(type="WorkerDied", message=how)
    for run in (Run(Path(job.results), planned.path) for planned in runs_of(job)):
        try:
            with run.lock(lambda: False) as mine:
                if mine and not run.result_file.exists():
                    result = Result(status="failed", final={}, error=error, ended=now())
                    write_json(run.result_file, result.as_json(), run.check)
        except OSError as trouble:
            if is_full(trouble):
                raise DiskFull(run.result_file) from None
            print(f"ablate: {run.result_file} cannot be written ({trouble.strerror})", file=sys.stderr)
