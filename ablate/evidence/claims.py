"""Tests of a study file's claims: supported, contradicted or undecided, corrected for their number."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas
import scipy

from ablate.config.claims import BOUNDED, DIFFERENCES, Claim, sides_of, weighed
from ablate.config.key_checks import fraction_of
from ablate.evidence.claim_text import claim_says, claim_sentence, pairs, replication, side_words
from ablate.evidence.collapse import collapse_of
from ablate.evidence.contrasts import Contrast
from ablate.evidence.estimates import Comparison, compare, divergence_of, interval, p_value, paired
from ablate.evidence.families import ALPHA, bonferroni, holm, planned_looks, registered, unadjusted
from ablate.evidence.ladder import in_compute, rung_of, worth_at
from ablate.evidence.proportions import is_solved, smallest_level
from ablate.evidence.scores import StudyScores, scores_by_two_metrics, second_metric, study_scores
from ablate.evidence.verdicts import MIN_SEEDS, events, no_verdict, too_few_seeds, without_interval
from ablate.evidence.worth import WORTH, Curves, Worth, curves_of, fits_in_steps, outside, worth
from ablate.formatting import ESTIMATE_ONLY, MINUS, number, p_words, ranks
from ablate.runs.naming import metric_words, no_evidence
from ablate.runs.records import ClaimEntry, ClaimVerdict, Manifest, StudyVerdicts
from ablate.runs.study import Study
from ablate.runs.tables import named_rows

VERDICTS = {1: "supported", 0: "undecided", -1: "contradicted"}
COLUMNS = ["name", "relation", "sentence", "metric", "n", "mean", "sd", "low", "high", "p", "p_holm", "margin"]
COLUMNS += ["registered", "edited", "verdict", "note", "side", "against", "paired", "family", "unadjusted", "alpha"]
COLUMNS += ["waits", "diverged", "diverged_reference", "lower", "higher", "tied", *WORTH, "says"]
RANDOM_ORDERS = 99_999  # of more than 8 levels; of fewer all orders are tried


@dataclass(frozen=True)
class Judgement:
    """What a claim's data say at a level: the interval, and 1 (supported), −1 (contradicted) or 0."""

    low: float = math.nan
    high: float = math.nan
    outcome: int = 0
    worth: Worth = field(default_factory=Worth)


@dataclass(frozen=True)
class ClaimTest:
    """The test of one claim, before the correction for the number of claims."""

    columns: dict[str, Any]  # of its row in `claims`
    p: float  # of "neither supported nor contradicted", valid at any look; NaN without a verdict
    judge: Callable[[float], Judgement]  # the judgement at a level
    reason: str = ""  # why there is no verdict
    final: bool = False  # whether more seeds cannot change that
    notes: list[str] = field(default_factory=list)


# The table of claims


def claims(study: Study) -> pandas.DataFrame:
    """A row per claim of a study: side one minus side two, in the metric's unit, and its verdict.

    Registered claims are the family: Holm's step-down over all m that were ever registered decides them, p_holm ≤ 0.05.
    The intervals are simultaneous, of level 1 − 0.05/m, and may contain zero where Holm's step-down decides.  Claims
    written or edited after results have the verdict "estimate only", a plain 95 % interval and no p_holm.  `less` and
    `greater` compare the numbers, whether or not less is better, by more than their margin if any.  With `seeds=auto`
    all levels allow for the looks; `waits` marks claims that more seeds may decide.  Verdict, estimate, interval and p
    of a claim are those in `Study.verdicts`, where it was judged when the tables were written.  `says` is the finding,
    `sentence` adds name, verdict and grounds.  Tuning is not used.
    """
    manifest = study.manifest
    entries = {} if no_evidence(manifest) else manifest.claims
    tests = {}
    for name, entry in entries.items():
        # Seeded by the claim's name, so that other claims do not change its random numbers.
        rng = np.random.default_rng([*name.encode()])
        test = TESTS[entry.claim.relation](study, entry.claim, rng)
        if name in study.verdicts:
            test = replace(test, p=number_of(study.verdicts[name].p))
        tests[name] = test
    m = max(1, registered(manifest))
    in_family = np.array([entry.registered for entry in entries.values()], dtype=bool)
    p = np.array([test.p for test in tests.values()], dtype=float)
    p_holm = np.full(len(p), math.nan)
    p_holm[in_family] = holm(p[in_family], m)
    rows = []
    for (name, test), corrected in zip(tests.items(), p_holm, strict=True):
        entry = entries[name]
        row = claim_row(entry, test, ALPHA / m if entry.registered else ALPHA, corrected)
        row |= {"name": name, "unadjusted": bool(unadjusted(manifest))}
        if name in study.verdicts:
            row |= columns_as_judged(study.verdicts[name], row)
        rows.append(row)
    table = pandas.DataFrame(rows, columns=COLUMNS)
    table["says"] = [claim_says(manifest, entries[row.name].claim, row) for row in named_rows(table)]
    table["sentence"] = [claim_sentence(manifest, entries[row.name], row) for row in named_rows(table)]
    return table


def claim_row(entry: ClaimEntry, test: ClaimTest, level: float, p_holm: float) -> dict[str, Any]:
    """The columns of one claim: its interval is of this level, and a registered one is decided by Holm's step-down.  A
    p of at most 0.05 says that the claim is decided; in which direction, its judgement at 0.05 says."""
    judgement = test.judge(level)
    outcome = judgement.outcome
    if p_holm <= ALPHA and outcome == 0:
        outcome = test.judge(ALPHA).outcome
    return (
        {"sd": math.nan, "margin": math.nan}
        | test.columns
        | {
            "relation": entry.claim.relation,
            "low": judgement.low,
            "high": judgement.high,
            "p": test.p,
            "p_holm": p_holm,
            "alpha": level,
            "registered": entry.registered,
            "family": entry.registered,
            "edited": bool(entry.earlier),
            "verdict": VERDICTS[outcome] if entry.registered else ESTIMATE_ONLY,
            "waits": entry.registered and outcome == 0 and not test.final,
            "note": "; ".join(filter(None, [test.reason, *test.notes])),
            **vars(judgement.worth),
        }
    )


def columns_as_judged(judged: ClaimVerdict, row: dict[str, Any]) -> dict[str, Any]:
    """The columns of a claim that was judged when the tables were written; `row` is how it would be judged now."""
    low, high = judged.interval
    columns = {"mean": number_of(judged.estimate), "low": number_of(low), "high": number_of(high)}
    if math.isnan(row["mean"]):  # today's method needs runs that the study does not have
        return columns | {"verdict": judged.verdict, "note": judged.note}
    if row["verdict"] == judged.verdict:
        return columns
    method = method_of(row["relation"], row["metric"], row["paired"])
    note = f"judged by {judged.method}; {method} says {row['verdict']}"
    if row["note"]:
        note = f"{note}; {row['note']}"
    return columns | {"verdict": judged.verdict, "note": note}


def number_of(value: float | None) -> float:
    """A number from JSON, where None stands for NaN."""
    return math.nan if value is None else float(value)


def contrast_of(claim: Claim, manifest: Manifest) -> Contrast:
    """The contrast between the sides of a claim."""
    weights, reference_weights = weighed(claim, manifest.cells)
    level, reference = (side_words(manifest, side) for side in claim.sides)
    if len(claim.metrics) > 1:
        level, reference = sides_by_metric(claim, manifest, level, reference)
        copies = {second_metric(cell, claim.metrics[1]): weight for cell, weight in reference_weights.items()}
        reference_weights = copies
    for cell, weight in reference_weights.items():
        weights = weights | {cell: -weight}
    kind = "claim"
    corners: list[list[str]] = []
    if claim.than_at:
        kind = "interaction"
        for side in sides_of(claim, manifest.cells):
            corners.append([cell for cell in weights if cell in side])
        here = " with ".join(pairs(manifest, claim.compared))
        there = " with ".join(pairs(manifest, claim.than_at))
        level = f"({level} {MINUS} {reference}) at {here}"
        reference = f"that at {there}"
    return Contrast(
        kind=kind,
        factor="",
        level=level,
        reference=reference,
        stratum=", ".join(pairs(manifest, claim.fixed)),
        label=f"{level} against {reference}",
        weights=weights,
        corners=tuple(corners),
    )


def sides_by_metric(claim: Claim, manifest: Manifest, level: str, reference: str) -> tuple[str, str]:
    """The sides of a claim that compares two metrics."""
    first, second = (metric_words(manifest, metric) for metric in claim.metrics)
    if claim.sides[0] == claim.sides[1]:
        return f"{level}: {first}", second
    return f"{first} of {level}", f"{second} of {reference}"


# Differences of two means


def decide(relation: str, margin: float, low: float, high: float, n: int) -> int:
    """1 (supported: the interval is all on the claimed side), −1 (contradicted: all on the other) or 0.

    `less` and `greater`: side one − side two is below −margin or above margin (zero without a margin);
    `equivalent`: it is inside ±margin, with n >= 5; `not_greater`, `not_less`: it is below margin or above −margin,
    with n >= 5.  An interval of NaN gives 0.
    """
    nearest = low  # to zero, in the direction of the margin
    farthest = high
    if relation in ("less", "not_less"):
        nearest = -high
        farthest = -low
    elif relation == "equivalent":  # of the difference without its sign
        nearest = max(low, -high)
        farthest = max(-low, high)
    if relation not in BOUNDED:
        edge = 0.0 if math.isnan(margin) else margin
        return int(nearest > edge) - int(farthest < edge)
    if farthest < margin:
        return int(n >= MIN_SEEDS)
    return -int(nearest > margin)


@dataclass(frozen=True)
class DifferenceTest:
    """A claim about the difference of two means: see `difference`."""

    relation: str
    margin: float  # in the metric's unit; NaN without one
    margin_steps: float | None  # as a share of the training steps, which only `equivalent` has
    contrast: Contrast
    scores: StudyScores
    comparison: Comparison
    curves: Curves  # what steps are worth; empty if that is not known
    is_never_small: bool  # whether collapsed seeds or skewed differences bar that a difference is shown to be small
    looks: int

    @property
    def exact_p(self) -> float | None:
        """The p of an exact test of no difference, which decides shares of solved runs without a margin."""
        solved = self.comparison.estimate.solved
        return solved.p_no_difference if solved is not None and math.isnan(self.margin) else None

    def judge(self, level: float) -> Judgement:
        """The interval, the outcome and what the difference is worth at a level, which is split evenly among looks."""
        alpha = level / self.looks
        if no_verdict(self.comparison) is not None:
            return Judgement()
        return Judgement(*interval(self.comparison.estimate, alpha), self.outcome(alpha), self.worth(alpha))

    def worth(self, alpha: float) -> Worth:
        """What the difference is worth in steps of the reference, if that is known."""
        return worth(self.scores, self.contrast.weights, self.curves, alpha) if self.curves else Worth()

    def outcome(self, alpha: float) -> int:
        """1 (supported), −1 (contradicted) or 0 at a level: by the worth for a margin in steps, by the exact test for
        shares of solved runs without a margin, else by the interval."""
        estimate = self.comparison.estimate
        if self.margin_steps is not None:
            in_steps = self.worth(alpha)
            outcome = int(fits_in_steps(in_steps, self.margin_steps)) - int(outside(in_steps, self.margin_steps))
        elif self.exact_p is not None:
            decided = estimate.mean if self.exact_p <= alpha else 0.0
            outcome = decide(self.relation, self.margin, decided, decided, estimate.n)
        else:
            outcome = decide(self.relation, self.margin, *interval(estimate, alpha), estimate.n)
        return 0 if outcome == 1 and self.is_never_small else outcome

    def p(self) -> float:
        """The smallest level at which the claim is decided, valid at any look.

        For `less` and `greater` without a margin it is that of the t test; for `equivalent` twice the larger p of two
        one-sided tests (Schuirmann 1987).
        """
        p = smallest_level(self.outcome) if self.exact_p is None else self.exact_p
        return float(bonferroni(p, self.looks))


def difference(study: Study, claim: Claim, rng: np.random.Generator) -> ClaimTest:
    """The `DIFFERENCES`: mean of side one − mean of side two, each by its metric, within seeds or by Welch."""
    contrast = contrast_of(claim, study.manifest)
    compute_scores = scores_by_two_metrics if len(claim.metrics) > 1 else study_scores
    scores = compute_scores(study, *claim.metrics)
    comparison = compare(scores, contrast)
    estimate = comparison.estimate
    has_mean = not without_interval(comparison)  # a difference between survivors could be mistaken for an effect
    collapse = collapse_of(scores, contrast)
    margin_steps = fraction_of(claim.margin)
    test = DifferenceTest(
        relation=claim.relation,
        margin=math.nan if claim.margin is None or margin_steps is not None else float(claim.margin),
        margin_steps=margin_steps,
        contrast=contrast,
        scores=scores,
        comparison=comparison,
        curves=curves_of(study, comparison.metric) if has_mean and not claim.than_at else {},
        is_never_small=claim.relation in BOUNDED and (collapse.collapsed > 0 or estimate.skewed is not None),
        looks=planned_looks(study.manifest),
    )
    reason = ""
    final = False
    withheld = no_verdict(comparison)
    if withheld is not None:
        reason = withheld.note
        final = not withheld.waits
        if comparison.diverged_unequally:
            reason += f"; diverged ranked worst: {ranks(comparison)}"
    elif margin_steps is not None and not test.curves:
        reason = f"what {claim.margin} of the steps are worth is not known; step_equivalents=true measures it"
        final = True
    notes = [] if reason else events(comparison, collapse)
    if claim.relation in BOUNDED and 1 < comparison.n < MIN_SEEDS:
        notes.append(f"fewer than {MIN_SEEDS} seeds cannot show that a difference is small")
    columns = vars(comparison) | {"n": comparison.n, "margin": test.margin}
    columns |= {"side": contrast.level, "against": contrast.reference, "mean": math.nan}
    if has_mean:
        columns |= {"mean": estimate.mean, "sd": estimate.sd}
    return ClaimTest(columns, math.nan if reason else test.p(), test.judge, reason, final, notes)


# Divergence


def divergence(study: Study, claim: Claim, rng: np.random.Generator) -> ClaimTest:
    """`diverges_more`: the share of diverged runs of side one − that of side two, with the exact p; no interval."""
    level, reference = ([*side] for side in weighed(claim, study.manifest.cells))
    result = divergence_of(study, level, reference)
    (diverged, ended), (diverged_reference, ended_reference) = result.counts
    reason = too_few_seeds(result.n, result.paired)
    if not reason and not (diverged or diverged_reference):
        reason = "no run diverged on either side"
    p = math.nan if reason else float(bonferroni(result.p, planned_looks(study.manifest)))
    share = diverged / ended if ended else math.nan
    reference_share = diverged_reference / ended_reference if ended_reference else math.nan
    side, against = (side_words(study.manifest, side) for side in claim.sides)
    columns = {
        "n": result.n,
        "mean": share - reference_share,
        "metric": "diverged",
        "paired": result.paired,
        "side": side,
        "against": against,
        "diverged": diverged,
        "diverged_reference": diverged_reference,
    }
    counts = f"{diverged} of {ended} runs diverged against {diverged_reference} of {ended_reference}"

    def judge(level: float) -> Judgement:
        return Judgement(outcome=int(math.copysign(1, share - reference_share)) if p <= level else 0)

    return ClaimTest(columns, p, judge, reason, notes=[] if reason else [counts])


# Ranks


def order_p(values: np.ndarray, published: np.ndarray, rng: np.random.Generator) -> float:
    """The two-sided p of Spearman's mean ρ of seeds' scores (seeds, levels) with the published numbers (levels,).

    Compared with all orders of the published numbers for up to 8 levels, with 99,999 random ones for more (Spearman
    1904; Pitman 1937).
    """
    mean_ranks = standardised_ranks(values).mean(axis=0)

    def agreement(orders: np.ndarray, axis: int = -1) -> np.ndarray:
        return standardised_ranks(orders) @ mean_ranks

    test = scipy.stats.permutation_test(
        (published,), agreement, permutation_type="pairings", n_resamples=RANDOM_ORDERS, vectorized=True, rng=rng
    )
    return float(test.pvalue)


def spearman(values: np.ndarray, published: np.ndarray) -> np.ndarray:
    """Spearman's ρ of each row with the published numbers, ties by mean ranks."""
    return np.asarray(standardised_ranks(values) @ standardised_ranks(published) / len(published))


def standardised_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks along rows with mean 0 and SD 1; zeros where all are tied."""
    ranks_of_row = scipy.stats.rankdata(values, axis=-1)
    spread = ranks_of_row.std(axis=-1, keepdims=True)
    centred = ranks_of_row - ranks_of_row.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.where(spread > 0, spread, 1.0))


def ranking(study: Study, claim: Claim, rng: np.random.Generator) -> ClaimTest:
    """`rank_correlates`: Spearman's ρ of the levels' scores with the published numbers, within each seed.

    Supported (contradicted): the t interval of the seeds' ρ lies above (below) zero, so that seeds agree, *and* the
    permutation p, twice the exact tail over all orders of the levels, is below the level.  With four levels no order
    reaches that (2/24 > 0.05), with five only nearly perfect ones.  p is the larger of the two.  ρ is of the numbers as
    given: published scores for which more is better need a minus sign when compared with a loss.
    """
    sides = weighed(claim, study.manifest.cells)
    scores = study_scores(study, *claim.metrics)
    looks = planned_looks(study.manifest)
    levels = [side_words(study.manifest, side) for side in claim.sides]
    published = np.array(claim.published, float)
    values = level_scores(scores.values, sides)
    estimate = paired(spearman(values, published))
    diverged_unequally = len({scores.count("diverged", side) / len(side) for side in sides}) > 1
    reason = ""
    if diverged_unequally:
        reason = "values diverged unequally often"
        ranked = level_scores(scores.ranked, sides)
        if len(ranked):
            reason += f"; diverged ranked worst: {number(float(spearman(ranked, published).mean()), 2)}"
    elif estimate.n < MIN_SEEDS:
        reason = f"n = {estimate.n}, fewer than {MIN_SEEDS} seeds show no ranking"
    p = math.nan
    notes = []
    if not reason:
        p_orders = order_p(values, published, rng)
        # Unlike losses, ranks can agree in every seed: without spread the test over orders alone decides.
        p_seeds = p_value(estimate) if estimate.error else float(estimate.mean == 0)
        p = float(bonferroni(max(p_seeds, p_orders), looks))
        notes.append(without_one_level(values, published, levels))
        if p_orders > p_seeds:
            notes.append(f"as good an order by chance: {p_words(p_orders)}")

    def judge(level: float) -> Judgement:
        if reason:
            return Judgement()
        outcome = int(math.copysign(1, estimate.mean)) if p <= level else 0
        if not estimate.error:
            return Judgement(estimate.mean, estimate.mean, outcome)
        low, high = interval(estimate, level / looks)
        return Judgement(max(low, -1.0), min(high, 1.0), outcome)

    columns = {
        "n": estimate.n,
        "mean": math.nan if diverged_unequally else estimate.mean,
        "sd": math.nan if diverged_unequally else estimate.sd,
        "metric": ", ".join(dict.fromkeys(scores.metrics[cell] for side in sides for cell in side)),
        "paired": True,
        "side": ", ".join(levels),
        "against": "published numbers",
    }
    return ClaimTest(columns, p, judge, reason, diverged_unequally, notes)


def level_scores(values: pandas.DataFrame, sides: list[dict[str, float]]) -> np.ndarray:
    """The weighted mean of each level (seeds, levels), over the seeds that have every run."""
    complete = values[[cell for side in sides for cell in side]].dropna()
    return np.transpose([complete[[*side]] @ np.array([*side.values()]) for side in sides])


def without_one_level(values: np.ndarray, published: np.ndarray, levels: list[str]) -> str:
    """The weakest correlation without one of the levels: a few coarse groups can cause the whole of it."""
    direction = 1 if spearman(values, published).mean() >= 0 else -1
    without = []
    for i in range(len(levels)):
        without.append(spearman(np.delete(values, i, axis=1), np.delete(published, i)).mean())
    weakest = int(np.argmin(direction * np.array(without)))
    return f"Spearman without {levels[weakest]} {number(float(without[weakest]), 2)}"


# Multipliers


def compute_multiplier(study: Study, claim: Claim, rng: np.random.Generator) -> ClaimTest:
    """`multiplier`: how many times the compute of side one its reference needs at a rung is above or below a bound."""
    cell = next(iter(weighed(claim, study.manifest.cells)[0]))
    scores, rung, rates = rung_of(study, cell, *claim.metrics)
    curves = curves_of(study, rung.comparison.metric)
    bound, way = claim.bound
    single = worth_at(scores, curves, rung, ALPHA)
    reason = single.worth_note if math.isnan(single.worth) else ""

    def judge(level: float) -> Judgement:
        _, low, high = in_compute(worth_at(scores, curves, rung, level), rung.cost)
        return Judgement(low, high, way * ((low > bound) - (high < bound)))

    p = math.nan if reason else smallest_level(lambda level: judge(level).outcome != 0)
    side, against = (side_words(study.manifest, side) for side in claim.sides)
    columns = {
        "n": rung.comparison.n,
        "mean": in_compute(single, rung.cost)[0],
        "metric": rung.comparison.metric,
        "paired": True,
        "side": side,
        "against": against,
    }
    notes = [note for note in (single.worth_note, rates) if note and note != reason]
    return ClaimTest(columns, p, judge, reason, bool(reason), notes)


TESTS: dict[str, Callable[[Study, Claim, np.random.Generator], ClaimTest]] = dict.fromkeys(DIFFERENCES, difference)
TESTS |= {"diverges_more": divergence, "rank_correlates": ranking, "multiplier": compute_multiplier}


# Verdicts that are stored with a study's tables, so that a later change of method does not change them


def verdicts_to_store(manifest: Manifest, table: pandas.DataFrame, commit: str) -> StudyVerdicts:
    """What is stored of a study's registered claims, from its table of claims, judged by the code of this commit."""
    overall = replication(manifest, table)
    verdicts = {}
    for row in named_rows(table[table["registered"].astype(bool)]):
        verdicts[row.name] = ClaimVerdict(
            verdict=row.verdict,
            note=row.note,
            estimate=row.mean,
            interval=(row.low, row.high),
            p=row.p,
            method=method_of(row.relation, row.metric, row.paired),
            commit=commit,
        )
    return StudyVerdicts(overall=overall.verdict if overall else None, claims=verdicts)


def method_of(relation: str, metric: str, paired: bool) -> str:
    """How a claim is judged, in plain words."""
    if relation == "rank_correlates":
        return "Holm's step-down (t over seeds and permutation of levels)"
    if relation == "diverges_more":
        return "Holm's step-down (exact test)"
    if relation == "multiplier":
        return "Holm's step-down (t of the reference at other numbers of steps)"
    if is_solved(metric):
        return "Holm's step-down (exact test)"
    return "Holm's step-down (t)" if paired else "Holm's step-down (Welch's t)"
