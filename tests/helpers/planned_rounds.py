"""The rounds of a command, carried out with results written by hand instead of trained."""

import math
from collections.abc import Callable
from typing import Any

from one_run import carry_out, write_plan

from ablate.planning.plan import Plan, plan_again
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.key import provenance

Score = Callable[[dict[str, Any], float, int], float | None]  # of levels, learning rate and seed
ALL = 10**6
TUNING = 10**6  # the first seed of tuning
BOWL = {"ln": 3e-3, "rms": 1e-2, "bn": 3e-3}  # where the loss of each norm is lowest


def bowl(levels: dict[str, Any], lr: float, seed: int) -> float:
    """A loss that is lowest at the cell's own learning rate, with noise that tuning seeds share and others do not."""
    steepness = 3 if levels["norm"] == "rms" else 1
    loss = 2.0 + steepness * abs(lr - BOWL[levels["norm"]]) + seed % 7 / 1000
    return loss + (seed + 1) / 1e4 if levels["norm"] == "rms" and seed < 10 else loss


def write(plan: Plan, score: Score = bowl, most: int = ALL, **metrics: int) -> int:
    """Results for the first `most` runs to do: each metric so many times the score; NaN means diverged, None failed.

    Test scores of tuning runs must never matter.
    """
    cells = {cell.id: cell for cell in plan.manifest.cells}
    todo = [run for run in plan.manifest.runs if run.path in plan.todo][:most]
    for run in todo:
        rate = cells[run.cell].planned_config.optim.lr
        value = score(cells[run.cell].levels, rate, run.seed)
        result: dict[str, Any] = {"status": "done", "final": {}, "error": None}
        if value is None:
            result["status"] = "failed"
        elif math.isnan(value):
            result["status"] = "diverged"
        else:
            for name, factor in (metrics or {"loss": 1}).items():
                result["final"][f"val/{name}"] = factor * value
                result["final"][f"test/{name}"] = factor * (-100.0 * rate if run.seed >= TUNING else value)
        write_json(Run(plan.results, run.path).result_file, result)
    return len(todo)


def rounds(
    plan: Callable[..., Plan], *words: str, score: Score = bowl, stop_after: int | None = None, **metrics: int
) -> tuple[int, list[Plan], int]:
    """Carry a command out as the sweeper does: exit code, its rounds, and how many runs were trained.

    `metrics` are the task's, `loss` where none are given; see `write`.
    """
    plans: list[Plan] = []
    trained = 0

    def next_plan() -> Plan:
        plans.append(plan_again(plans[-1]) if plans else plan(*words))
        return plans[-1]

    def launch(_: Plan) -> None:
        nonlocal trained
        trained += write(plans[-1], score, ALL if stop_after is None else stop_after - trained, **metrics)
        if trained == stop_after:
            raise KeyboardInterrupt

    code = carry_out(next_plan(), launch, next_plan)
    return code, plans, trained


def finish(plan: Plan, status: str = "done") -> list[Run]:
    """Record a plan and end its runs by hand, with provenance and weights, as their workers would."""
    write_plan(plan)
    cells = {cell.id: cell for cell in plan.manifest.cells}
    finished = []
    for planned in plan.manifest.runs:
        if planned.path not in plan.todo:
            continue
        run = Run(plan.results, planned.path)
        cell = cells[planned.cell]
        run.folder.mkdir(parents=True, exist_ok=True)
        run.weights_file.touch()
        write_json(run.provenance_file, provenance(cell.planned_config, planned.seed, cell.task).as_json())
        final = {"test/loss": 2.0}
        write_json(run.result_file, {"status": status, "final": final, "error": None, "ended": "2025-01-01"})
        finished.append(run)
    return finished


def notes_of(plan: Plan) -> str:
    """All notes of a plan and of its cells."""
    notes = list(plan.notes)
    for cell in plan.manifest.cells:
        notes += cell.notes
    return "\n".join(notes)
