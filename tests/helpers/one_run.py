"""A study of one run, trained in this process, and what it logged."""

from __future__ import annotations

from ablate.execution.worker import run_unit
from ablate.results.run import Run

VOLATILE = ("seconds",)


def train(plan, stop=lambda: False) -> tuple[str, Run]:
    [unit] = plan.manifest.units
    [status] = run_unit(plan.results, plan.manifest.study, unit, True, stop)
    return status, Run(plan.results, plan.manifest.runs[0].path)


def rows_of(run: Run) -> list[dict]:
    return [{key: value for key, value in row.items() if key not in VOLATILE} for row in run.metrics()[0]]
