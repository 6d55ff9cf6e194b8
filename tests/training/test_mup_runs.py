"""Runs under maximal update parametrization: stopped and continued, compiled, side by side, and what is refused."""

from pathlib import Path

import pytest
from conftest import latest
from one_run import rows_of, trained_anew, write_plan

from ablate.planning.plan import Plan, PlanError, plan_study

WIDE = ("parametrization=mup", "parametrization.base_dim=8", "model.dim=32", "model.heads=4", "seeds=1")


def planned(small: list[str], folder: Path, *words: str) -> Plan:
    plan = plan_study(tuple(latest(*small, *WIDE, f"results_dir={folder}", *words)))
    write_plan(plan)
    return plan


def test_a_stopped_run_continues_to_the_same_numbers(small: list[str], tmp_path: Path, untried: None) -> None:
    """Rates are no part of the optimiser's state alone: each group must have its own again."""
    words = ("optim=adamw", "train.checkpoint_seconds=0", "attention=qk_norm", "schedule=linear")
    plan = planned(small, tmp_path, *words)
    whole = rows_of(trained_anew(plan))
    assert rows_of(trained_anew(plan, 3)) == whole


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("optim=muon", "has no rule for muon"),
        ("attention=mqa parametrization.base_head_dim=4 model.heads=8", "writes 4 features"),
        (
            "attention=gqa attention.kv_heads=4 parametrization.base_head_dim=4 model.heads=8",
            "base_dim: 8 makes no model",
        ),
    ],
)
def test_what_there_is_no_rule_for_is_one_line_of_the_plan(words: str, message: str, small: list[str]) -> None:
    with pytest.raises(PlanError) as error:
        plan_study(tuple(latest(*small, *WIDE, *words.split())))
    [problem] = error.value.problems
    assert str(problem).startswith("parametrization") and message in str(problem) and "\n" not in str(problem)
