"""Claims against results: what is supported, contradicted or left open, and how seldom that is wrong."""

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from claimed_studies import FFN, NOISE, SIDES, entry, made, noisy, row, scores_of
from fake_studies import TASK, Levels, with_manifest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.claims import Criterion
from ablate.evidence.claims import decide, order_p, spearman
from ablate.evidence.families import registered
from ablate.evidence.proportions import exchanged_cells_p
from ablate.planning import rounds
from ablate.runs.records import CriterionEntry
from ablate.runs.study import Study


def test_a_difference_is_that_of_the_means_of_both_sides_within_seeds():
    """At level 1 − 0.05/2, against SciPy's own interval; `less` and `greater` of the same sides contradict."""
    study = made({"less": entry({"less": SIDES}), "greater": entry({"greater": SIDES})})
    table = evidence.claims(study)
    one, other = scores_of(study, ffn=["swiglu"]), scores_of(study, ffn=["mlp", "gelu"])
    expected = stats.ttest_rel(one, other)
    for name, verdict in (("less", "supported"), ("greater", "contradicted")):
        found = row(table, name)
        low, high = expected.confidence_interval(1 - 0.05 / 2)
        assert (found.low, found.high, found.p) == pytest.approx((low, high, expected.pvalue))
        assert found["mean"] == pytest.approx(np.mean(one - other)) and found.n == 8 and found.verdict == verdict
        assert found.p_holm <= 0.05 and found.metric == "test/loss"
    turned = r"contradicted\. swiglu is 0\.04\d+ \[.*\] nats per byte better in test loss than mlp"
    assert re.search(turned, row(table, "greater").sentence)


def test_a_difference_may_be_claimed_to_be_no_smaller_than_a_margin():
    """Against SciPy's test of the differences beyond it: p, and verdicts by where the whole interval lies."""
    margins = {"well": 0.01, "near": 0.05, "far": 0.2}
    claims = {name: {"less": SIDES, "margin": margin} for name, margin in margins.items()}
    claims |= {"turned": {"greater": SIDES[::-1], "margin": 0.2}, "lost": {"greater": SIDES, "margin": 0.2}}
    study = made({name: entry(claim) for name, claim in claims.items()})
    table = evidence.claims(study)
    gain = scores_of(study, ffn=["swiglu"]) - scores_of(study, ffn=["mlp", "gelu"])
    for name, margin in margins.items():
        assert row(table, name).p == pytest.approx(stats.ttest_1samp(gain, -margin).pvalue)
    assert row(table, "lost").p == pytest.approx(stats.ttest_1samp(gain, 0.2).pvalue)
    assert list(table["verdict"]) == ["supported", "undecided", *["contradicted"] * 3]
    assert ", claimed: below −0.01 (" in table["sentence"][0] and ", claimed: above +0.2 (" in table["sentence"][4]


def test_at_fixes_levels_and_a_side_may_fix_its_own():
    claim = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "at": {"norm": "rms"}}
    own = {"less": [{"ffn": "swiglu", "norm": "ln"}, {"ffn": "mlp", "norm": "rms"}]}
    study = made({"at": entry(claim), "own": entry(own)})
    table = evidence.claims(study)
    for name, norm in (("at", "rms"), ("own", "ln")):
        found = scores_of(study, ffn=["swiglu"], norm=[norm]) - scores_of(study, ffn=["mlp"], norm=["rms"])
        assert row(table, name)["mean"] == pytest.approx(found.mean())
    assert "supported. at norm=rms, swiglu is 0.0" in row(table, "at").sentence
    assert "better in test loss than mlp (8 seeds" in row(table, "at").sentence
    assert "ffn=swiglu with norm=ln is 0.0" in row(table, "own").sentence


def test_less_is_about_the_number_whichever_way_is_better():
    tasks = {"f0": TASK | {"metrics": {"accuracy": "max"}, "yardsticks": {}}}
    study = made({"a": entry({"less": SIDES}), "b": entry({"greater": SIDES})}, tasks=tasks)
    table = evidence.claims(study)
    assert list(table["verdict"]) == ["supported", "contradicted"] and set(table["metric"]) == {"test/accuracy"}


def test_equivalence_needs_the_interval_inside_the_margin_and_five_seeds():
    sides = {"wide": [{"norm": "ln"}, {"norm": "rms"}], "far": SIDES}
    claims = {name: entry({"equivalent": each, "margin": 0.01}) for name, each in sides.items()}
    for n, verdicts in ((4, ["undecided", "contradicted"]), (8, ["supported", "contradicted"])):
        study = made(claims, seeds=range(n))
        table = evidence.claims(study)
        assert list(table["verdict"]) == verdicts
        assert ("fewer than 5 seeds cannot show that a difference is small" in row(table, "wide").note) == (n < 5)
        assert (row(table, "wide").p_holm == 1) == (n < 5), "a small p beside no verdict would contradict it"
    gain = scores_of(study, ffn=["swiglu"]) - scores_of(study, ffn=["mlp", "gelu"])
    assert row(table, "far").p == pytest.approx(stats.ttest_1samp(gain, -0.01).pvalue)
    assert "supported. ln and rms are equivalent: test loss " in row(table, "wide").sentence
    far = row(table, "far").sentence
    assert "contradicted. swiglu and mlp, gelu are not equivalent: test loss −0.0" in far and ", margin ±0.01 (" in far


def test_unequal_divergence_withholds_the_verdict_and_shows_ranks():
    claims = {"loss": entry({"less": SIDES}), "often": entry({"diverges_more": [{"ffn": "mlp"}, {"ffn": "swiglu"}]})}
    study = made(claims, status=lambda levels, seed: "diverged" if levels["ffn"] == "mlp" and seed < 7 else "done")
    table = evidence.claims(study)
    loss, often = row(table, "loss"), row(table, "often")
    assert loss.verdict == "undecided" and not loss.waits and math.isnan(loss.low) and math.isnan(loss.p)
    assert math.isnan(loss["mean"]) and math.isnan(loss.sd), "a mean of survivors would be taken for a finding"
    assert "0 runs diverged against 14; diverged ranked worst: lower 8, higher 0" in loss.note
    assert often.verdict == "supported" and often.p == pytest.approx(2 / 2**7)
    assert often["mean"] == pytest.approx(14 / 16) and "14 of 16 runs diverged against 0 of 16" in often.note
    assert "better" not in loss.sentence


def test_a_difference_of_differences_is_taken_within_seeds():
    """Whether a change does more at one level than at another, as SciPy tests it; its four corners all count."""
    more = {"at": {"norm": "rms"}, "than_at": {"norm": "ln"}}
    claims = {"grows": {"less": SIDES} | more, "by": {"less": SIDES, "margin": 0.02} | more}
    claims["holds"] = {"equivalent": SIDES, "margin": 0.06} | more

    def score(levels: Levels, seed: int) -> float:
        return noisy(levels, seed) - 0.04 * (levels["ffn"] == "swiglu" and levels["norm"] == "rms")

    study = made({name: entry(claim) for name, claim in claims.items()}, score=score)
    table = evidence.claims(study)
    gain = [
        scores_of(study, ffn=["swiglu"], norm=[norm]) - scores_of(study, ffn=["mlp", "gelu"], norm=[norm])
        for norm in ("rms", "ln")
    ]
    expected = stats.ttest_rel(*gain)
    low, high = expected.confidence_interval(1 - 0.05 / 3)
    found = row(table, "grows")
    assert (found.low, found.high, found.p) == pytest.approx((low, high, expected.pvalue))
    assert list(table["verdict"]) == ["supported"] * 3
    said = "(swiglu − mlp, gelu) at norm=rms against that at norm=ln: test loss −0.0"
    assert f"supported. {said}" in found.sentence and "claimed: below −0.02" in row(table, "by").sentence
    assert "margin ±0.06" in row(table, "holds").sentence
    turned = made({"grows": entry({"greater": SIDES} | more)}, score=score)
    assert "contradicted. (swiglu" in row(evidence.claims(turned), "grows").sentence


def test_a_difference_of_differences_needs_equal_divergence_at_all_four_corners():
    """Both norms lose the same runs of swiglu on opposite sides of the contrast; the rest compares nothing."""
    claim = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "at": {"norm": "rms"}, "than_at": {"norm": "ln"}}
    one_lost = lambda levels, seed: "diverged" if levels["ffn"] == "swiglu" and seed == 0 else "done"  # noqa: E731
    table = evidence.claims(made({"grows": entry(claim)}, status=one_lost))
    assert table["verdict"].tolist() == ["undecided"]
    assert "unequally often at the values that it crosses" in row(table, "grows").sentence
    alike = evidence.claims(made({"grows": entry(claim)}, status=lambda v, seed: "diverged" if seed == 0 else "done"))
    assert row(alike, "grows").n == 7 and math.isfinite(row(alike, "grows").low)
    assert "2 runs diverged on each side" in row(alike, "grows").sentence
    # Two cells of a corner that lost three runs together, and two of a corner with one cell, have lost as many each.
    lost = {("swiglu", 0), ("gelu", 0), ("gelu", 1)}
    some = lambda levels, seed: "diverged" if (levels["ffn"], seed) in lost | {("silu", 0)} else "done"  # noqa: E731
    wide = claim | {"less": [{"ffn": ["swiglu", "silu"]}, {"ffn": ["gelu", "mlp"]}]}
    assert row(evidence.claims(made({"grows": entry(wide)}, status=some)), "grows").n == 6


def test_claims_that_are_left_are_corrected_for_those_that_were_taken_back():
    """Five registered ones, of which one was edited after results and one withdrawn: every level is 0.05/5."""
    claims = {name: entry({"less": SIDES}) for name in "abc"} | {"d": entry({"greater": SIDES}, False, [True])}
    gone = {"e": entry({"less": SIDES}) | {"seen": True}, "f": entry({"less": SIDES}) | {"seen": False}}
    study = made(claims, withdrawn=gone)
    table = evidence.claims(study)
    assert registered(study.manifest) == 5
    assert list(table["alpha"]) == pytest.approx([0.01, 0.01, 0.01, 0.05])
    assert row(table, "a").p_holm == pytest.approx(5 * row(table, "a").p)
    assert math.isnan(row(table, "d").p_holm) and row(table, "d").edited and not row(table, "d").family
    lines = evidence.claim_lines(study.manifest, table)
    assert lines[3].startswith("d (post hoc, edited after results): estimate only.")
    assert len(lines) == 7, "what an edited one said before, and both that were withdrawn"


def test_one_seed_and_no_claims_are_tables_too():
    found = row(evidence.claims(made({"a": entry({"less": SIDES})}, seeds=[0])), "a")
    assert found.verdict == "undecided" and found.note == "one seed can conclude nothing"
    empty = made({})
    assert evidence.claims(empty).empty and evidence.claim_lines(empty.manifest, evidence.claims(empty)) == []
    assert "verdict" in evidence.claims(empty)


FAR_SIDES, NEAR_SIDES = [{"ffn": "swiglu"}, {"ffn": "mlp"}], [{"ffn": "gelu"}, {"ffn": "mlp"}]
LESS_FAR, LESS_NEAR = {"less": FAR_SIDES}, {"less": NEAR_SIDES}


def of_far_and_near(**claims: dict[str, Any]) -> Study:
    """A study of three FFNs: swiglu is far from mlp, gelu so near that the p of their difference is about 0.03."""
    near = np.random.default_rng(1).normal(0, 1, 8)
    near = (near - near.mean()) / near.std(ddof=1) - 0.96

    def score(levels: Levels, seed: int) -> float:
        shift = {"mlp": 0.0, "gelu": 0.01 * near[seed], "swiglu": -0.2 + 0.001 * NOISE[seed, 0]}
        return float(2 + shift[levels["ffn"]])

    entries = {name: entry(claim) for name, claim in claims.items()}
    return made(entries, {"ffn": ["mlp", "gelu", "swiglu"]}, score=score)


def test_holm_decides_a_claim_whose_simultaneous_interval_contains_zero():
    table = evidence.claims(of_far_and_near(far=LESS_FAR, near=LESS_NEAR))
    near = row(table, "near")
    assert 0.025 < near.p < 0.05 and near.low < 0 < near.high
    assert near.p_holm == near.p and near.verdict == "supported"
    assert "supported. gelu against mlp: test loss −0.010 [" in near.sentence


def test_holm_decides_in_the_direction_of_the_estimate():
    turned = {"greater": NEAR_SIDES}
    assert row(evidence.claims(of_far_and_near(far=LESS_FAR, near=turned)), "near").verdict == "contradicted"


def test_holm_does_not_decide_the_second_where_the_first_is_undecided():
    same = {"equivalent": FAR_SIDES, "margin": 0.2}
    table = evidence.claims(of_far_and_near(far=same, near=LESS_NEAR))
    assert row(table, "far").p > 0.05 and row(table, "near").p < 0.05
    assert list(table["verdict"]) == ["undecided", "undecided"]


def test_holm_corrects_every_kind_of_claim_as_statsmodels_does():
    claims = {"equivalent": {"equivalent": NEAR_SIDES, "margin": 0.02}, "greater": {"greater": NEAR_SIDES}}
    claims |= {"not_greater": {"not_greater": NEAR_SIDES, "margin": 0.005}, "far": LESS_FAR}
    table = evidence.claims(of_far_and_near(**claims))
    assert table["p_holm"].to_numpy() == pytest.approx(multipletests(table["p"], method="holm")[1])
    decided = table["verdict"].ne("undecided")
    assert (decided == (table["p_holm"] <= 0.05)).all() and decided.any()


def test_a_claim_written_after_results_is_an_estimate_with_a_plain_interval():
    study = made({"before": entry({"less": SIDES}), "after": entry({"less": SIDES}, registered=False)})
    found = row(evidence.claims(study), "after")
    gain = scores_of(study, ffn=["swiglu"]) - scores_of(study, ffn=["mlp", "gelu"])
    assert (found.low, found.high) == pytest.approx(tuple(stats.ttest_1samp(gain, 0).confidence_interval(0.95)))
    assert found.verdict == "estimate only" and math.isnan(found.p_holm) and not found.waits
    assert found.sentence.startswith("after (post hoc): estimate only. swiglu against mlp, gelu: test loss −0.0")
    assert not any(word in found.sentence for word in ("better", "Holm", "assum"))


EDGES = [("less", 0.0, math.nan), ("greater", 0.0, math.nan), ("less", -1.0, 1.0), ("equivalent", 1.0, 1.0)]
EDGES += [("not_greater", 1.0, 1.0), ("not_less", -1.0, 1.0)]


@pytest.mark.parametrize(("relation", "shift", "margin"), EDGES)
def test_rules_are_wrong_as_seldom_as_promised(relation, shift, margin):
    """At the edge of what a claim says, each verdict is wrong half of the level's times; 40,000 studies."""
    studies, level, n = 40_000, 0.05, 5
    values = np.random.default_rng(n).normal(shift, 0.3, (studies, n))
    half = stats.t.isf(level / 2, n - 1) * values.std(1, ddof=1) / math.sqrt(n)
    outcomes = np.vectorize(decide)(relation, margin, values.mean(1) - half, values.mean(1) + half, n)
    error = 3 * math.sqrt(level / 2 / studies)
    assert np.mean(outcomes > 0) == pytest.approx(level / 2, abs=error)
    assert np.mean(outcomes < 0) == pytest.approx(level / 2, abs=error)


PUBLISHED = np.array([1.9, 2.0, 2.0, 2.3, 2.5, 2.9])


def test_a_ranking_is_spearmans_with_the_exact_chance_of_its_order():
    values = np.random.default_rng(3).normal(PUBLISHED, 0.3, (8, 6))
    assert spearman(values, PUBLISHED) == pytest.approx([stats.spearmanr(row, PUBLISHED).statistic for row in values])
    published = stats.rankdata(PUBLISHED)
    ranks = stats.rankdata(values[0])
    orders = [stats.pearsonr(ranks, published[list(order)]).statistic for order in itertools.permutations(range(6))]
    expected = 2 * np.mean(np.array(orders) >= spearman(values[:1], PUBLISHED)[0] - 1e-9)
    assert order_p(values[:1], PUBLISHED, np.random.default_rng(0)) == pytest.approx(expected)


def test_equal_scores_rank_nothing():
    assert spearman(np.array([PUBLISHED, [7.0] * 6]), PUBLISHED) == pytest.approx([1.0, 0.0])


RANK = {"rank": entry({"rank_correlates": [{"ffn": FFN}, [6, 5, 4, 3, 2, 1]]})}


def stairs(sign: float) -> Callable[[Levels, int], float]:
    return lambda levels, seed: 2 - sign * 0.02 * FFN.index(levels["ffn"]) + NOISE[seed, FFN.index(levels["ffn"])]


def test_levels_rank_as_published_or_against_it_or_neither():
    for sign, verdict in ((1.0, "supported"), (-1.0, "contradicted"), (0.0, "undecided")):
        study = made(RANK, score=stairs(sign))
        found = row(evidence.claims(study), "rank")
        assert found.verdict == verdict and -1 <= found.low <= found["mean"] <= found.high <= 1
    few = made(RANK, score=stairs(1.0), seeds=range(4))
    assert row(evidence.claims(few), "rank").note == "n = 4, fewer than 5 seeds show no ranking"
    short = {"rank_correlates": [{"ffn": FFN[:4]}, [4, 3, 2, 1]]}
    found = row(evidence.claims(made({"rank": entry(short)}, score=stairs(1.0))), "rank")
    assert found.verdict == "undecided" and found.p == pytest.approx(2 / 24), "any four levels may rank so by luck"
    order = {"mlp": 0.01, "gelu": 0.0, "silu": 0.02, "glu": 0.005, "reglu": 0.015, "swiglu": -0.5}
    alone = made(RANK, score=lambda levels, seed: 2 + order[levels["ffn"]] + NOISE[seed, 0])
    assert "without swiglu" in row(evidence.claims(alone), "rank").note, "one level makes the ranking"


def test_a_ranking_of_levels_that_diverge_unequally_is_withheld_and_ranks_diverged_runs_worst():
    lost = lambda levels, seed: "diverged" if levels["ffn"] == "swiglu" and seed < 2 else "done"  # noqa: E731
    found = row(evidence.claims(made(RANK, score=stairs(1.0), status=lost)), "rank")
    assert found.verdict == "undecided" and not found.waits
    values = np.array([[stairs(1.0)({"ffn": level}, seed) for level in FFN] for seed in range(8)])
    values[:2, FFN.index("swiglu")] = np.inf
    expected = np.mean([stats.spearmanr(seed, [6, 5, 4, 3, 2, 1]).statistic for seed in values])
    assert found.note == f"values diverged unequally often; diverged ranked worst: {expected:.2f}"


@pytest.mark.parametrize(("m", "n"), [(1, 3), (2, 1), (1, 4)])
def test_sides_of_unequal_size_diverge_as_every_deal_of_the_cells_says(m, n):
    runs = (np.random.default_rng(m + n).random((4, m + n)) < 0.5).astype(int)
    deals = list(itertools.combinations(range(m + n), m))  # which cells are on the first side

    def step(seed: np.ndarray, deal: tuple[int, ...]) -> float:
        first = seed[list(deal)].sum()
        return float(first / m - (seed.sum() - first) / n)

    found = sum(step(seed, deals[0]) for seed in runs)
    every = np.array([sum(map(step, runs, chosen)) for chosen in itertools.product(deals, repeat=4)])
    tails = [np.mean((every - found) * sign >= -1e-9) for sign in (1, -1)]
    p = exchanged_cells_p(runs[:, :m].sum(1), runs[:, m:].sum(1), m, n)
    assert p == pytest.approx(min(1, 2 * min(tails)))


LOOK = {"seeds": range(5), "sequential": {"looks": [5, 8, 12, 20], "at": 5, "max": 20}}


def test_looks_decide_over_registered_claims_alone():
    def at_look(claims: dict[str, Any], **more: Any) -> tuple[Study, bool, str]:
        """A study at its first look, whether it is decided, and what its summary says of that."""
        study = made(claims, {"norm": ["ln", "rms"], "ffn": ["mlp", "gelu", "swiglu"]}, **LOOK, **more)
        said = next(line for line in summary(study).splitlines() if line.startswith("seeds=auto: "))
        return study, rounds.decided(study), said

    gated, same = entry({"less": SIDES}), {"equivalent": [{"norm": "ln"}, {"norm": "rms"}], "margin": 1e-4}
    study, done, said = at_look({"gated": gated, "late": entry(same, False)})
    assert done and said.startswith("seeds=auto: nothing left to decide at 5 seeds;")
    level = 0.05 / 4
    gain = scores_of(study, ffn=["swiglu"]) - scores_of(study, ffn=["mlp", "gelu"])
    expected = stats.ttest_1samp(gain, 0).confidence_interval(1 - level)
    assert row(evidence.claims(study), "gated").low == pytest.approx(expected.low)
    _, done, said = at_look({"gated": gated, "same": entry(same)})
    assert not done and said.startswith("seeds=auto: 1 claim undecided at 5 seeds;")
    _, done, said = at_look({"gated": entry({"less": SIDES}, False)})
    assert not done and "effects undecided at 5 seeds" in said, "what was written late decides nothing"


def test_p_of_other_statistics_pay_for_every_look():
    claim = {"often": entry({"diverges_more": [{"ffn": "mlp"}, {"ffn": "swiglu"}]})}
    study = made(claim, status=lambda levels, seed: "diverged" if levels["ffn"] == "mlp" else "done", **LOOK)
    assert row(evidence.claims(study), "often").p == pytest.approx(4 * 2 / 2**5)


HALVES = ("equivalent", "not_greater", "not_less")
PAIR = {"metric": ["test/loss@512", "test/loss@64"]}


def test_a_difference_may_be_claimed_to_stay_below_a_margin():
    """Against SciPy's one-sided tests at the margin, at half the level; those of `equivalent` are these two."""
    sides = [{"norm": "rms"}, {"norm": "ln"}]
    margins = {"wide": 0.01, "narrow": 1e-4}
    claims = {f"{rule} {name}": {rule: sides, "margin": m} for rule in HALVES for name, m in margins.items()}
    claims |= {"lower": {"not_greater": SIDES, "margin": 0.01}, "lost": {"not_less": SIDES, "margin": 0.01}}
    study = made({name: entry(claim) for name, claim in claims.items()})
    table = evidence.claims(study)
    difference = scores_of(study, norm=["rms"]) - scores_of(study, norm=["ln"])
    for name, margin in margins.items():
        above = stats.ttest_1samp(difference, margin, alternative="less").pvalue
        below = stats.ttest_1samp(difference, -margin, alternative="greater").pvalue
        for rule, p in zip(HALVES, (max(above, below), above, below), strict=True):
            found = row(table, f"{rule} {name}")
            assert found.p == pytest.approx(2 * min(p, 1 - p))
            assert found.verdict == ("supported" if found.p_holm <= 0.05 and p < 0.5 else "undecided")
    gain = scores_of(study, ffn=["swiglu"]) - scores_of(study, ffn=["mlp", "gelu"])
    lost = row(table, "lost")
    assert lost.p == pytest.approx(2 * stats.ttest_1samp(gain, -0.01, alternative="less").pvalue)
    assert lost.verdict == "contradicted" and "claimed: above −0.01" in lost.sentence


def test_of_a_difference_that_holds_a_collapsed_run_nothing_is_small():
    tasks = {"f0": TASK | {"metrics": {"accuracy": "max"}, "yardsticks": {"chance": math.log(2)}}}
    claim = {"not_less": [{"norm": "rms"}, {"norm": "ln"}], "margin": 0.1}
    turned = {"not_greater": claim["not_less"][::-1], "margin": 0.1}  # type: ignore[index]

    def judged(n: int, fallen: str = "") -> list[Any]:
        def score(levels: Levels, seed: int) -> float:
            return 0.5 if levels["norm"] == fallen and seed == 3 else 0.9 + NOISE[seed, 2 * (levels["norm"] == "rms")]

        claims = {"a": entry(claim), "b": entry(turned)}
        return [*evidence.claims(made(claims, {"norm": ["ln", "rms"]}, range(n), score, tasks=tasks)).itertuples()]

    for found in judged(8):
        assert found.verdict == "supported" and found.note == ""
    for found in judged(8, fallen="ln") + judged(8, fallen="rms"):
        assert found.verdict == "undecided" and "1 of 8 seeds collapsed" in found.note
    assert [found.verdict for found in judged(4)] == ["undecided", "undecided"]
    assert judged(1)[1].says.endswith(", claimed: below +0.1")


def test_two_metrics_of_the_same_cells_are_compared_within_seeds():
    """Against SciPy's test of one number minus the other of the same runs; one run lacks one of them."""
    alone: list[Any] = [{"ffn": "swiglu", "norm": "ln"}] * 2
    claims = {"holds": {"not_greater": alone, "margin": 0.02}, "between": {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}]}}
    study = made({name: entry(claim | PAIR) for name, claim in claims.items()})
    study.runs["test/loss@64"] = study.runs["test/loss"]
    study.runs["test/loss@512"] = study.runs["test/loss"] + 0.004 + NOISE[study.runs["seed"], 3] / 4
    study.runs.loc[(study.runs["seed"] == 7) & (study.runs["ffn"] == "swiglu"), "test/loss@512"] = math.nan
    runs, table = study.runs[study.runs["seed"] < 7], evidence.claims(study)
    one = runs[(runs["ffn"] == "swiglu") & (runs["norm"] == "ln")]
    difference = (one["test/loss@512"] - one["test/loss@64"]).to_numpy()
    holds = row(table, "holds")
    assert holds.n == 7 and holds.paired and holds["mean"] == pytest.approx(difference.mean())
    assert holds.p == pytest.approx(2 * stats.ttest_1samp(difference, 0.02, alternative="less").pvalue)
    span = stats.ttest_1samp(difference, 0).confidence_interval(1 - 0.05 / 2)
    assert (holds.low, holds.high) == pytest.approx((span.low, span.high)) and holds.verdict == "supported"
    assert "ffn=swiglu with norm=ln: test loss at length 512 − test loss at length 64: +0.00" in holds.sentence
    means = runs.groupby(["ffn", "seed"])[["test/loss@512", "test/loss@64"]].mean()
    apart = means.loc["swiglu", "test/loss@512"] - means.loc["mlp", "test/loss@64"]
    between = row(table, "between")
    assert between["mean"] == pytest.approx(apart.mean()) and between.n == 7
    assert between.p == pytest.approx(stats.ttest_1samp(apart, 0).pvalue)


def test_runs_that_diverged_count_alike_in_both_metrics_of_a_cell():
    claim = {"less": [{"ffn": "mlp"}] * 2} | PAIR
    lost = lambda levels, seed: "diverged" if levels["ffn"] == "mlp" and seed < 2 else "done"  # noqa: E731
    study = made({"a": entry(claim)}, status=lost)
    runs = study.runs
    runs["test/loss@64"] = runs["test/loss"]
    found = row(evidence.claims(study), "a")
    assert found.verdict == "undecided" and found.note.startswith("no seed has every run it needs")
    runs["test/loss@512"] = runs["test/loss"] - 0.1 - NOISE[runs["seed"], 0]
    found = row(evidence.claims(study), "a")
    assert found.n == 6 and found.verdict == "supported" and "4 runs diverged on each side" in found.note


NEAR = [{"ffn": "glu"}, {"ffn": "reglu"}]
CLAIMS: dict[str, Any] = {"yes": {"less": SIDES}, "too": {"less": SIDES, "at": {"norm": "ln"}}}
CLAIMS |= {"no": {"greater": SIDES}, "open": {"less": NEAR}, "alike": {"equivalent": NEAR, "margin": 0.02}}


@pytest.fixture(scope="module")
def judged() -> Any:
    """A study and the verdicts on its claims, which no criterion changes."""
    study = made({name: entry(claim) for name, claim in CLAIMS.items()})
    return study, evidence.claims(study)


@pytest.mark.parametrize(
    ("of", "verdict", "why"),
    [
        (["yes", "too"], "met", "2 of 2 claims are supported"),
        (["yes", "no"], "refuted", "1 of 2 claims is supported; contradicted: no"),
        (["no", "open"], "refuted", "0 of 2 claims are supported; contradicted: no; undecided: open"),
        (["yes", "open"], "open", "1 of 2 claims is supported; undecided: open"),
        (["alike"], "met", "its claim, alike, is supported"),
        (["open"], "open", "its claim, open, is undecided"),
    ],
)  # fmt: skip
def test_a_criterion_is_met_refuted_or_open_and_says_why(judged, of, verdict, why):
    study, table = judged
    value = Criterion(of=of)
    criterion = CriterionEntry(value=value, written="t", registered=True)
    made_of = evidence.replication(with_manifest(study, replicated=criterion).manifest, table)
    assert (made_of.verdict, made_of.why) == (verdict, why)
    assert made_of.sentence.startswith(f"replicated (registered): {verdict}. {why[0].upper()}{why[1:]}")


def test_a_criterion_written_after_results_gives_no_verdict(judged):
    study, table = judged

    def found(of: list[str], rows: Any = table, **more: Any) -> Any:
        entry = CriterionEntry(**({"value": Criterion(of=of), "written": "t", "registered": True} | more))
        return evidence.replication(with_manifest(study, replicated=entry).manifest, rows)

    late = found(["yes"], registered=False)
    assert late.verdict == "none" and late.sentence.startswith("replicated (post hoc): no verdict. ")
    after = table.assign(verdict=table["verdict"].where(table["name"] != "yes", "estimate only"))
    assert found(["yes", "too"], after).verdict == "open", "one of its claims was written after results"
