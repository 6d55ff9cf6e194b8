"""Runs of a tracking service with settings that people really log: read as what they mean, or refused in one line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ablate import evidence
from ablate.config.errors import Refused
from ablate.results.study import Study
from analysis.sources.logged import Origin, study_of
from analysis.sources.request import Asked
from analysis.sources.tracked_runs import Tracked, logged_runs

PLAIN = {"ffn": ["mlp", "glu"]}


def tracked(i: int, config: dict[str, Any], **more: Any) -> Tracked:
    """A run that logged two steps."""
    history = [{"_step": 0, "test/loss": 3.0}, {"_step": 5, "test/loss": 2 + 0.01 * i + 0.003 * (i * 7 % 3)}]
    run = Tracked(f"id{i}", f"r{i}", "", "", "finished", f"2025-01-0{i + 1}", [], config, {}, history)
    return run._replace(**more)


def read(settings: list[dict[str, Any]], **more: Any) -> Study:
    """The study of eight runs: of two cells, with four seeds where the settings do not say others."""
    runs = [tracked(i, {"seed": i // 2} | each, **more) for i, each in enumerate(settings)]
    return study_of(logged_runs(runs, "", []), Asked(), Origin("s", "W&B", "2025", "-"))


def eight(**settings: list[Any]) -> list[dict[str, Any]]:
    return [{name: levels[i % len(levels)] for name, levels in settings.items()} for i in range(8)]


@pytest.mark.parametrize("name", ["params", "status", "step", "path", "label", "batches", "error", "seconds", "tokens"])
def test_a_setting_called_as_a_column_of_ours_is_a_factor_all_the_same(name: str) -> None:
    study = read(eight(**{name: ["x", "y"]}))
    assert study.manifest.factors == {f"config.{name}": ["x", "y"]}
    assert evidence.effects(study)["n"].tolist() == [4] and set(study.runs["status"]) == {"done"}


@pytest.mark.parametrize("budget", [100, "small", {"flops": 3}, {"params": 3}, None])
def test_a_budget_of_theirs_is_none_of_our_mirror(budget: Any) -> None:
    study = read(eight(**PLAIN, budget=[budget]), job_type="train")
    assert study.manifest.factors == PLAIN and evidence.effects(study)["n"].tolist() == [4]


@pytest.mark.parametrize("seed", [math.nan, math.inf, 1.5, True, "x", None, 2**70, [1]])
def test_a_seed_that_is_none_is_left_out_and_said(seed: Any) -> None:
    settings = eight(**PLAIN)
    settings[7] |= {"seed": seed}
    study = read(settings)
    assert "1 run without a seed left out: r7" in study.notes and evidence.effects(study)["n"].tolist() == [3]
    with pytest.raises(Refused, match="no run has a seed in its configuration"):
        read([each | {"seed": seed} for each in eight(**PLAIN)])


def test_a_seed_that_was_logged_as_text_is_one() -> None:
    study = read([each | {"seed": str(i // 2)} for i, each in enumerate(eight(**PLAIN))])
    assert study.manifest.seeds == [0, 1, 2, 3]


@pytest.mark.parametrize("step", [None, "NaN", "x"])
def test_rows_without_a_step_are_counted(step: Any) -> None:
    history = [{"_step": step, "test/loss": value} for value in (3.0, 2.5)]
    study = read(eight(**PLAIN), history=history)
    assert study.curves["step"].tolist() == [0, 1] * 8 and set(study.runs["test/loss"]) == {2.5}


def test_settings_that_vary_and_are_not_compared_are_said() -> None:
    study = read(eight(**PLAIN, host=list("abcdefgh"), dim=[1, 2]))
    assert study.manifest.factors == PLAIN
    assert study.notes == ["columns that are neither factor nor metric, left out: host, dim"]


def test_an_unknown_state_is_said() -> None:
    study = read(eight(**PLAIN), state="preempted")
    assert set(study.runs["status"]) == {"missing"}
    assert study.notes == ["8 runs in the state preempted, counted as missing: r0, r1, r2, r3, r4, r5, …"]
