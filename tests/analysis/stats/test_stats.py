"""Statistics beyond effects over seeds, each against an independent computation."""

import itertools
import math

import numpy as np
import pytest
from fake_studies import TASK, fabricate
from scipy import stats as scipy_stats

from ablate.runs.study import load_study
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


def several(tmp_path, tasks: list[str], n: int = 5):
    given = {name: TASKS[name] for name in tasks}
    factors, of_task = {"ffn": ["mlp", "swiglu"], "data": tasks}, lambda levels: levels["data"]
    name = fabricate(tmp_path, factors, range(n), task_score, task=of_task, batches=of_task, tasks=given, every=400)
    return load_study(tmp_path, name)


def test_a_guess_is_what_the_metric_says_it_is(tmp_path):
    shares = {"metrics": {"exact": "max", "accuracy": "max"}, "shares": ["exact", "accuracy"]}
    tasks = {"lm": TASK, "copy": TASK | COPY | shares}
    factors, of_task = {"ffn": ["mlp", "swiglu"], "data": ["lm", "copy"]}, lambda levels: levels["data"]
    name = fabricate(tmp_path, factors, range(5), task_score, task=of_task, batches=of_task, tasks=tasks, every=400)
    manifest = load_study(tmp_path, name).manifest
    lm, copy = (next(cell for cell in manifest.cells if cell.task == task) for task in tasks)
    assert stats.multi_task.scale(manifest, copy) == (1.0, 0.0), "nothing is exactly right by chance"
    slope, offset = stats.multi_task.scale(manifest, lm)
    assert np.isclose(slope * 5.5452 + offset, 0, atol=1e-4) and np.isclose(offset, 1)


def test_an_effect_that_depends_on_the_task_is_found_as_welch_finds_it(tmp_path):
    study = several(tmp_path, ["lm", "copy"])
    table = stats.interactions(stats.crossed(study))
    ends = {
        (task, ffn): np.array([scaled(task, task_score({"data": task, "ffn": ffn}, s)) for s in range(5)])
        for task, ffn in itertools.product(("lm", "copy"), ("mlp", "swiglu"))
    }
    gains = {task: ends[task, "swiglu"] - ends[task, "mlp"] for task in ("lm", "copy")}
    expected = scipy_stats.ttest_ind(gains["copy"], gains["lm"], equal_var=False)
    row = table.set_index("task").loc["copy"]
    assert row["mean"] == pytest.approx(np.mean(gains["copy"]) - np.mean(gains["lm"]))
    assert (row["low"], row["high"]) == pytest.approx(tuple(expected.confidence_interval(1 - 0.05 / 2)))
    assert row["p"] == pytest.approx(expected.pvalue) and row["gain"] == pytest.approx(np.mean(gains["copy"]))
    assert row["p_bonferroni"] == pytest.approx(2 * expected.pvalue)


def test_below_five_seeds_tasks_have_no_interval_and_unequal_divergence_no_gain(tmp_path):
    for n in (3, 4):
        few = stats.interactions(stats.crossed(several(tmp_path / f"few{n}", ["lm", "copy"], n)))
        assert few[["p", "p_bonferroni", "low", "high"]].isna().all(axis=None) and few["mean"].notna().all()
        shown = further_table("tasks", few)
        assert not any("[" in text for row in shown.rows.to_numpy() for text in row)
        assert "none below 5 seeds" in shown.notes[0]
    study = several(tmp_path, ["lm", "copy", "recall"])
    cell = next(each.id for each in study.manifest.cells if list(each.levels.values()) == ["swiglu", "copy"])
    study.runs.loc[(study.runs["cell"] == cell) & (study.runs["seed"] < 3), "status"] = "diverged"
    lost = stats.interactions(stats.crossed(study)).set_index("task")
    assert lost[["mean", "low", "p"]].isna().all(axis=None) and lost["gain"].isna().to_dict()["copy"]
    ranks = stats.ranks(stats.crossed(study)).set_index("variant")
    assert list(ranks.loc["swiglu", ["lm", "copy", "recall"]]) == [1, 2, 1], "its two best runs are not its rank"


def test_ranks_are_by_mean_score_on_every_task(tmp_path):
    case = case_of(several(tmp_path, ["lm", "copy", "recall"], 4), tmp_path)
    ranks = case.further["ranks"]
    assert list(ranks["variant"]) == ["SwiGLU", "ReLU MLP"]
    assert list(ranks["mean_rank"]) == [1, 2]
    assert {"tasks", "ranks"} <= case.further.keys()
