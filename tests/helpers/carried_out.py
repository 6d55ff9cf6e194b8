"""A plan carried out as the command line does it, with a launcher that a test makes: its exit code."""

from __future__ import annotations

from collections.abc import Callable

from ablate import api
from ablate.cli.sweep import Terminal, exit_code
from ablate.planning.plan import Plan


def carry_out(plan: Plan, launch: api.Launch | None = None, replan: Callable[[], Plan] | None = None) -> int:
    """Without a launcher nothing is trained; without `replan` there is one round."""
    terminal = Terminal()
    act = launch or (lambda jobs: None)
    return exit_code(plan, terminal, lambda: api.carry_out(plan, act, replan or (lambda: plan), terminal))
