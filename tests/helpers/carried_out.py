"""A plan carried out as the command line does it, trained by what a test makes: its exit code."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

from ablate import api
from ablate.cli.sweep import sweep
from ablate.planning.plan import Plan


def carry_out(
    plan: Plan, run_plan: Callable[[Plan], str | None] | None = None, replan: Callable[[], Plan] | None = None
) -> int:
    """Without `run_plan` nothing is trained; without `replan` there is one round."""
    act, again = run_plan or (lambda plan: None), replan or (lambda: plan)
    with patch.object(api, "run_plan", act), patch.object(api, "plan_next", lambda plan: again()):
        return sweep(plan).code
