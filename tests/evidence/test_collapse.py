"""Scores that sometimes collapse: what may be called equal, by the exact bound, in the software and by simulation."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import STEPS, TASK, Levels, study_of
from scipy import stats
from simulate import paired_intervals

from ablate import evidence, formatting
from ablate.cli.summary import summary
from ablate.evidence.equivalence import Collapse, bound, bound_words, bounds, cost, guess_of
from ablate.evidence.error_rates import LOOKS, nominal
from ablate.evidence.normality import LEVEL, normality, rejects_normality
from ablate.evidence.statistics import Estimate, paired
from ablate.results.records import TaskFacts
from ablate.results.study import Study
from analysis.case import case_of
from analysis.writing.methods import markdown
from analysis.writing.sentences import sentences
from analysis.writing.tables import particulars_sheet

COPY = TASK | {"metrics": {"accuracy": "max", "loss": "min"}, "yardsticks": {"chance": math.log(2)}}
MARGIN = {"value": 0.02, "written": "2026-01-01", "registered": True, "earlier": []}
NOISE = np.random.default_rng(4).normal(size=(90, 2))
PAIR = {"norm": ["ln", "rms"]}


def solved(levels: dict[str, Any], seed: int) -> float:
    """0.999 ± 0.0003, whatever the norm."""
    return float(0.999 + 0.0003 * NOISE[seed, int(levels.get("norm") == "rms")])


def but(*fallen: tuple[str, int], score: Any = solved, low: float = 0.5) -> Any:
    """Scores of which those of (norm, seed) collapsed."""
    return lambda levels, seed: low if (levels["norm"], seed) in fallen else score(levels, seed)


def study(n: int, score: Any = solved, task: dict[str, Any] = COPY, **options: Any) -> Study:
    options = {"margin": MARGIN, "tasks": {"f0": task}} | options
    return study_of(PAIR, range(n), score, **options)


def row(found: Study) -> Any:
    return next(evidence.effects(found).itertuples())


def test_a_share_that_so_few_seeds_rule_out() -> None:
    assert bound(0, 20, 0.05) == pytest.approx(1 - 0.05 ** (1 / 20)) == pytest.approx(0.1391, abs=1e-4)
    assert bound(0, 74, 0.05) < 0.04 < bound(0, 73, 0.05), "so that a collapse of 0.5 fits into 0.02"
    for count, n in ((1, 5), (3, 20)):
        assert stats.binom.cdf(count, n, bound(count, n, 0.05)) == pytest.approx(0.05)
    assert bound(4, 4, 0.05) == 1


def test_what_a_guess_scores() -> None:
    copy, text, bare = TaskFacts(**COPY), TaskFacts(**TASK), TaskFacts(metrics={"loss": "min"})
    assert guess_of(copy, "test/accuracy@30") == pytest.approx(0.5) and guess_of(copy, "test/exact") == 0
    assert guess_of(text, "test/loss@128") == 5.5452 and guess_of(bare, "accuracy") == 0
    assert math.isnan(guess_of(bare, "loss")) and math.isnan(guess_of(text, "test/bpb"))


def test_collapsed_seeds_count_in_the_bound_and_not_in_the_interval() -> None:
    found = row(study(20, but(("rms", 3), ("rms", 7), ("ln", 7))))
    assert found.verdict == "equivalent among solved seeds"
    said = "18 of 20 solved, failure rate < 29 %, 2 collapsed against 1; the others "
    assert found.note.startswith(said)
    left = [NOISE[seed, 1] - NOISE[seed, 0] for seed in range(20) if seed not in (3, 7)]
    ends = stats.ttest_1samp(0.0003 * np.array(left), 0).confidence_interval(0.95)
    decimals = formatting.decimals([np.ptp(ends) / 2])
    assert found.note == said + formatting.span(0.0003 * float(np.mean(left)), *ends, decimals)
    assert math.isnan(found.low), "an interval over collapsed seeds is none"


def low(levels: Levels, seed: int) -> float:
    """rms never learns."""
    return solved(levels, seed) - 0.5 * (levels["norm"] == "rms")


ELSEWHERE = TASK | {"yardsticks": {}}  # where the size of a collapse is unknown


@pytest.mark.parametrize(
    ("n", "score", "task", "allowed"),
    [
        (73, solved, COPY, {"equivalent among solved seeds"}),
        (76, solved, COPY, {"equivalent"}),  # the bound fits into the margin
        (80, lambda levels, seed: 2.0 + solved(levels, seed), ELSEWHERE, {"equivalent among seeds that trained"}),
        (8, but(*[("rms", seed) for seed in range(4)]), COPY, {"undecided", "worse"}),  # too few seeds trained
        (5, but(("rms", 0)), COPY, {"undecided", "worse"}),
        (8, low, COPY, {"worse"}),
    ],
)
def test_verdicts_allow_for_the_seeds_that_may_collapse(n: int, score, task, allowed) -> None:
    found = row(study(n, score, task))
    assert found.verdict in allowed and not (score is low and found.note)


def test_losses_go_by_the_same_rule() -> None:
    score = lambda levels, seed: 2.0 + solved(levels, seed)  # noqa: E731
    equal, words = study(8, score, TASK), "equivalent within ±0.02 (8 of 8 trained, failure rate < 32 %)"
    assert formatting.verdict(row(equal)) == words and words in summary(equal)
    stuck = row(study(20, but(("rms", 3), score=score, low=5.4), TASK))
    assert stuck.note.startswith("19 of 20 trained, ") and ", 1 collapsed against 0" in stuck.note
    assert stuck.verdict.endswith("among seeds that trained")
    lost = lambda levels, seed: "diverged" if seed == 3 else "done"  # noqa: E731
    diverged = row(study(20, score, TASK, status=lost))
    assert diverged.verdict == "equivalent among seeds that trained"
    assert diverged.note.startswith("19 of 20 trained, ") and ", 1 collapsed against 1" in diverged.note


def equivalent(margin: Any, metric: str = "accuracy") -> dict[str, Any]:
    text = {"equivalent": [{"norm": "rms"}, {"norm": "ln"}], "margin": margin, "metric": f"test/{metric}"}
    return {"claim": text, "written": "2026-01-01", "registered": True}


def test_a_claim_is_supported_among_solved_seeds_only() -> None:
    claims = {"same": equivalent(0.02)}
    found = evidence.claims(study(20, claims=claims)).iloc[0]
    assert found.verdict == "supported among solved seeds" and not found.waits, "20 seeds are all"
    assert ": supported (20 of 20 solved, failure rate < 14 %). rms and ln are equivalent within" in found.sentence
    found = evidence.claims(study(76, claims=claims)).iloc[0]
    assert found.verdict == "supported" and not found.waits
    found = evidence.claims(study(8, but(("rms", 0), ("ln", 0)), claims={"same": equivalent(0.9)})).iloc[0]
    assert found.verdict == "undecided" and found.p == 1 and "collapsed in 1 of 8 seeds" in found.sentence


# By simulation: the interval and the bound that verdicts are made of, on many studies at once


def plainly_equal(differences: np.ndarray, fallen: np.ndarray) -> bool:
    """Whether equality within 0.02 is plain where each of the fallen seeds costs 0.499."""
    left, k, n = differences[~fallen], int(fallen.sum()), len(fallen)
    if len(left) < 5 or 2 * k >= n:
        return False
    known = Collapse(((k, n),), (0.499,), (0, k), Estimate(0, 0, len(left), 0, 0), math.nan)
    ends = paired_intervals(left[None, :, None], 0.05)
    return bool(np.abs(ends).max() + cost(known, 0.05) < 0.02)


@pytest.mark.parametrize(("n", "q", "before"), [(5, 0.05, 0.77), (20, 0.1, 0.12)])
def test_what_an_interval_alone_calls_equal_is_so_among_solved_seeds_only(n, q, before):
    """Differences of two scores of 0.999 ± 0.0003, of which a share falls by 0.499."""
    rng = np.random.default_rng([n, int(100 * q)])
    fallen, values = rng.random((1000, n)) < q, 0.0003 * np.sqrt(2) * rng.normal(size=(1000, n))
    low, high = paired_intervals((values - 0.499 * fallen)[..., None], 0.05)
    assert np.mean((low > -0.02) & (high < 0.02)) == pytest.approx(before, abs=0.05), "the interval alone"
    assert np.mean([plainly_equal(*each) for each in zip(values, fallen, strict=True)]) <= 0.05
    for each, lost in zip(values[:3], fallen, strict=False):
        rms = np.where(lost, 0.5, 0.999 + each)
        found = study(n, lambda levels, seed, rms=rms: rms[seed] if levels["norm"] == "rms" else 0.999)
        assert row(found).verdict not in ("equivalent", "negligible")


def test_bounds_hold_at_all_looks_together() -> None:
    """A share of collapses above its bound at any look of seeds=auto, whoever stops when."""
    level = nominal(LOOKS, 0.05)
    worst, limits = 0.0, {n: np.array([bound(k, n, level) for k in range(n + 1)]) for n in LOOKS}
    drawn = np.random.default_rng(6).random((10_000, LOOKS[-1]))
    for q in np.linspace(0.02, 0.6, 30):
        counts = (drawn < q).cumsum(1)
        missed = np.zeros(len(counts), dtype=bool)
        for n in LOOKS:
            missed |= limits[n][counts[:, n - 1]] < q
        worst = max(worst, float(missed.mean()))
    assert worst <= 0.05


def test_what_bounds_leave_open_in_words() -> None:
    known = Collapse(((0, 8),), (0.5,), (0, 0), Estimate(0, 0, 8, 0, 7), math.nan)
    assert "rate < 32 %" in bound_words(known, 0.05, True) and bound(0, 8, 0.05) == pytest.approx(0.3123, abs=1e-4)
    # Of two effects the one that more seeds may collapse in costs less.
    shares = {"collapse_share": [0.6, 0.3], "collapse_cost": [0.1, 0.5], "verdict": ["better", "looks worse"]}
    said = evidence.unseen_line(pandas.DataFrame(shares | {"metric": "test/loss"}))
    assert said.endswith("up to 60 % of seeds may collapse (95 %), which would move a difference by up to 0.1")


def test_what_better_and_worse_leave_open_stands_beside_them() -> None:
    low = lambda levels, seed: solved(levels, seed) - 0.1 * (levels["norm"] == "rms")  # noqa: E731
    pair = study(5, low)
    found = row(pair)
    assert found.verdict == "worse" and found.collapse_share == pytest.approx(1 - 0.05 ** (1 / 5))
    best = float(np.median([solved({"norm": "ln"}, seed) for seed in range(5)]))
    assert found.collapse_cost == pytest.approx(found.collapse_share * (best - 0.5))
    said = "better and worse hold for these seeds: up to 46 % of seeds may collapse (95 %), which would move a "
    assert said + "difference by up to 0.22" in summary(pair)
    sheet = particulars_sheet(case_of(pair, Path()))
    assert sheet and sheet.rows[0][sheet.head.index("collapses at most [95 %]")] == "46 %: 0.22"
    alone = study(5, low, batches=lambda levels: levels["norm"])
    assert row(alone).collapse_share == pytest.approx(1 - 0.025 ** (1 / 5)), "of independent sides at half the level"
    looks = row(study(5, low, sequential={"looks": [*LOOKS], "at": 5, "max": 20}))
    assert looks.collapse_share == pytest.approx(1 - nominal(LOOKS, 0.05) ** (1 / 5))
    assert "may collapse" not in summary(study(5))


def test_sides_with_batches_of_their_own_share_the_level() -> None:
    """Two groups of 20 seeds, none collapsed: at the level that each has, 1 − (α/2)^(1/20)."""
    none = Collapse(((0, 20), (0, 20)), (1.0, 1.0), (0, 0), paired(np.zeros(0)), math.nan)
    assert bounds(none, 0.05) == pytest.approx([1 - 0.025 ** (1 / 20)] * 2)
    assert bounds(none._replace(counts=((0, 20),)), 0.05) == pytest.approx([1 - 0.05 ** (1 / 20)])


MARGIN_COLLAPSE = MARGIN | {"value": "2 %"}
SLOPE, COLLAPSED, N = -0.3, 5.4, 8


def study_collapse(
    worth: float, fallen: set[tuple[str, int]], noise: float = 1e-3, rng: int = 0, n: int = N, **options: Any
) -> Study:
    """Two norms whose difference is worth a share of the steps; `fallen` runs, (norm or steps, seed), collapsed."""
    drawn: dict[Any, np.ndarray] = {
        name: np.random.default_rng([rng, i]).normal(0, noise, n) for i, name in enumerate(("ln", "rms", 640, 1000))
    }

    def score(levels: Levels, seed: int) -> float:
        steps = levels.get("train.steps", STEPS)
        name = levels.get("norm", "ln") if steps == STEPS else steps
        gain = math.log1p(worth) * (name == "rms") + math.log(steps / STEPS)
        return COLLAPSED if (name, seed) in fallen else float(2.0 + SLOPE * gain + drawn[name][seed])

    own = {name: options[name] for name in ("batches", "tasks") if name in options}
    exchange = study_of({"train.steps": [STEPS, 640, 1000]}, range(n), score, exchange_of="s", **own)
    return study_of(PAIR, range(n), score, beside={"exchange": exchange}, **{"margin": MARGIN_COLLAPSE} | options)


FALLEN = {(640, 2), ("rms", 5)}


def test_the_exchange_rate_says_how_many_seeds_it_leaves_out() -> None:
    [line] = evidence.exchange_lines(study_collapse(0.0, FALLEN))
    assert "(n = 7); 1 seed with a collapsed run left out" in line
    [line] = evidence.exchange_lines(study_collapse(0.0, set()))
    assert "(n = 8)" in line and "left out" not in line


def test_seeds_of_a_model_that_has_barely_learned_are_sound() -> None:
    """Two SD from a guess, a quarter of the way from the best run to it is less than seeds differ by."""
    task, kept = TASK | {"yardsticks": {"uniform": 2.02}}, []
    for rng in range(4):
        found = study_collapse(0.0, set(), noise=0.01, rng=rng, tasks={"f0": task})
        [line] = evidence.exchange_lines(found)
        kept.append(int(line.partition("(n = ")[2].partition(")")[0]))
    assert np.mean(kept) > 0.95 * N, "by a quarter of the way alone 1 of 8 was left"


@pytest.mark.parametrize("batches", [lambda levels: "b0", lambda levels: levels.get("norm", "ln")])
@pytest.mark.parametrize("worth", [0.062, -0.062])
def test_a_difference_beyond_the_margin_is_not_small_because_runs_collapsed(batches, worth):
    """By the mean slope of all seeds 2 % of the steps were 0.03 nats here, and 6.2 % are 0.018."""
    found = row(study_collapse(worth, FALLEN, batches=batches))
    assert found.verdict not in ("negligible among seeds that trained", "equivalent among seeds that trained")


@pytest.mark.parametrize("batches", [lambda levels: "b0", lambda levels: levels.get("norm", "ln")])
def test_seeds_that_trained_are_equal_by_their_own_slope(batches: Any) -> None:
    for name, fallen in {"both": FALLEN, "exchange": {(640, 2)}}.items():
        found = row(study_collapse(0.004, fallen, noise=2e-4, batches=batches))
        assert found.verdict.removeprefix("looks ") == "negligible among seeds that trained", name
    assert "over 7 seeds that have exchange runs" in found.worth_note
    assert found.worth == pytest.approx(0.004, abs=0.001), "what the collapsed run lost is no worth of its steps"


def test_too_few_seeds_with_all_runs_say_nothing() -> None:
    some = row(study_collapse(0.0, {(640, 0), (640, 1), ("rms", 7)}, noise=2e-4))
    none = row(study_collapse(0.0, {(640, 0), (640, 1), (640, 2), ("rms", 7)}, noise=2e-4))
    assert some.verdict == "equivalent among seeds that trained" and none.verdict == "undecided"


def test_more_steps_that_make_it_worse_make_nothing_small() -> None:
    turned = study_collapse(0.0, {("rms", 5)}, noise=2e-4)
    exchange = turned.beside["exchange"].runs
    exchange["test/loss"] = 4.0 - exchange["test/loss"]
    assert row(turned).verdict == "undecided"


def test_claims_go_by_the_same_slope() -> None:
    options = {"claims": {"same": equivalent("2 %", "loss")}, "batches": lambda levels: levels.get("norm", "ln")}
    far, near, lost = (
        evidence.claims(study_collapse(worth, fallen, noise=2e-4, **options)).iloc[0]
        for worth, fallen in ((0.062, {(640, 2)}), (0.004, {(640, 2)}), (0.0, FALLEN))
    )
    assert far.verdict == "contradicted" and near.verdict == "supported among seeds that trained"
    assert lost.verdict == "undecided" and "rms collapsed in 1 of 8 seeds" in lost.sentence


NORMAL = "if differences are roughly normal"
QUANTILES = {n: stats.norm.ppf((np.arange(n) + 0.5) / n) for n in (11, 12, 20)}


def study_normal(differences: np.ndarray, **options: Any) -> Study:
    score = lambda levels, seed: 2.0 + float(differences[seed]) * (levels["norm"] == "rms")  # noqa: E731
    return study_of(PAIR, range(len(differences)), score, **options)


def test_below_twelve_seeds_a_verdict_names_what_it_assumes() -> None:
    found = study_normal(0.05 + 0.01 * QUANTILES[11])
    assert row(found).verdict == "worse" and row(found).assumes == NORMAL
    lines = summary(found).splitlines()
    assert any(line.endswith("worse (higher loss) at this scale") for line in lines)
    assert lines.count("verdicts from fewer than 12 seeds assume that differences over seeds are roughly normal") == 1
    assert NORMAL not in "".join([*lines, *sentences(case_of(found, Path()))]), "what holds for all rows is said once"


def test_from_twelve_seeds_on_normal_differences_need_no_assumption() -> None:
    found = study_normal(0.05 + 0.01 * QUANTILES[12])
    assert row(found).verdict == "worse" and row(found).assumes == "" and row(found).p_normal > LEVEL
    assert NORMAL not in summary(found)


@pytest.mark.parametrize("margin", [None, MARGIN | {"value": 5.0}])
def test_an_alarm_withholds_the_verdict_and_says_why(margin: dict[str, Any] | None) -> None:
    skewed = 0.01 * np.exp(QUANTILES[20])
    found = row(study_normal(skewed, margin=margin))
    assert stats.ttest_1samp(skewed, 0).pvalue < 0.001, "what the interval would have called worse"
    assert found.verdict == "withheld" and math.isnan(found.low) and math.isnan(found.p)
    assert formatting.verdict(found).startswith("withheld: differences over seeds are not normal (Shapiro–Wilk p")
    assert found.note.endswith("lower 0, higher 20 (sign test, uncorrected: p < 0.0001)")


def test_a_margin_in_steps_gives_no_verdict_after_an_alarm() -> None:
    """Such margins go by what the effect is worth, which has an interval where the effect itself has none."""
    skewed = study_collapse(0.0, set(), n=20, margin=MARGIN_COLLAPSE | {"value": "90 %"})
    assert row(skewed).verdict.startswith("equivalent"), "with these scores and no alarm"
    extra = 0.002 * np.exp(QUANTILES[20])
    runs = skewed.runs.assign(extra=[extra[seed] for seed in skewed.runs["seed"]])
    runs["test/loss"] += runs["extra"].where(runs["norm"] == "rms", 0.0)
    found = row(dataclasses.replace(skewed, runs=runs))
    assert found.verdict == "withheld" and "are not normal" in found.note


def test_seeds_that_never_train_are_no_unseen_collapses() -> None:
    """A variant that never learns is worse: what its runs lost is no bound on what other seeds would lose."""
    lost = but(*[("rms", seed) for seed in range(8)], score=lambda levels, seed: solved(levels, seed))
    found = study(8, lost)
    assert row(found).verdict == "worse" and math.isnan(row(found).collapse_share)
    assert "seeds may collapse" not in summary(found)
    assert "seeds may collapse" in summary(
        study(8, lambda levels, seed: solved(levels, seed) - (levels["norm"] == "rms") / 9)
    )


def test_after_an_alarm_the_other_rows_name_what_they_assume() -> None:
    shapes = {"ln": 0 * QUANTILES[20], "rms": np.exp(QUANTILES[20]), "scale": 5 + np.roll(QUANTILES[20], 7)}
    score = lambda levels, seed: 2.0 + 0.01 * float(shapes[levels["norm"]][seed])  # noqa: E731
    found = study_of({"norm": list(shapes)}, range(20), score)
    family = evidence.effects(found).query("family")
    assert "(1 of 2)" in markdown(case_of(found, Path()))
    assert list(family["verdict"]) == ["withheld", "worse"] and list(family["assumes"]) == ["", NORMAL]


def test_seeds_auto_does_not_stop_on_an_alarm() -> None:
    looks = {"looks": [5, 8, 12, 20], "at": 12, "max": 20}
    table = evidence.effects(study_normal(0.01 * np.exp(1.5 * QUANTILES[12]), sequential=looks))
    assert table["verdict"].iloc[0] == "withheld" and len(evidence.undecided(table)) == 1


def test_claims_go_by_the_same_check() -> None:
    more = {"greater": [{"norm": "rms"}, {"norm": "ln"}], "metric": "test/loss"}
    claims = {"more": equivalent(9.0) | {"claim": more}, "same": equivalent(9.0, "loss")}
    for found in evidence.claims(study_normal(0.01 * np.exp(QUANTILES[20]), claims=claims)).itertuples():
        assert found.verdict == "undecided" and "are not normal (Shapiro–Wilk" in found.sentence and found.waits
    for found in evidence.claims(study_normal(0.05 + 0.01 * QUANTILES[11], claims=claims)).itertuples():
        assert found.verdict.startswith("supported") and found.assumes == NORMAL and NORMAL not in found.sentence


def test_unpaired_sides_are_checked_each() -> None:
    def score(levels: dict[str, Any], seed: int) -> float:
        far = levels["train.batch_size"] == 32
        return 2.0 + 0.01 * float(np.exp(QUANTILES[20][seed]) if far else QUANTILES[20][seed]) + far

    found = row(study_of({"train.batch_size": [16, 32]}, range(20), score, batches=str))
    assert not found.paired and found.verdict == "withheld" and "scores over seeds are not normal" in found.note


def test_false_alarms_are_five_per_cent_and_skew_is_seen() -> None:
    rng = np.random.default_rng(12)

    def alarms(values: np.ndarray) -> float:
        return float(np.mean([rejects_normality(normality([each])) for each in values]))

    assert alarms(rng.normal(size=(1000, 12))) <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 1000)
    assert alarms(rng.lognormal(size=(200, 12))) >= 0.6 and alarms(rng.lognormal(size=(200, 20))) >= 0.9
