"""Beside the interval: pair correlation, what could be found, lost runs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from claimed_studies import entry, noisy
from fake_studies import TASK, Levels, edit_json, fabricate, study_of, with_manifest
from scipy import stats
from statsmodels.stats.anova import AnovaRM
from statsmodels.stats.power import TTestPower

from ablate import evidence
from ablate.runs.folder import Run
from ablate.runs.study import Study, load_study

GRID: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
NORM: dict[str, list[Any]] = {"norm": ["ln", "rms"]}
NOISE = np.random.default_rng(3).normal(0, 0.01, (30, 9))


def score(levels: Levels, seed: int) -> float:
    """An effect of each factor, an interaction, noise that a seed shares and noise of each cell's own."""
    one, two = (GRID[name].index(levels[name]) if name in levels else 0 for name in GRID)
    size = {16: 1, 32: 3}[levels.get("train.batch_size", 16)]
    own = NOISE[seed, one + 2 * two + size] * size
    return float(2 - 0.02 * two + 0.005 * one + 0.008 * one * two + NOISE[seed, 8] + own)


def of(study: Study, label: str, **how: Any) -> Any:
    table = evidence.effects(study, **how)
    return next(table[table["label"] == label].itertuples())


def test_sizes_of_a_paired_effect_against_other_formulas():
    study = study_of(GRID, range(9), score)
    found, values = of(study, "ffn: swiglu − mlp"), evidence.scores(study).to_numpy()
    level, base = values[:, [1, 3]].mean(1), values[:, [0, 2]].mean(1)
    assert found.correlation == pytest.approx(stats.pearsonr(level, base).statistic)
    unpaired = np.var(level, ddof=1) + np.var(base, ddof=1)
    assert found.pairing_ratio == pytest.approx(found.sd**2 / unpaired)
    known = TTestPower().solve_power(None, 9, found.alpha, 0.8)  # were the SD known
    assert 1.1 < found.smallest / found.sd / known < 1.15 and found.alpha == pytest.approx(0.05 / 3)


@pytest.mark.parametrize(("seeds", "is_known"), [(2, False), (3, True)])
def test_what_pairing_saved_is_known_from_three_seeds_on(seeds, is_known):
    found = of(study_of(NORM, range(seeds), score), "norm: rms − ln")
    assert math.isfinite(found.pairing_ratio) == is_known


def test_an_unpaired_effect_finds_what_its_own_error_and_degrees_of_freedom_find():
    study = study_of({"train.batch_size": [16, 32]}, range(8), score, batches=str)
    found, values = of(study, "train.batch_size: 32 − 16"), evidence.scores(study).to_numpy().T
    expected = stats.ttest_ind(values[1], values[0], equal_var=False)
    error = found.mean / expected.statistic
    shift, limit = found.smallest / error, stats.t.isf(0.025, expected.df)
    spread = np.sqrt(np.random.default_rng(0).chisquare(expected.df, 20_000) / expected.df)
    assert stats.nct.sf(limit, expected.df, shift * spread).mean() == pytest.approx(0.8, abs=0.005)
    assert math.isnan(found.correlation) and math.isnan(found.pairing_ratio) and not found.paired


def test_sides_that_differ_by_rounding_alone_are_tied():
    losses = {("rms", "swiglu"): 0.1, ("ln", "mlp"): 0.2, ("rms", "mlp"): 0.3, ("ln", "swiglu"): 0.0}  # 0.1 + 0.2 > 0.3
    found = of(study_of(GRID, range(5), lambda levels, seed: losses[levels["norm"], levels["ffn"]]), "norm × ffn")
    assert (found.mean, found.lower, found.higher, found.tied) == (0, 0, 0, 5)


def test_runs_without_a_number_are_counted_by_effect():
    ends = {("rms", 1): "failed", ("ln", 2): "missing", ("ln", 3): "running"}
    study = study_of(NORM, range(6), status=lambda levels, seed: ends.get((levels["norm"], seed), "done"))
    found = of(study, "norm: rms − ln")
    assert (found.failed, found.missing, found.n) == (1, 2, 3)


TASKS = {"f0": TASK, "f1": TASK | {"title": "dates", "token": "token", "metrics": {"accuracy": "max", "loss": "min"}}}


def two_tasks(**options: Any) -> Study:
    """A language model and a task measured by accuracy: swiglu is better at both."""

    def score(levels: dict[str, Any], seed: int) -> float:
        gain = 0.05 * (levels["ffn"] == "swiglu") + 0.1 * NOISE[seed, len(levels["ffn"])]
        return 2 - gain if levels["data"] == "stdlib" else 0.6 + gain

    factors = {"data": ["stdlib", "dates"], "ffn": ["mlp", "swiglu"]}
    return study_of(factors, seeds=range(6), score=score, tasks=TASKS, task=by_data, **options)


def by_data(levels: dict[str, Any]) -> str:
    return {"stdlib": "f0", "dates": "f1"}[levels["data"]]


def test_each_stratum_is_compared_by_the_metric_of_its_own_task():
    study = two_tasks()
    table = evidence.effects(study).set_index("stratum")
    assert list(table["metric"]) == ["test/loss", "test/accuracy"] and list(table["lower_is_better"]) == [True, False]
    assert list(table["verdict"]) == ["better", "better"]
    assert table.loc["data=stdlib", "mean"] < 0 < table.loc["data=dates", "mean"]
    cells = evidence.cells(study)
    assert list(cells["metric"]) == ["test/loss"] * 2 + ["test/accuracy"] * 2
    assert cells["mean"].to_numpy()[2:] == pytest.approx([0.6, 0.65], abs=0.01)


def test_the_metric_is_what_is_asked_for_or_each_tasks_own():
    study = two_tasks()
    table = evidence.effects(study, "test/accuracy")
    assert list(table["metric"]) == ["test/accuracy"] * 2 and list(table["n"]) == [0, 6]
    manifest = two_tasks(endpoint="test/bpb").manifest
    assert set(evidence.endpoints(manifest).values()) == {"test/bpb"}
    # Runs of other programs log names without a split, and on splits of their own.
    study = study_of(NORM, endpoint="eval_loss")
    assert evidence.endpoints(study.manifest) == {"c0": "eval_loss", "c1": "eval_loss"}


def test_tasks_are_never_compared_with_each_other():
    factors = {"data": ["stdlib", "dates"]}
    (found,) = evidence.effects(study_of(factors, tasks=TASKS, task=by_data)).itertuples()
    assert found.verdict == "withheld" and "different tasks" in found.note
    assert found.metric == "test/accuracy, test/loss"


def test_a_tuning_study_compares_each_task_on_the_split_it_is_tuned_by():
    study = two_tasks(endpoint="val/loss")
    assert list(evidence.endpoints(study.manifest).values()) == ["val/loss"] * 2 + ["val/accuracy"] * 2
    assert list(evidence.effects(study)["verdict"]) == ["better", "better"]


def test_a_balanced_grid_is_an_analysis_of_variance_with_repeated_measures():
    study = study_of(GRID, range(9), score)
    runs = study.runs.rename(columns={"test/loss": "loss"})
    reference = AnovaRM(runs, "loss", "seed", within=["norm", "ffn"]).fit().anova_table
    table = evidence.effects(study).query("family").set_index("factor")
    for ours, theirs in (("norm", "norm"), ("ffn", "ffn"), ("norm x ffn", "norm:ffn")):
        found, expected = table.loc[ours], reference.loc[theirs]
        assert found["p"] == pytest.approx(expected["Pr > F"]) and found["family"] and found["paired"]
        assert found["n"] - 1 == expected["Den DF"]


def test_an_unpaired_main_effect_is_welchs_on_each_sides_means_over_seeds():
    """Cells that share batches pair within their side; a lost run takes its seed out of that side."""
    factors = {"train.batch_size": [16, 32], "ffn": ["mlp", "swiglu"]}
    lost = lambda levels, seed: "failed" if (*levels.values(), seed) == (32, "swiglu", 3) else "done"  # noqa: E731
    study = study_of(factors, range(8), score, lost, batches=lambda levels: str(levels["train.batch_size"]))
    # Compared, as reference= makes it, not a stratum.
    study = with_manifest(study, reference=study.manifest.reference | {"train.batch_size": 16})
    table = evidence.effects(study).set_index("factor")
    values = evidence.scores(study).to_numpy()
    base, large = values[:, :2].mean(1), values[:, 2:].mean(1)
    expected = stats.ttest_ind(large[~np.isnan(large)], base, equal_var=False)
    found = table.loc["train.batch_size"]
    assert not found["paired"] and found["n"] == 7 and found["p"] == pytest.approx(expected.pvalue)
    assert table.loc["ffn", "paired"] and table.loc["train.batch_size x ffn", "paired"]


def test_a_missing_run_takes_its_seed_out_of_every_main_effect_that_needs_it():
    lost = lambda levels, seed: "missing" if (*levels.values(), seed) == ("rms", "mlp", 2) else "done"  # noqa: E731
    study = study_of(GRID, range(7), score, lost)
    whole = evidence.scores(study).dropna().to_numpy()
    table = evidence.effects(study).set_index("label")
    expected = stats.ttest_rel(whole[:, [1, 3]].mean(1), whole[:, [0, 2]].mean(1))
    found = table.loc["ffn: swiglu − mlp"]
    assert (found["n"], found["missing"]) == (6, 1) and found["p"] == pytest.approx(expected.pvalue)
    assert table.loc["ln + swiglu against ln + mlp", "n"] == 7  # needs no cell that lost a run


@pytest.mark.parametrize(("unit", "is_cut"), [(1, True), (100, False)])
def test_intervals_of_shares_end_at_one(unit, is_cut):
    """But not of shares in per cent."""
    tasks = {"f0": TASK | {"metrics": {"accuracy": "max", "loss": "min"}}}

    def share(levels: dict[str, Any], seed: int) -> float:
        return unit * ([0.9, 1.0, 0.1][seed] if levels["norm"] == "rms" else 0.02 * seed)

    (row,) = evidence.effects(study_of(NORM, score=share, tasks=tasks)).itertuples()
    assert row.n == 3
    assert (row.high == 1) == is_cut


def test_the_family_counts_rows_that_have_no_p():
    """A diverged run leaves one of three comparisons without a number: the others keep their 0.05/3."""
    lost = lambda levels, seed: "diverged" if (levels["residual"], seed) == ("post", 0) else "done"  # noqa: E731
    study = study_of(GRID | {"residual": ["pre", "post"]}, range(8), score, lost, design="one_at_a_time")
    table = evidence.effects(study)
    assert table["family"].all() and list(table["p"].isna()) == [False, False, True]
    assert table["alpha"].to_numpy() == pytest.approx([0.05 / 3] * 3)
    losses = study.runs.pivot(index="seed", columns="label", values="test/loss")
    difference = losses["rms + mlp + pre"] - losses["ln + mlp + pre"]
    row = table.iloc[0]
    assert row["p"] == pytest.approx(stats.ttest_1samp(difference, 0).pvalue)
    interval = stats.ttest_1samp(difference, 0).confidence_interval(1 - 0.05 / 3)
    assert (row["low"], row["high"]) == pytest.approx(tuple(interval))
    assert table["p_bonferroni"].to_numpy() == pytest.approx(np.minimum(3 * table["p"], 1), nan_ok=True)


@pytest.mark.parametrize(
    ("lost", "uneven"),
    [
        ({"mlp": 1, "silu": 1, "swiglu": 1}, False),  # 1 of 8 on one side, 2 of 16 on the other: the same share
        ({"mlp": 1, "silu": 1}, True),  # 1 of 8 against 1 of 16: the same number
        ({"mlp": 2, "silu": 3, "swiglu": 1}, False),
        ({"silu": 1}, True),
    ],
)
def test_which_loss_of_runs_is_uneven_is_told_by_shares_not_by_counts(lost, uneven):
    claims = {"higher": entry({"greater": [{"ffn": "mlp"}, {"ffn": ["silu", "swiglu"]}]})}
    status = lambda levels, seed: "diverged" if seed < lost.get(levels["ffn"], 0) else "done"  # noqa: E731
    study = study_of({"ffn": ["mlp", "silu", "swiglu"]}, range(8), noisy, status, claims=claims)
    (row,) = evidence.claims(study).itertuples()
    assert (row.diverged, row.diverged_reference) == (lost.get("mlp", 0), sum(lost.values()) - lost.get("mlp", 0))
    assert math.isnan(row.low) == uneven
    assert row.verdict == ("undecided" if uneven else "supported")


def test_a_crossing_whose_cells_are_not_all_there_is_left_out():
    whole = study_of(NORM | {"optim.warmup": [0, 40]})
    crossed = [each for each in evidence.contrasts(whole.manifest) if "optim.warmup" in each.factor]
    assert crossed and all(each.weights for each in crossed)
    torn = replace(whole.manifest, cells=whole.manifest.cells[:-1])
    assert not [each for each in evidence.contrasts(torn) if "optim.warmup" in each.factor or not each.weights]


METRIC = "train/step_seconds"
FACTORS = {"ffn": ["mlp", "swiglu"]}


def timed(**more: Any) -> Study:
    return study_of(FACTORS, seeds=range(5), timing="isolated", **more)


def test_an_effect_on_seconds_is_a_t_interval_of_differences_within_seeds():
    study = timed(margin={"value": 1.0, "registered": True}, batches=lambda levels: levels["ffn"])
    [row] = evidence.speed(study).itertuples()
    seconds = study.runs.pivot(index="seed", columns="label", values=METRIC)
    difference = seconds["swiglu"] - seconds["mlp"]
    low, high = stats.t.interval(0.95, 4, difference.mean(), stats.sem(difference))
    assert (row.low, row.high) == pytest.approx((low, high)) and row.paired, "whatever their batches are"
    assert row.verdict == "worse", "slower, and the endpoint's margin says nothing of it"
    assert not evidence.effects(study)["paired"].any()
    shared = study_of(FACTORS)
    assert evidence.speed(shared).empty and METRIC not in shared.runs


def test_seeds_whose_cells_were_not_timed_in_one_go_are_left_out(tmp_path):
    """Nor those of a run that was continued, in the sitting of its partners, or of two that were."""
    fabricate(tmp_path, FACTORS, range(5), timing="isolated")
    files = [Run(tmp_path, path).result_file for path in timed().runs.query("seed == 3")["path"]]
    continued = {"sitting": "here", "resumed": 1}
    both = [continued | {"started": f"2026-01-01T0{i}:00:00"} for i in range(len(files))]
    for changes in ([{"sitting": "another day"}], [continued], both):
        for file, change in zip(files, changes, strict=False):
            edit_json(file, lambda told, change=change: told.update(change))
        study = load_study(tmp_path, "fabricated")
        [note] = study.notes
        assert "1 seed (3)" in note and "speed" in note and evidence.speed(study)["n"].tolist() == [4]
        assert evidence.effects(study)["n"].tolist() == [5], "the losses are as good as any"


@pytest.mark.parametrize(("metric", "verdict"), [("test/loss", "worse"), (METRIC, "estimate only")])
def test_speed_is_judged_unless_claims_judge_it(metric, verdict):
    claim = {"less": [{"ffn": "mlp"}, {"ffn": "swiglu"}], "metric": metric}
    assert [*evidence.speed(timed(claims={"lower": entry(claim)}))["verdict"]] == [verdict]
