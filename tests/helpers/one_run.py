"""Runs and whole sweeps in this process, where processes are not what a test is about, and what a run logged."""

from __future__ import annotations

import shutil
from pathlib import Path

from carried_out import carry_out
from units import run_unit

from ablate.planning.plan import plan_study
from ablate.planning.units import write_plan
from ablate.results.run import Run

VOLATILE = ("seconds",)


def train(plan, stop=lambda: False) -> tuple[str, Run]:
    [unit] = plan.manifest.units
    user = plan.manifest.cells[0].config.user
    [status] = run_unit(plan.results, plan.manifest.study, unit, True, stop, user)
    return status, Run(plan.results, plan.manifest.runs[0].path)


def after(calls: int):
    """A request to stop that comes at the n-th time of asking."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def trained_anew(plan, *stops: int) -> Run:
    """The run of a plan, trained from the start and stopped after so many steps each time, to its end."""
    shutil.rmtree(plan.results / "runs", ignore_errors=True)
    write_plan(plan)
    assert [train(plan, after(steps))[0] for steps in stops] == ["interrupted"] * len(stops)
    status, run = train(plan)
    assert status == "done", run.result()
    return run


def rows_of(run: Run) -> list[dict]:
    return [{key: value for key, value in row.items() if key not in VOLATILE} for row in run.metrics()[0]]


def here(jobs: list[list[str]]) -> None:
    """Carries jobs out in this process, one after another: a launcher."""
    for job in jobs:
        told = {key: value.strip("'") for key, _, value in (override.partition("=") for override in job)}
        run_unit(Path(told["results_dir"]), told["study"], told["unit"], True, lambda: False)


def sweep_here(*words: str) -> int:
    """A command line carried out as `python -m ablate` does, but for its processes: the exit code."""
    overrides = [word for word in words if word != "-m"]
    return carry_out(plan_study(overrides), here, lambda: plan_study(overrides))
