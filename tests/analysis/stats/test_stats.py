"""Statistics beyond effects over seeds, each against an independent computation."""

import math

import numpy as np
import pytest
from fake_studies import TASK, study_of
from scipy import stats as scipy_stats

from analysis import stats
from analysis.case import case_of
from analysis.writing.tables import further_table

COPY = {"title": "copy", "metrics": {"accuracy": "max", "loss": "min"}, "yardsticks": {"chance": math.log(4)}}
TASKS = {"lm": TASK, "copy": TASK | COPY, "recall": TASK | {"title": "recall", "yardsticks": {"chance": 2.0}}}
GAIN = {"lm": -0.1, "copy": 0.2, "recall": -0.1}  # of swiglu over mlp


def task_score(levels: dict, seed: int) -> float:
    task, ffn = levels["data"], levels["ffn"]
    own = np.random.default_rng([seed, *f"{task}{ffn}".encode()]).normal(0, 0.01)
    return {"lm": 2.0, "copy": 0.6, "recall": 1.0}[task] + GAIN[task] * (ffn == "swiglu") + own


def scaled(task: str, score: float) -> float:
    if task == "copy":
        return (score - 0.25) / 0.75
    chance = {"lm": 5.5452, "recall": 2.0}[task]
    return 1 - score / chance


def several(tasks: list[str], n: int = 5):
    of_task = lambda levels: levels["data"]  # noqa: E731
    facts = {name: TASKS[name] for name in tasks}
    factors = {"ffn": ["mlp", "swiglu"], "data": tasks}
    return study_of(factors, range(n), task_score, task=of_task, batches=of_task, tasks=facts)


def test_nothing_is_exactly_right_by_chance(tmp_path):
    shares = {"metrics": {"exact": "max", "accuracy": "max"}, "shares": ["exact", "accuracy"]}
    tasks = {"lm": TASK, "copy": TASK | COPY | shares}
    of_task = lambda levels: levels["data"]  # noqa: E731
    manifest = study_of({"ffn": ["mlp"], "data": ["lm", "copy"]}, task=of_task, tasks=tasks).manifest
    scales = [stats.multi_task.scale(manifest, cell) for cell in manifest.cells]
    assert scales == [pytest.approx((-1 / 5.5452, 1)), (1, 0)]


def test_an_effect_that_depends_on_the_task_is_found_as_welch_finds_it():
    gains = {}
    for task in ("lm", "copy"):
        ends = {}
        for ffn in ("mlp", "swiglu"):
            ends[ffn] = np.array([scaled(task, task_score({"data": task, "ffn": ffn}, seed)) for seed in range(5)])
        gains[task] = ends["swiglu"] - ends["mlp"]
    expected = scipy_stats.ttest_ind(gains["copy"], gains["lm"], equal_var=False)
    row = stats.interactions(stats.crossed(several(["lm", "copy"]))).set_index("task").loc["copy"]
    assert row["gain"] == pytest.approx(gains["copy"].mean())
    assert row["mean"] == pytest.approx(gains["copy"].mean() - gains["lm"].mean())
    assert (row["low"], row["high"]) == pytest.approx(tuple(expected.confidence_interval(1 - 0.05 / 2)))
    assert (row["p"], row["p_bonferroni"]) == pytest.approx((expected.pvalue, 2 * expected.pvalue))


@pytest.mark.parametrize("n", [3, 4])
def test_below_five_seeds_tasks_have_no_interval(n):
    few = stats.interactions(stats.crossed(several(["lm", "copy"], n)))
    assert few[["p", "p_bonferroni", "low", "high"]].isna().all(axis=None)
    assert few["mean"].notna().all()
    table = further_table("tasks", few)
    assert not table.rows.map(lambda text: "[" in text).any(axis=None)
    assert "none below 5 seeds" in table.notes[0]


def test_where_runs_diverged_unequally_there_is_no_gain():
    study = several(["lm", "copy", "recall"])
    is_lost = (study.runs["ffn"] == "swiglu") & (study.runs["data"] == "copy") & (study.runs["seed"] < 3)
    study.runs.loc[is_lost, "status"] = "diverged"
    lost = stats.interactions(stats.crossed(study)).set_index("task")
    assert lost[["mean", "low", "p"]].isna().all(axis=None)
    assert math.isnan(lost.loc["copy", "gain"])
    ranks = stats.ranks(stats.crossed(study)).set_index("variant")
    assert list(ranks.loc["swiglu", ["lm", "copy", "recall"]]) == [1, 2, 1], "its two best runs are not its rank"


def test_ranks_are_by_mean_score_on_every_task(tmp_path):
    case = case_of(several(["lm", "copy", "recall"], 4), tmp_path)
    ranks = case.further["ranks"]
    assert list(ranks["variant"]) == ["SwiGLU", "ReLU MLP"]
    assert list(ranks["mean_rank"]) == [1, 2]
    assert {"tasks", "ranks"} <= case.further.keys()
