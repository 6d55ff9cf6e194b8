"""Tokens are counted from the batches: in logs, results, plans and budgets, of the curriculum of the how-to page."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import latest
from one_run import after, rows_of, train_runs, write_plan
from own_module import write_module
from page_code import code

from ablate.cli.preview import preview
from ablate.execution.train_run import train_run
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run
from ablate.runs.study import load_study

# of the small study: rows of a batch, and data.context
ROWS = 4
LONG = 16
LENGTHS = [4, 4, 8, 8, 16, 16]  # of its six steps, from `start` 4 doubling each second


@pytest.fixture
def own(tmp_path, small, monkeypatch, checks_here) -> list[str]:
    """A command line that has the curriculum of the how-to page."""
    name = write_module(tmp_path, monkeypatch, code("own-task.md", "python")[1], "data", {})
    settings = yaml.safe_load(code("own-task.md", "yaml")[1])
    settings |= {"_target_": f"{name}.Growing", "start": 4, "period": 2}
    (tmp_path / "conf" / "data" / "growing.yaml").write_text(f"# Mine.\n{yaml.safe_dump(settings)}")
    return [*small, f"user=[{name}]"]


def planned(own: list[str], tmp_path: Path, *words: str) -> Any:
    return plan_study(tuple(latest(*own, *words)), str(tmp_path / "conf"))


def test_tokens_are_those_that_were_seen_also_when_continued(own, tmp_path, untried):
    words = ("data=text,growing", "seeds=1", "study=grown", "train.checkpoint_seconds=0", "train.log_every=1")
    plan = planned(own, tmp_path, *words)
    assert "6 steps of 64 and 37 tokens" in preview(plan), "rounded: 37.33"
    write_plan(plan)
    train_runs(plan)
    study = load_study(tmp_path / "results", "grown")
    text, growing = study.manifest.cells
    assert text.task == growing.task and text.batches == growing.batches and text.shared_draws == 1
    assert (text.tokens_per_step, growing.tokens_per_step) == (ROWS * LONG, pytest.approx(ROWS * sum(LENGTHS) / 6))
    ends = study.curves.groupby("cell")["tokens"].max()
    assert ends[text.id] == 6 * ROWS * LONG and ends[growing.id] == ROWS * sum(LENGTHS)
    [order] = [order for order in plan.orders() if order.cell.id == growing.id]
    run = Run(plan.results, order.path)
    rows = rows_of(run)
    assert {row["step"]: row["tokens"] for row in rows} == {n: ROWS * sum(LENGTHS[:n]) for n in range(7)}
    assert run.result().tokens == ROWS * sum(LENGTHS)
    shutil.rmtree(run.folder)
    assert [train_run(order, after(stops)) for stops in (3, 99)] == ["interrupted", "done"]
    assert rows_of(run) == rows and run.result().tokens == ROWS * sum(LENGTHS)


def test_equal_flops_are_counted_over_the_batches(own, tmp_path, untried):
    words = ("data=text,growing", "match=flops_total", "train.steps=20")
    text, growing = planned(own, tmp_path, *words).manifest.cells
    assert text.flops_per_token == growing.flops_per_token
    # Two steps of 4 tokens and two of 8 lack as many as 2.5 steps have: 22 and 23 are as near, and 22 are fewer.
    assert growing.config.train.steps == 22
    assert growing.tokens_per_step * 22 == ROWS * (sum(LENGTHS[:4]) + 18 * LONG)
