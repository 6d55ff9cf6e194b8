"""Divergence between variants: counts, exact tests and verdicts."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pandas
import pytest
from claimed_studies import entry
from fake_studies import TASK, Levels, study_of, with_manifest
from scipy import stats

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.claims import Claim, metric_problems
from ablate.config.typed_json import parse
from ablate.evidence.contrasts import Contrast
from ablate.evidence.estimates import Divergence, divergence_of, p_of_no_difference, solved_p
from ablate.evidence.proportions import (
    SolvedCounts,
    exchanged_seeds_p,
    exchanged_sides_p,
    possible_sums,
    solved_counts,
    solved_interval,
)
from ablate.evidence.scores import scores
from ablate.runs.records import TaskFacts
from ablate.runs.study import Study

GRID = {"norm": ["ln", "none"], "ffn": ["mlp", "swiglu"]}


def made(lost: set[tuple[str, int]], seeds: int, **options: Any) -> Study:
    """A study whose runs of these cells and seeds diverged; cells are called as in none+mlp."""
    factors = options.pop("factors", GRID)

    def status(levels: dict[str, Any], seed: int) -> str:
        return "diverged" if ("+".join(map(str, levels.values())), seed) in lost else "done"

    return study_of(factors, range(seeds), status=status, **options)


@pytest.mark.parametrize(("up", "down"), [(5, 0), (6, 0), (7, 2), (3, 3), (0, 9)])
def test_single_runs_are_mcnemars_exact_test(up, down):
    found = exchanged_sides_p([1] * up + [-1] * down + [0] * 4)
    assert found == pytest.approx(stats.binomtest(up, up + down, 0.5).pvalue)


def test_exact_tests_of_several_runs_are_over_all_choices():
    differences = [2, 1, 0, -1, 2, 1]
    sums = np.array(list(itertools.product((1, -1), repeat=6))) @ differences
    assert exchanged_sides_p(differences) == pytest.approx(np.mean(np.abs(sums) >= sum(differences)))
    one, other = [2, 1, 2, 0], [0, 0, 1, 0, 0]
    expected = stats.permutation_test((one, other), lambda a, b: abs(np.mean(a) - np.mean(b)), alternative="greater")
    assert exchanged_seeds_p(one, other) == pytest.approx(expected.pvalue)
    for table in ([[30, 10], [70, 90]], [[70, 90], [30, 10]], [[5, 3], [0, 8]], [[4, 4], [4, 4]]):
        one, other = ([1] * diverged + [0] * ended for diverged, ended in table)
        assert exchanged_seeds_p(one, other) == pytest.approx(stats.fisher_exact(table).pvalue)
    assert math.isnan(exchanged_sides_p([])) and math.isnan(exchanged_seeds_p([], [1]))


def sides(study: Study, level: str, reference: str) -> Divergence:
    """The divergence of the cells whose labels have these words."""
    cells = study.manifest.cells
    return divergence_of(study, *([cell.id for cell in cells if word in cell.label] for word in (level, reference)))


def test_a_variant_that_diverges_more_is_found_and_counted():
    lost = {(f"none+{ffn}", seed) for ffn in ("mlp", "swiglu") for seed in range(7)}
    found = sides(made(lost | {("ln+mlp", 0)}, 8), "none", "ln")
    assert found.counts == [(14, 16), (1, 16)] and found.paired and found.n == 8
    assert found.p == pytest.approx(2 / 2**7), "one seed of 2 − 1, six of 2, one of 0: only all signs alike come as far"


def test_runs_that_did_not_end_are_in_no_count():
    study = made({("none+mlp", seed) for seed in range(5)}, 6)
    cells = {cell.label: cell.id for cell in study.manifest.cells}
    out = study.runs["cell"].eq(cells["ln + mlp"]) & study.runs["seed"].isin([0, 1])
    study.runs.loc[out, "status"] = "missing"
    found = sides(study, "none + mlp", "ln + mlp")
    assert (found.counts, found.n) == ([(5, 6), (0, 4)], 4) and found.p == pytest.approx(2 / 2**3)


def test_an_interaction_with_a_norm_that_alone_diverged_has_no_estimate_of_survivors():
    both = {(f"none+{ffn}", seed) for ffn in ("mlp", "swiglu") for seed in range(2)}
    crossed = evidence.effects(made(both, 8)).set_index("kind").loc["interaction"]
    assert (crossed["diverged"], crossed["diverged_reference"]) == (2, 2)
    assert crossed["verdict"] == "withheld" and np.isnan([crossed["mean"], crossed["low"]]).all()
    assert crossed["note"] == "2 runs diverged against 2, unequally often at the values that it crosses"
    everywhere = both | {(f"ln+{ffn}", seed) for ffn in ("mlp", "swiglu") for seed in range(2)}
    even = evidence.effects(made(everywhere, 8)).set_index("kind").loc["interaction"]
    assert even["verdict"] != "withheld" and np.isfinite(even["low"])


def test_a_trend_goes_by_the_levels_that_it_crosses():
    factors = {"norm": ["ln", "rms"], "train.batch_size": [8, 16, 32]}
    table = evidence.effects(made({("ln+8", 0), ("rms+8", 0)}, 8, factors=factors)).set_index("kind")
    found = table.loc["trend"]
    assert (found["diverged"], found["diverged_reference"], found["verdict"]) == (1, 1, "withheld")


RECALL = TASK | {
    "metrics": {"solved": "max", "accuracy": "max", "loss": "min"},
    "shares": ["solved", "accuracy", "exact"],
    "beside": ["accuracy"],
    "solved_at": 0.99,
    "yardsticks": {"chance": math.log(32)},
}


def clopper_pearson(count: int, n: int, tail: float) -> tuple[float, float]:
    """Both bounds, each missing with at most this probability."""
    found = stats.binomtest(count, n).proportion_ci(1 - 2 * tail, method="exact")
    return float(found.low), float(found.high)


def pair(up: int, down: int, n: int) -> SolvedCounts:
    """n seeds of two cells, of which the level alone solved `up` and the reference alone `down`."""
    seeds = [[1.0, 0.0]] * up + [[0.0, 1.0]] * down + [[1.0, 1.0]] * (n - up - down)
    return solved_counts([np.array(seeds)], [[1.0, -1.0]], None)


def test_intervals_of_shares_are_made_of_clopper_and_pearsons_bounds():
    for up, down, n in ((5, 0, 5), (3, 1, 8), (0, 0, 5), (20, 0, 20)):
        one, other = clopper_pearson(up, n, 0.05 / 4), clopper_pearson(down, n, 0.05 / 4)
        assert solved_interval(pair(up, down, n), 0.05) == pytest.approx((one[0] - other[1], one[1] - other[0]))
    found = solved_counts([np.ones((6, 1)), np.array([[1.0]] + [[0.0]] * 7)], [[1.0], [-1.0]], None)
    one, other = clopper_pearson(6, 6, 0.05 / 4), clopper_pearson(1, 8, 0.05 / 4)
    assert solved_interval(found, 0.05) == pytest.approx((one[0] - other[1], one[1] - other[0]))
    found = solved_counts([np.empty((0, 2))], [[1.0, -1.0]], None)
    assert np.isnan(solved_interval(found, 0.05)).tolist() == [True, True] and solved_p(found) == 1
    # A trend over ten settings at uneven distances: 2^20 values have no bound each, in no time and no memory.
    settings = np.log([1.0, 2, 3, 5, 9, 14, 22, 37, 60, 91])
    weights = np.concatenate([settings - settings.mean(), settings.mean() - settings])
    solved = (np.random.default_rng(3).random((8, 20)) < np.linspace(0.2, 0.9, 20)).astype(float)
    solved[0, 0] = math.nan
    bounds = [clopper_pearson(int(count), 7, 0.05 / 40) for count in solved[1:].sum(0)]
    low, high = (sum(w * pair[i if w > 0 else 1 - i] for w, pair in zip(weights, bounds, strict=True)) for i in (0, 1))
    assert solved_interval(solved_counts([solved], [list(weights)], None), 0.05) == pytest.approx((low, high))


@pytest.mark.parametrize("chances", [(0.5, 0.0, 0.5), (0.9, 0.05, 0.05), (0.2, 0.6, 0.2), (0.02, 0.0, 0.98)])
@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_difference_is_missed_in_no_more_than_five_per_cent(chances, n):
    """Over every outcome: solved by one alone, by the other alone, by both or neither."""
    missed, truth = 0.0, chances[0] - chances[1]
    for up, down in itertools.product(range(n + 1), repeat=2):
        if up + down <= n:
            low, high = solved_interval(pair(up, down, n), 0.05)
            missed += stats.multinomial.pmf([up, down, n - up - down], n, chances) * (not low <= truth <= high)
    assert missed <= 0.05


def test_a_main_effect_and_an_interaction_are_missed_in_no_more_than_five_per_cent():
    """Four cells, three seeds: a mean of two differences, and their difference, over every outcome."""
    shares = np.array([0.9, 0.6, 0.3, 0.6])
    outcomes = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    chances = np.prod(np.where(outcomes == 1, shares, 1 - shares), axis=1)
    for weights in ([0.5, 0.5, -0.5, -0.5], [1.0, -1.0, -1.0, 1.0]):
        truth, missed = float(shares @ weights), 0.0
        for seeds in itertools.combinations_with_replacement(range(16), 3):  # in whichever order
            low, high = solved_interval(solved_counts([outcomes[list(seeds)]], [weights], None), 0.05)
            orders = len(set(itertools.permutations(seeds)))
            missed += orders * float(np.prod(chances[list(seeds)])) * (not low <= truth <= high)
        assert missed <= 0.05


def test_p_without_an_exact_test_is_the_smallest_level_whose_interval_excludes_zero():
    counts = pair(12, 0, 12)
    p = solved_p(counts)
    assert solved_interval(counts, p * 1.001)[0] > 0 >= solved_interval(counts, p * 0.999)[0]
    assert solved_p(pair(3, 3, 8)) == 1


def test_an_exact_test_decides_where_its_interval_contains_zero():
    """Seven discordant pairs of ten in one direction: p = .0156, though the bounds on both counts leave zero inside."""
    found = row(study(8, 10, sequential={"looks": [8, 10], "at": 10, "max": 10}))
    assert found.low < 0 < found.high and found.p == pytest.approx(2 * 0.5**6)
    assert found.verdict == "better"


@pytest.mark.parametrize(
    ("weights", "tested"),
    [
        ({"a": 1.0, "b": -1.0}, True),
        ({"a": 0.5, "b": 0.5, "c": -0.5, "d": -0.5}, True),
        ({"a": 0.5, "b": 0.5, "c": -1.0}, True),
        ({"a": 0.7, "b": 0.3, "c": -1.0}, False),
        ({"a": 1.0, "b": -0.7, "c": -0.3}, False),
    ],
)
def test_no_difference_is_tested_exactly_where_each_side_weighs_its_cells_alike(weights, tested):
    solved = pandas.DataFrame({cell: [1.0, 0.0, 1.0] for cell in weights})
    contrast = Contrast("claim", "", "", "", "", "", weights)
    assert (p_of_no_difference(solved, contrast, pairs=True) is not None) == tested


def test_interactions_of_shares_are_judged_by_their_interval():
    def score(levels: Levels, seed: int) -> float:
        return 1.0 if levels == {"norm": "rms", "ffn": "swiglu"} else 0.0

    tasks = {"f0": RECALL | {"metrics": {"accuracy": "max"} | RECALL["metrics"]}}
    made = with_manifest(
        study_of({"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}, range(12), score, tasks=tasks),
        tasks={"f0": TaskFacts(**RECALL)},
    )
    table = evidence.effects(made).set_index("kind")
    interaction = table.loc["interaction"]
    assert (interaction["p_bonferroni"] <= 0.05) == (interaction["low"] > 0)


def study(ups: int, n: int, *lost: int, **options: Any) -> Study:
    """Two norms: rms solves the task in `ups` of n seeds, ln in one; the runs of rms of the `lost` seeds diverged."""

    def score(levels: Levels, seed: int) -> float:
        solved = seed < ups if levels["norm"] == "rms" else seed == 0
        return 0.995 if solved else 0.2 + 0.01 * seed

    status = lambda levels, seed: "diverged" if levels["norm"] == "rms" and seed in lost else "done"  # noqa: E731
    task = options.pop("task", RECALL)
    measured = {"f0": task | {"metrics": {"accuracy": "max"} | task["metrics"]}}  # accuracy by the runs
    found = study_of({"norm": ["ln", "rms"]}, range(n), score, status, tasks=measured, **options)
    return with_manifest(found, tasks={"f0": TaskFacts(**task)})


def row(found: Study, metric: str | None = None) -> Any:
    return next(evidence.effects(found, metric).itertuples())


def test_a_study_is_judged_by_the_share_that_its_runs_solve():
    made = study(12, 12)
    found = row(made)
    assert found.metric == "test/solved" and found.mean == pytest.approx(11 / 12)
    assert (found.low, found.high) == pytest.approx(solved_interval(pair(11, 0, 12), 0.05))
    assert found.verdict == "better" and math.isnan(found.smallest)
    text = summary(made)
    assert "test/solved" in text and "accuracy" in text
    made.runs.loc[made.runs["norm"] == "ln", "test/accuracy"] = 0.3
    assert row(made).sd == 0 and row(made).verdict == "better", "all of one side and none of the other"


def test_a_run_that_diverged_has_not_solved_its_task():
    found = row(study(12, 12, 3, 4))
    assert found.n == 12 and found.mean == pytest.approx(9 / 12) and found.verdict != "withheld"
    assert (found.low, found.high) == pytest.approx(solved_interval(pair(9, 0, 12), 0.05))


def test_unpaired_sides_and_several_looks():
    alone = row(study(12, 12, batches=lambda levels: levels["norm"]))
    one, other = clopper_pearson(12, 12, 0.05 / 4), clopper_pearson(1, 12, 0.05 / 4)
    assert not alone.paired and (alone.low, alone.high) == pytest.approx((one[0] - other[1], one[1] - other[0]))
    auto = row(study(12, 12, sequential={"looks": [5, 8, 12, 20], "at": 12, "max": 20}))
    assert (auto.low, auto.high) == pytest.approx(solved_interval(pair(11, 0, 12), 0.05 / 4))


def test_within_a_margin_all_seeds_count():
    found = row(study(1, 20, margin={"value": 0.5, "registered": True}))
    assert (found.low, found.high) == pytest.approx(solved_interval(pair(0, 0, 20), 0.05))
    assert found.high < 0.5 and found.verdict == "equivalent"


def test_of_the_mean_of_two_clumps_there_is_no_verdict():
    made = study(12, 12)
    found = row(made, "test/accuracy")
    assert found.verdict == "withheld" and "see test/solved" in found.note and math.isnan(found.low)
    assert evidence.cells(made, "test/accuracy")["mean"].notna().all()
    old = study(8, 8, task=TASK | {"metrics": {"accuracy": "max"}, "yardsticks": {}})
    assert row(old).metric == "test/accuracy" and row(old).verdict == "better", (
        "a manifest of before says nothing of it"
    )


def test_no_share_is_solved_of_a_task_that_is_not_solved_or_not():
    """Beside one that is, whose metric a claim may name of either."""
    made = study(12, 12, 3)
    plain = dataclasses.replace(made.manifest.tasks["f0"], solved_at=None, metrics={"accuracy": "max"})
    cells = [dataclasses.replace(cell, task="f1") if i else cell for i, cell in enumerate(made.manifest.cells)]
    mixed = dataclasses.replace(made.manifest, tasks=made.manifest.tasks | {"f1": plain}, cells=cells)
    found = scores(dataclasses.replace(made, manifest=mixed), "test/solved")
    assert found[cells[0].id].notna().all() and found[cells[1].id].isna().all()


def test_claims_of_the_share_are_exact_and_claims_of_the_mean_undecided():
    share = {"greater": [{"norm": "rms"}, {"norm": "ln"}], "metric": "test/solved"}
    texts = {"share": share, "much": share | {"margin": 0.3}, "mean": share | {"metric": "test/accuracy"}}
    entries = {name: entry(text) for name, text in texts.items()}
    table = evidence.claims(study(20, 20, claims=entries)).set_index("name")
    low, high = solved_interval(pair(19, 0, 20), 0.05 / 3)
    assert (table.loc["share", "low"], table.loc["share", "high"]) == pytest.approx((low, high)) and low > 0.3
    assert list(table["verdict"]) == ["supported", "supported", "undecided"]
    assert table.loc["share", "p"] < table.loc["much", "p"] < 0.05 / 3
    assert "see test/solved" in table.loc["mean", "note"] and math.isnan(table.loc["mean", "low"])


@pytest.mark.parametrize(("norms", "looks", "least"), [(2, 1, 6), (4, 1, 7), (2, 3, 7)])
def test_the_plan_says_below_how_many_seeds_shares_solved_decide_nothing(norms, looks, least):
    """Not even if one of two cells solves the task with every seed and the other with none: 2 · 2⁻ⁿ > level."""
    for n in (least - 1, least):
        sequence = {"looks": [*range(n - looks + 1, n + 1)], "at": n, "max": n} if looks > 1 else None
        factors = {"norm": ["ln", "rms", "scale", "none"][:norms]}
        planned = study_of(factors, range(n), tasks={"f0": RECALL}, design="one_at_a_time", sequential=sequence)
        said = [f"fewer than {least} seeds decide nothing about shares of runs solved"] * (n < least)
        assert evidence.noise_lines(planned) == said


def test_a_margin_in_steps_of_a_share_solved_is_refused_before_anything_trains():
    claim = parse(Claim, {"equivalent": [{"ffn": "mlp"}, {"ffn": "glu"}], "metric": "test/solved", "margin": "2 %"})
    [problem] = metric_problems({"near": claim}, [{"solved": "max", "accuracy": "max"}], [])
    assert problem.key == "claims.near" and "write a number" in problem.message


def test_sums_that_differ_by_rounding_are_one_value():
    """One level against two, in a claim over three settings: ⅓ − ⅙ − ⅙ is zero, but for rounding."""
    values = possible_sums((1 / 3, 1 / 3, 1 / 3, *[-1 / 6] * 6))
    assert values == pytest.approx([step / 6 for step in range(-6, 7)])
