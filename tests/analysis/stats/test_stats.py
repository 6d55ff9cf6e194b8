"""Statistics beyond effects over seeds, each against an independent computation."""

import itertools
import json
import math

import numpy as np
import pytest
from fake_studies import TASK, fabricate
from scipy import stats as scipy_stats

from ablate import evidence
from ablate.results.atomic import write_json
from ablate.results.run import Run
from ablate.results.study import load_study
from analysis import stats
from analysis.case import case_of
from analysis.stats.documents import clustered
from analysis.writing.sheet import markdown
from analysis.writing.tables import further_sheets

TOKENS = [320, 64, 1408, 640, 96, 512]


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """A symmetric matrix to a power, zero eigenvalues left at zero."""
    values, vectors = np.linalg.eigh(matrix)
    known = values > 1e-9 * values.max()
    return (vectors[:, known] * values[known] ** exponent) @ vectors[:, known].T


def bias_reduced(y: np.ndarray, groups: np.ndarray, working: np.ndarray) -> tuple[float, float]:
    """Error and degrees of freedom of the mean of y by CR2 in matrices (Pustejovsky & Tipton 2018)."""
    count = len(y)
    x = np.ones((count, 1))
    residual = np.eye(count) - x @ x.T / count
    rows, error = [], 0.0
    for group in np.unique(groups):
        own = groups == group
        root = power(working[np.ix_(own, own)], 0.5)
        inner = root @ residual[own] @ working @ residual[own].T @ root
        adjusted = x[own].T @ root @ power(inner, -0.5) @ root @ residual[own] / count
        rows.append(adjusted[0])
        error += float(adjusted[0] @ y) ** 2
    form = np.array(rows) @ working @ np.array(rows).T
    return math.sqrt(error), float(np.trace(form) ** 2 / np.sum(form**2))


def test_the_interval_over_documents_is_the_bias_reduced_one_of_a_regression_of_one_size_students():
    rng, tokens = np.random.default_rng(0), np.array([5, 1, 22, 10, 2, 8])
    means = rng.normal(-0.05, 0.03, len(tokens))
    mean, low, high = clustered(means * tokens, tokens.astype(float), 0.01)
    groups = np.repeat(np.arange(len(tokens)), tokens)
    # Each document's tokens share what makes its sum vary as N^1.5.
    working = np.where(groups[:, None] == groups, tokens[groups] ** -0.5, 0.0)
    error, df = bias_reduced(means[groups], groups, working)
    assert mean == pytest.approx(means @ tokens / tokens.sum()) and 1 < df < 3
    half = scipy_stats.t.isf(0.005, df) * error
    assert (low, high) == pytest.approx((mean - half, mean + half))
    values = np.random.default_rng(0).normal(size=9)
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.98)
    assert clustered(values * 64, np.full(9, 64.0), 0.02)[1:] == pytest.approx(tuple(expected))


def with_documents(results, name: str, names=None) -> None:
    """Gives each run losses by document whose mean over tokens is its test loss."""
    for i, run in enumerate(load_study(results, name).runs.itertuples()):
        file = Run(results, run.path).result_file
        result = json.loads(file.read_text())
        if not result["final"]:
            continue
        own = np.random.default_rng(i).normal(0, 0.1, len(TOKENS))
        losses = result["final"]["test/loss"] + own - np.average(own, weights=TOKENS)
        result["documents"] = {
            "test": {"name": names or [f"d{k}" for k in range(6)], "tokens": TOKENS, "loss": losses.tolist()}
        }
        write_json(file, result)


def test_effects_over_documents_have_the_means_of_effects_over_seeds(tmp_path):
    lost = lambda levels, seed: "failed" if (levels["ffn"], seed) == ("swiglu", 1) else "done"  # noqa: E731
    name = fabricate(tmp_path, {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}, range(4), status=lost)
    assert "documents" not in case_of(load_study(tmp_path, name), tmp_path).further
    with_documents(tmp_path, name)
    case = case_of(load_study(tmp_path, name), tmp_path)
    table = case.further["documents"].set_index("label")
    for row in case.effects.itertuples():
        assert table.loc[row.label, "mean"] == pytest.approx(row.mean, abs=1e-9)
        assert table.loc[row.label, "low"] < row.mean < table.loc[row.label, "high"]
    assert set(table["documents"]) == {6} and set(table["tokens"]) == {sum(TOKENS)}
    (shown,) = further_sheets({"documents": case.further["documents"]}, case.effects)
    assert "| over documents |" in markdown(shown) and "FFN: SwiGLU − ReLU MLP" in markdown(shown)


def test_cells_that_were_tested_on_other_documents_have_no_such_interval(tmp_path):
    name = fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]})
    with_documents(tmp_path, name)
    file = Run(tmp_path, load_study(tmp_path, name).runs["path"].iloc[0]).result_file
    result = json.loads(file.read_text())
    result["documents"]["test"]["name"][0] = "another"
    write_json(file, result)
    study = load_study(tmp_path, name)
    assert study.documents.index.unique("text").tolist() == [0, 1]
    assert stats.documents(study, evidence.effects(study)) is None


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
    assert row["p_holm"] == pytest.approx(2 * expected.pvalue)
    assert stats.aggregate(stats.crossed(study), np.random.default_rng(0)) is None, "two tasks are few"


def test_below_five_seeds_tasks_have_no_interval_and_unequal_divergence_no_gain(tmp_path):
    for n in (3, 4):
        few = stats.interactions(stats.crossed(several(tmp_path / f"few{n}", ["lm", "copy"], n)))
        assert few[["p", "p_holm", "low", "high"]].isna().all(axis=None) and few["mean"].notna().all()
        (shown,) = further_sheets({"tasks": few}, few)
        assert not any("[" in cell for row in shown.rows for cell in row) and "none below 5 seeds" in shown.notes[0]
    study = several(tmp_path, ["lm", "copy", "recall"])
    cell = next(each.id for each in study.manifest.cells if list(each.levels.values()) == ["swiglu", "copy"])
    study.runs.loc[(study.runs["cell"] == cell) & (study.runs["seed"] < 3), "status"] = "diverged"
    lost = stats.interactions(stats.crossed(study)).set_index("task")
    assert lost[["mean", "low", "p"]].isna().all(axis=None) and lost["gain"].isna().to_dict()["copy"]
    ranks = stats.ranks(stats.crossed(study)).set_index("variant")
    assert list(ranks.loc["swiglu", ["lm", "copy", "recall"]]) == [1, 2, 1], "its two best runs are not its rank"


def test_ranks_and_one_number_over_three_tasks(tmp_path):
    case = case_of(several(tmp_path, ["lm", "copy", "recall"], 4), tmp_path)
    ranks = case.further["ranks"]
    assert list(ranks["variant"]) == ["SwiGLU", "ReLU MLP"] and list(ranks["mean_rank"]) == [1, 2]
    table = case.further["aggregate"].set_index("variant")
    for ffn, name in (("mlp", "ReLU MLP"), ("swiglu", "SwiGLU")):
        every = sorted(scaled(task, task_score({"data": task, "ffn": ffn}, s)) for task in TASKS for s in range(4))
        assert table.loc[name, "iqm"] == pytest.approx(np.mean(every[3:9]))
        assert table.loc[name, "low"] < table.loc[name, "iqm"] < table.loc[name, "high"]
    again = stats.aggregate(stats.crossed(case.study), np.random.default_rng(0)).set_index("variant")
    assert table.equals(again), "the same draws, the same interval"
    pages = {sheet.name: markdown(sheet) for sheet in further_sheets(dict(case.further), case.effects)}
    assert {"tasks", "ranks", "aggregate"} <= pages.keys() and "interquartile mean" in pages["aggregate"]


def test_the_interval_of_few_runs_over_all_tasks_is_wide_enough(monkeypatch):
    """Of three runs of three tasks the plain percentiles hold the truth in 82 and 87 %."""
    monkeypatch.setattr(stats.multi_task, "RESAMPLES", 400)
    rng, times, means = np.random.default_rng(0), 250, (0.4, 0.5, 0.6)
    truth = scipy_stats.trim_mean(rng.normal(np.repeat(means, 50_000), 0.02), 0.25)
    spans = [stats.multi_task.bootstrap([rng.normal(mean, 0.02, 3) for mean in means], rng) for _ in range(times)]
    assert 0.91 < np.mean([low <= truth <= high for low, high in spans]) < 0.99
