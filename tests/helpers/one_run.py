"""Runs and whole sweeps in this process, where processes are not what a test is about, and what a run logged."""

import dataclasses
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ablate import api
from ablate.cli.sweep import Terminal, sweep
from ablate.execution.train_run import train_run
from ablate.planning.plan import Plan, plan_study
from ablate.runs.folder import Run
from ablate.runs.manifest import renew_manifest
from ablate.training.devices import configure_torch

VOLATILE = ("seconds",)


def write_plan(plan: Plan) -> None:
    """Write the manifest of a plan."""
    renew_manifest(plan.results, plan.manifest)


def train_runs(plan: Plan, stop: Callable[[], bool] = lambda: False) -> list[str]:
    """How each run of a plan that is to do ended: done, diverged, failed, or interrupted."""
    configure_torch()
    return [train_run(dataclasses.replace(order, wait=True), stop) for order in plan.orders()]


def train(plan: Plan, stop: Callable[[], bool] = lambda: False) -> tuple[str, Run]:
    [status] = train_runs(plan, stop)
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


def numbers(results: Path) -> dict[str, tuple[Any, ...]]:
    """All that the ended runs of a folder have measured, by run."""
    measured = {}
    for file in results.glob("runs/*/*/result.json"):
        run = Run(results, str(file.parent.relative_to(results / "runs")))
        result = run.result()
        assert result and not run.metrics()[1], "torn lines"
        measured[run.path] = (result.status, result.final, result.documents, rows_of(run))
    return measured


def carry_out(
    plan: Plan, run_plan: Callable[[Plan], str | None] | None = None, replan: Callable[[], Plan] | None = None
) -> int:
    """A plan carried out as by the command line, but for the live view and what `--json` prints: its exit code.

    Without `run_plan` nothing is trained, without `replan` there is one round.
    """
    act, again = run_plan or (lambda plan: None), replan or (lambda: plan)
    with (
        patch.object(api, "run_plan", act),
        patch("ablate.planning.plan.plan_again", lambda plan: again()),
        patch.object(Terminal, "training", lambda terminal, plan: nullcontext()),
        patch("ablate.cli.sweep.verdicts", lambda study: {}),
    ):
        return sweep(plan).code


def here(plan: Plan) -> None:
    """Trains a plan's runs in this process, one after another."""
    train_runs(plan)


def sweep_here(*words: str) -> int:
    """A command line carried out as `python -m ablate` does, but for its processes: the exit code."""
    with patch.object(api, "run_plan", here):
        return sweep(plan_study([word for word in words if word != "-m"])).code
