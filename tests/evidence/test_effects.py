"""Effects, intervals and verdicts against independent computation and against cases worked by hand."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import TASK, Levels, fabricate, study_of, with_cells
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ablate import evidence
from ablate.cli.summary import summary
from ablate.runs.study import Study, load_study

PAIR = {"ffn": ["mlp", "swiglu"]}
GRID = {"norm": ["ln", "rms"]} | PAIR
NOISE = np.random.default_rng(7).normal(0, 0.01, (40, 40))


def row(table: pandas.DataFrame, label: str) -> Any:
    found = table[table["label"] == label]
    assert len(found) == 1, f"{label} is not among {list(table['label'])}"
    return next(found.itertuples())


def losses_by_ffn(study: Study) -> Any:
    losses = study.runs.pivot(index="seed", columns="ffn", values="test/loss")
    return losses["swiglu"].to_numpy(), losses["mlp"].to_numpy()


def test_effects_of_a_grid_by_hand():
    losses = {
        ("ln", "mlp"): (2.0, 2.2),
        ("ln", "swiglu"): (1.9, 2.0),
        ("rms", "mlp"): (2.1, 2.2),
        ("rms", "swiglu"): (1.7, 2.0),
    }
    study = study_of(GRID, seeds=[0, 1], score=lambda levels, seed: losses[levels["norm"], levels["ffn"]][seed])
    table = evidence.effects(study)
    # seed 0: (1.9 + 1.7 − 2.0 − 2.1)/2 = −0.25; seed 1: (2.0 + 2.0 − 2.2 − 2.2)/2 = −0.20
    assert row(table, "ffn: swiglu − mlp").mean == pytest.approx(-0.225)
    # seed 0: (1.7 − 2.1) − (1.9 − 2.0) = −0.3; seed 1: (2.0 − 2.2) − (2.0 − 2.2) = 0
    assert row(table, "norm × ffn").mean == pytest.approx(-0.15)
    assert row(table, "norm × ffn").sd == pytest.approx(0.3 / np.sqrt(2))
    # t of one degree of freedom at 1 − 0.05/6, error 0.15
    assert row(table, "norm × ffn").high == pytest.approx(-0.15 + stats.t.ppf(1 - 0.05 / 6, 1) * 0.15)


def test_a_study_of_these_tests_is_what_is_read_of_its_files(tmp_path):
    ends = ["done", "diverged", "failed", "missing", "running"]
    given = {"factors": GRID, "seeds": range(5), "status": lambda levels, seed: ends[seed], "timing": "isolated"}
    read, made = load_study(tmp_path, fabricate(tmp_path, **given)), study_of(**given)
    assert made.manifest == read.manifest and made.notes == read.notes
    pandas.testing.assert_frame_equal(made.runs, read.runs)


def test_two_runs_of_one_cell_and_seed_have_no_score():
    study = study_of({"norm": ["ln", "rms"]})
    twice = dataclasses.replace(study, runs=pandas.concat([study.runs, study.runs[:1]]))
    with pytest.raises(ValueError, match="two runs with one seed"):
        evidence.scores(twice)


def test_a_stratum_never_mixes():
    def score(levels: Levels, seed: int) -> float:
        """Swiglu helps at one learning rate and hurts at the other."""
        effect = (-0.05 if levels["optim.lr"] == 1e-3 else 0.05) * (levels["ffn"] == "swiglu")
        return float(2 + effect + 0.001 * NOISE[seed, len(levels["ffn"])])

    table = evidence.effects(study_of(PAIR | {"optim.lr": [1e-3, 3e-4]}, score=score))
    assert row(table, "ffn: swiglu − mlp at optim.lr=0.001").verdict == "better"
    assert row(table, "ffn: swiglu − mlp at optim.lr=0.0003").verdict == "worse"
    assert len(table) == 3 and row(table, "ffn × optim.lr").mean == pytest.approx(0.1)


def test_all_factors_are_factorial_where_no_component_varies():
    study = study_of(
        {"optim.lr": [1e-3, 2e-3], "model.layers": [2, 4]}, score=lambda v, s: 2 + NOISE[s, v["model.layers"]]
    )
    family = evidence.effects(study).query("family")
    assert list(family["kind"]) == ["main", "main", "interaction"]
    assert set(family["stratum"]) == {""}


@pytest.mark.parametrize("paired", [True, False])
def test_pairing_is_decided_by_the_batches_not_by_the_numbers(paired):
    # Perfectly correlated scores: a rule that looked at the data would pair them in both cases.
    study = study_of(
        PAIR,
        range(6),
        score=lambda levels, seed: 2 + NOISE[seed, 0] - 0.001 * (levels["ffn"] == "swiglu") * (1 + NOISE[seed, 1]),
        batches=lambda levels: "b" if paired else levels["ffn"],
    )
    found = row(evidence.effects(study), "ffn: swiglu − mlp")
    assert found.paired == paired
    test = stats.ttest_rel if paired else lambda a, b: stats.ttest_ind(a, b, equal_var=False)
    expected = test(*losses_by_ffn(study))
    assert found.p == pytest.approx(expected.pvalue)
    assert found.high == pytest.approx(expected.confidence_interval(0.95).high)
    assert found.verdict == ("better" if paired else "undecided")


@pytest.mark.parametrize(("n", "verdict"), [(4, "undecided"), (5, "better")])
def test_unpaired_comparisons_have_no_verdict_below_five_seeds(n, verdict):
    score = lambda levels, seed: 2 - levels["data.context"] / 64 + 0.01 * NOISE[seed, levels["data.context"]]  # noqa: E731
    study = study_of({"data.context": [16, 32]}, range(n), score, batches=str)
    found = row(evidence.effects(study), "data.context: 32 − 16")
    assert found.high < 0 and found.verdict == verdict
    assert np.isnan(found.p_bonferroni) == np.isnan(found.smallest) == (n < 5)


def diverging(*lost: tuple[str, int]) -> Callable[[Levels, int], str]:
    return lambda levels, seed: "diverged" if (levels["ffn"], seed) in lost else "done"


def test_where_more_runs_diverged_the_verdict_is_withheld_and_ranks_say_the_rest():
    lost = diverging(("swiglu", 0), ("swiglu", 1))
    study = study_of(PAIR, seeds=range(5), status=lost)
    found = row(evidence.effects(study), "ffn: swiglu − mlp")
    assert found.verdict == "withheld" and found.note == "2 runs diverged against 0"
    assert np.isnan([found.low, found.high, found.p, found.p_bonferroni]).all()
    assert (found.lower, found.higher, found.tied) == (3, 2, 0)
    assert found.n == 3


def test_divergence_in_equal_numbers_leaves_the_verdict_and_is_said():
    lost = diverging(("swiglu", 0), ("mlp", 0), ("swiglu", 1), ("mlp", 2))
    study = study_of(PAIR, seeds=range(8), status=lost)
    found = row(evidence.effects(study), "ffn: swiglu − mlp")
    assert found.verdict == "better" and found.note == "2 runs diverged on each side"
    assert (found.n, found.lower, found.higher, found.tied) == (5, 6, 1, 1)


def test_one_seed_concludes_nothing():
    table = evidence.effects(study_of(GRID, seeds=[0]))
    assert set(table["verdict"]) == {"undecided", "estimate only"}
    assert set(table["note"]) == {"one seed can conclude nothing"}
    assert table[["low", "high", "p", "sd"]].isna().all().all()
    assert table["mean"].notna().all()


def test_differences_without_spread_are_undecided():
    # 0.1 + 0.2 − 0.3 is 5.6e-17 in floating point, in every seed alike: a t statistic would be infinite.
    factors = {"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "swiglu"]}
    study = study_of(factors, score=lambda levels, seed: 0.1 * (seed + 1) + 2)
    table = evidence.effects(study)
    assert set(table["verdict"]) == {"undecided", "estimate only"}
    assert table["low"].isna().all() and table["high"].isna().all() and table["p"].isna().all()
    assert table["note"].str.contains("equal in every seed").all()
    study = study_of(PAIR, score=lambda v, s: s + 2 - 0.1 * (v["ffn"] == "swiglu"))
    found = row(evidence.effects(study), "ffn: swiglu − mlp")
    assert found.mean == pytest.approx(-0.1) and math.isnan(found.low) and math.isnan(found.p)
    assert found.verdict == "undecided" and found.note.startswith("the same difference in every seed")
    assert "ffn: swiglu − mlp: −0.100 (the same difference in every seed" in summary(study)


def test_higher_is_better_where_the_task_says_so():
    tasks = {"f0": TASK | {"metrics": {"loss": "max"}}}
    study = study_of(PAIR, seeds=range(5), tasks=tasks, status=diverging(("swiglu", 4)))
    assert row(evidence.effects(study), "ffn: swiglu − mlp").lower == 5  # the diverged run ranks worst: lowest
    study = study_of(PAIR, seeds=range(5), tasks=tasks)
    assert row(evidence.effects(study), "ffn: swiglu − mlp").verdict == "worse"
    assert not any(evidence.lower_is_better(study.manifest, metric) for metric in ("test/loss@128", "test/bpb@64"))
    with pytest.raises(ValueError, match="no direction is known for test/accuracy; the tasks have loss"):
        evidence.effects(study, "test/accuracy")


def test_cells_count_what_became_of_the_runs():
    ends = ["done", "diverged", "failed", "missing", "running", "done", "done"]
    study = study_of(
        {"ffn": ["mlp", "swiglu"]}, seeds=range(7), status=lambda v, s: ends[s] if v["ffn"] == "swiglu" else "done"
    )
    reference, cell = evidence.cells(study).itertuples()
    assert (cell.runs, cell.done, cell.diverged, cell.failed, cell.missing, cell.n) == (7, 3, 1, 1, 2, 3)
    mine, theirs = losses_by_ffn(study)
    known = ~np.isnan(mine)
    assert cell.mean == pytest.approx(mine[known].mean()) and cell.sd == pytest.approx(mine[known].std(ddof=1))
    assert cell.correlation == pytest.approx(stats.pearsonr(mine[known], theirs[known]).statistic)
    assert np.isnan(reference.correlation) and reference.name == "mlp (reference)" and cell.name == "swiglu"
    interval = stats.binomtest(1, 4).proportion_ci(0.95, method="wilson")
    assert (cell.diverged_low, cell.diverged_high) == pytest.approx((interval.low, interval.high))
    assert (evidence.wilson(0, 0), evidence.wilson(0, 7)[0], evidence.wilson(7, 7)[1]) == ((0, 1), 0, 1)


def test_holm_counts_tests_without_a_p_as_ones():
    p = np.array([0.004, 0.02, 0.011])
    expected = multipletests([*p, 1.0, 1.0], method="holm")[1][:3]
    assert evidence.holm(p, 5) == pytest.approx(expected)
    assert evidence.holm(np.array([0.004, np.nan, 0.02, 0.011]), 5)[[0, 2, 3]] == pytest.approx(expected)


def test_a_study_of_one_cell_has_no_effects():
    table = evidence.effects(study_of({}))
    assert table.empty and {"label", "verdict", "family"} <= set(table)
    assert evidence.headline(table).empty


def test_headline_adds_single_cells_only_where_the_family_has_no_interval():
    whole = evidence.effects(study_of(GRID))
    assert evidence.headline(whole)["family"].all()
    lost = evidence.effects(
        study_of(GRID, status=lambda v, s: "done" if v != {"norm": "rms", "ffn": "swiglu"} else "diverged")
    )
    shown = evidence.headline(lost)
    assert set(shown.loc[shown["family"], "verdict"]) == {"withheld"}
    assert list(shown.loc[~shown["family"], "label"]) == ["ln + swiglu against ln + mlp", "rms + mlp against ln + mlp"]


def test_costs_are_ratios_of_the_two_sides():
    flops = [100, 160, 120, 180]  # mlp and swiglu with ln, then with rms
    study = with_cells(study_of(GRID, seeds=[0, 1]), lambda i, cell: {"flops_per_token": flops[i]})
    is_gated = study.runs["ffn"] == "swiglu"
    spent = study.runs.assign(cpu_seconds=2.0 + is_gated + 0.5 * study.runs["seed"], seconds=4.0 + 4.0 * is_gated)
    for device, ratio in (("2 × cpu x86_64", 3.25 / 2.25), ("cuda NVIDIA", 2.0)):
        table = evidence.effects(dataclasses.replace(study, runs=spent.assign(device=device)))
        found = row(table, "ffn: swiglu − mlp")
        assert (found.seconds_ratio, found.flops_ratio) == pytest.approx((ratio, 340 / 220))
        crossed = row(table, "norm × ffn")
        assert math.isnan(crossed.flops_ratio) and math.isnan(crossed.seconds_ratio)
