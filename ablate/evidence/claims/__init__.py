"""Tests of a study file's claims: supported, contradicted or undecided, corrected for their number."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate.config.claims import BOUNDED, DIFFERENCES, Claim, plain_metric, sides_of, weighed
from ablate.config.key_checks import fraction_of
from ablate.evidence.claim_text import claim_says, claim_sentence, pairs, side_words
from ablate.evidence.contrasts import Contrast
from ablate.evidence.effects import no_verdict, too_few, withheld
from ablate.evidence.equivalence import SEEDS, Collapse, collapse_of
from ablate.evidence.error_rates import ALPHA, nominal, overall, planned_looks, registered
from ablate.evidence.estimates import divergence_of, estimate_row, scored, scored_by_two, second_metric
from ablate.evidence.exact import least_level
from ablate.evidence.ladder import arm_of, change, combined, unusable
from ablate.evidence.normality import assumed
from ablate.evidence.scores import unadjusted
from ablate.evidence.statistics import holm, interval, p_value, paired, t_above
from ablate.evidence.step_equivalents import WORTH, Worth, curves_of, fits_in_steps, in_units, outside, worth
from ablate.formatting import ESTIMATE_ONLY, MINUS, counted, decimals, number, p_words, ranks
from ablate.results.naming import metric_words, no_evidence
from ablate.results.records import ClaimEntry, ClaimVerdict, Manifest
from ablate.results.study import Study
from ablate.results.tables import named_rows

VERDICTS = {1: "supported", 0: "undecided", -1: "contradicted"}
COLUMNS = ["name", "relation", "sentence", "metric", "n", "mean", "sd", "low", "high", "p", "p_holm", "margin"]
COLUMNS += ["registered", "edited", "verdict", "note", "side", "against", "paired", "family", "unadjusted", "alpha"]
COLUMNS += ["waits", "diverged", "diverged_reference", "lower", "higher", "tied", *WORTH, "says", "assumes"]
RANKS_ASSUMED = "if correlations over seeds are roughly normal"  # they are bounded, and normality is not tested
# What too few seeds cannot show, by relation.
WITHIN = {"equivalent": "equivalence", "not_greater": "that it is not greater", "not_less": "that it is not less"}
OF_DIFFERENCE = ("n", "mean", "sd", "metric", "paired", "diverged", "diverged_reference", "lower", "higher", "tied")
EXACT = 8  # levels up to which all orders are enumerated
DRAWN = 99_999  # random orders otherwise


class Judged(NamedTuple):
    """A finding at a level, with its interval."""

    low: float = math.nan
    high: float = math.nan
    outcome: int = 0  # 1 (supported), −1 (contradicted) or 0
    worth: Worth = Worth()


@dataclass(frozen=True)
class Finding:
    """The result of one claim, before the correction for the number of claims."""

    columns: dict[str, Any]  # of its row in `claims`
    p: float  # of "neither supported nor contradicted", valid at any look; NaN without a verdict
    at: Callable[[float], Judged]  # the finding at a level
    reason: str = ""  # why there is no verdict
    final: bool = False  # whether more seeds cannot change that
    notes: list[str] = field(default_factory=list)
    assumes: str = ""


def decide(relation: str, margin: float, low: Any, high: Any, n: int) -> Any:
    """1 (supported: the interval is all on the claimed side), −1 (contradicted: all on the other) or 0.

    `less` and `greater`: side one − side two is below −margin or above margin (zero without a margin);
    `equivalent`: it is inside ±margin, with n >= 5; `not_greater`, `not_less`: it is below margin or above −margin,
    with n >= 5.  Works on arrays; an interval of NaN gives 0.
    """
    near, far = directed(relation, low, high)
    if relation in BOUNDED:
        return (far < margin) * (n >= SEEDS) - (near > margin) * 1
    beyond = 0.0 if math.isnan(margin) else margin
    return (near > beyond) * 1 - (far < beyond) * 1


def directed(relation: str, low: Any, high: Any) -> tuple[Any, Any]:
    """An interval in the direction of a relation's margin; for `equivalent` that of the difference without its sign."""
    if relation == "equivalent":
        return np.maximum(low, -high), np.maximum(-low, high)
    return (-high, -low) if relation in ("less", "not_less") else (low, high)


def difference(study: Study, claim: Claim, rng: np.random.Generator) -> Finding:
    """The `DIFFERENCES`: mean of side one − mean of side two, each by its metric, within seeds or by Welch.

    p is that of the interval: the largest level at which it is undecided.  For `equivalent` it is twice Student's
    P(t > ||Δ| − margin| / error): two one-sided tests (Schuirmann 1987) at half the level each; `not_greater` and
    `not_less` are one of these; `less` and `greater` with a margin test Δ against it instead of zero.
    """
    contrast = contrast_of(claim, study.manifest)
    all_scores = (scored_by_two if len(claim.metrics) > 1 else scored)(study, *claim.metrics)
    row = SimpleNamespace(**estimate_row(all_scores, contrast), kind=contrast.kind)
    curves, share = curves_of(study, row.metric), fraction_of(claim.margin)
    known = bool(curves) and not math.isnan(row.mean) and not claim.than_at
    margin = math.nan if claim.margin is None else in_units(study, contrast, claim.margin, curves)
    why, final = _no_verdict(row, claim, not known)
    collapse = collapse_of(all_scores, contrast)
    estimate, relation = row.estimate, claim.relation
    tested = estimate
    if not math.isnan(margin):  # then the distance from it is tested, which for `BOUNDED` is negative inside
        tested = estimate._replace(mean=float(directed(relation, estimate.mean, estimate.mean)[1]) - margin)
    # With collapsed seeds, no interval can show that a difference is small.
    most = 0 if relation in BOUNDED and collapse.seen else 1

    fits = fits_in_steps(contrast, all_scores, share, curves) if share is not None and known else None

    def judge(level: float) -> Judged:
        span = (math.nan, math.nan) if no_verdict(row) else interval(estimate, level)
        low, high = max(span[0], -row.reach), min(span[1], row.reach)  # of shares, as in effects
        reached = worth(all_scores, contrast.weights, curves, level) if known and not why else Worth()
        outcome = 0 if why else min(int(decide(relation, margin, low, high, row.n)), most)
        if fits and share is not None and not why:
            outcome = most if fits(level) else -int(outside(reached, share))
        return Judged(low, high, outcome, reached)

    columns = {name: getattr(row, name) for name in OF_DIFFERENCE}
    if withheld(row):  # with unequally many runs lost, the mean difference could be mistaken for an effect
        columns |= {"mean": math.nan, "sd": math.nan}
    columns |= {"margin": margin, "side": contrast.level, "against": contrast.reference}
    halved = bool(fits or estimate.exact)
    # Collapsed or too few seeds rule out "supported", the only verdict possible inside the margin.
    barring = not most or (row.n < SEEDS and not halved)
    p = least_level(lambda level: judge(level).outcome) if halved else p_value(tested)
    p = 1.0 if relation in BOUNDED and tested.mean < 0 and barring else p
    p, notes = math.nan if why else overall(row.looks, p), list(_notes(row, relation, collapse, contrast))
    if claim.than_at and row.paired and math.isfinite(columns["mean"]):
        places = [" with ".join(pairs(study.manifest, level)) for level in (claim.compared, claim.than_at)]
        notes.append(_both(all_scores.of(contrast.weights), contrast, places, decimals([estimate.error])))
    assumes = "" if estimate.exact else assumed(row.n)
    return Finding(columns, p, lambda level: judge(nominal(row.looks, level)), why, final, notes, assumes)


def _both(values: np.ndarray, contrast: Contrast, places: list[str], digits: int) -> str:
    """The two differences that a difference of differences compares, over the seeds that have all four corners."""
    means = values[~np.isnan(values).any(axis=1)].mean(axis=0) * list(contrast.weights.values())
    parts, (a, b, c, d) = dict(zip(contrast.weights, means, strict=True)), contrast.corners
    own = sum(parts[cell] for cell in a + b), -sum(parts[cell] for cell in c + d)
    return ", ".join(f"{number(each, digits, signed=True)} at {at}" for each, at in zip(own, places, strict=True))


def _no_verdict(row: SimpleNamespace, claim: Claim, no_worth: bool) -> tuple[str, bool]:
    """Why there is no verdict on a difference, and whether that is final, however many seeds follow."""
    reason = no_verdict(row)
    if reason and row.uneven:
        return f"{reason[1]}; diverged ranked worst: {ranks(row)}", True
    if reason:
        return reason[1], bool(row.different or row.clumps)
    if no_worth and fraction_of(claim.margin) is not None:
        return f"what {claim.margin} of the steps are worth is not known; step_equivalents=true measures it", True
    return "", False


def _notes(row: SimpleNamespace, relation: str, collapse: Collapse, contrast: Contrast) -> Iterator[str]:
    if contrast.corners:
        lost, (count, n) = row.diverged + row.diverged_reference, max(collapse.counts)
        if lost and not row.uneven:
            yield f"{counted(lost, 'run')} diverged, at all four corners equally often"
        if count and not lost:
            yield f"a corner collapsed in {count} of {counted(n, 'seed')}"
    elif not row.diverged:
        n, names = max(n for _, n in collapse.counts), (contrast.level, contrast.reference)
        sides = zip(collapse.sides, names, strict=True)
        yield from (f"{name} collapsed in {count} of {counted(n, 'seed')}" for count, name in sides if count)
    elif not row.uneven:
        yield f"{counted(row.diverged, 'run')} diverged on side one, the same share of side two"
    if relation in WITHIN and 1 < row.n < SEEDS:
        yield f"fewer than {SEEDS} seeds cannot show {WITHIN[relation]}"


def contrast_of(claim: Claim, manifest: Manifest) -> Contrast:
    """The contrast between the sides of a claim."""
    one, other = weighed(claim, manifest.cells)
    sides = [side_words(manifest, side) for side in claim.sides]
    if len(claim.metrics) > 1:
        same = claim.sides[0] == claim.sides[1]
        both = zip(claim.metrics, sides, strict=True)
        ways = [way(metric) if same else f"{metric_words(manifest, metric)} of {side}" for metric, side in both]
        metric = metric_words(manifest, plain_metric(claim.metrics[0]))
        sides = [f"{sides[0]}: {metric}, {ways[0]}", ways[1]] if same else ways
        other = {second_metric(cell, claim.metrics[1]): weight for cell, weight in other.items()}
    weights = one | {cell: -weight for cell, weight in other.items()}
    kind, corners = "claim", list[list[str]]()
    if claim.than_at:
        kind = "interaction"
        corners = [[cell for cell in weights if cell in side] for side in sides_of(claim, manifest.cells)]
        there = [f"at {' with '.join(pairs(manifest, level))}" for level in (claim.compared, claim.than_at)]
        sides = [f"({f' {MINUS} '.join(sides)}) {there[0]}", f"that {there[1]}"]
    label, fixed = " against ".join(sides), ", ".join(pairs(manifest, claim.fixed))
    return Contrast(kind, "", sides[0], sides[1], fixed, label, weights, corners=tuple(corners))


def way(metric: str) -> str:
    """How a metric was measured, to tell two apart: "length 512", "batch statistics", "running statistics"."""
    name, _, length = metric.partition("@")
    statistics = name.removeprefix(plain_metric(metric)).removeprefix("_") or "running"
    return f"length {length}" if length else f"{statistics} statistics" if "loss" in name else "the training length"


def divergence(study: Study, claim: Claim, rng: np.random.Generator) -> Finding:
    """`diverges_more`: the share of diverged runs of side one − that of side two, with the exact p; no interval."""
    sides = [list(side) for side in weighed(claim, study.manifest.cells)]
    found = divergence_of(study, *sides)
    n, counts = found.n, found.counts
    looks = planned_looks(study.manifest)
    shares = [count / ended if ended else math.nan for count, ended in counts]
    reason = too_few(n, found.paired) or "no run diverged on either side" * (not any(shares))
    p = math.nan if reason else min(1.0, looks * found.p)
    words = [side_words(study.manifest, side) for side in claim.sides]
    share = shares[0] - shares[1]
    spread = f"{counts[0][0]} of {counts[0][1]} runs diverged against {counts[1][0]} of {counts[1][1]}"
    columns = {"n": n, "mean": share, "sd": math.nan, "metric": "diverged", "margin": math.nan, "paired": found.paired}
    columns |= {"side": words[0], "against": words[1], "diverged": counts[0][0], "diverged_reference": counts[1][0]}

    def at(level: float) -> Judged:
        return Judged(outcome=int(math.copysign(1, share)) if p <= level else 0)

    return Finding(columns, p, at, reason, notes=[spread] * (not reason))


class Ranked(NamedTuple):
    """Spearman's correlation with published numbers, and two p-values of "its mean is zero"."""

    by_seed: np.ndarray
    mean: float
    p_seeds: float  # of Student's t over the seeds
    p_orders: float  # of a permutation test over the orders of the published numbers
    without: np.ndarray  # the mean when each level is left out


def rank_correlation(values: np.ndarray, published: np.ndarray, rng: np.random.Generator) -> Ranked:
    """Spearman's ρ of each seed's scores (seeds, levels) with the published numbers (levels,), ties by mean ranks.

    ρ_s = z_s · w with z_s, w the ranks, centred and of length 1.  Their mean is z̄ · w, which is compared with all
    orders of w for up to 8 levels, and with 99,999 random ones for more (Spearman 1904; Pitman 1937).
    """
    z, w = _standard(values), _standard(published[None])[0]
    by_seed, mean_ranks = z @ w, z.mean(0)
    mean = float(by_seed.mean())
    t = paired(by_seed)
    # Unlike losses, ranks can agree in every seed: without spread the test over orders alone decides.
    p_seeds = float(2 * t_above(abs(t.mean) / t.error, t.df)) if t.error else float(mean == 0)
    everything = range(len(w))
    others = [[i for i in everything if i != left] for left in everything]
    without = [float(np.mean(_standard(values[:, rest]) @ _standard(published[None, rest])[0])) for rest in others]
    if len(w) <= EXACT:
        orders = w[np.array(list(itertools.permutations(everything)))]
    else:
        orders = np.vstack([w, rng.permuted(np.tile(w, (DRAWN, 1)), axis=1)])
    as_far = orders @ mean_ranks * (1 if mean >= 0 else -1) >= abs(mean) - 1e-9  # in the direction of the mean
    return Ranked(by_seed, mean, p_seeds, min(1.0, 2 * float(as_far.mean())), np.array(without))


def _standard(values: np.ndarray) -> np.ndarray:
    """Ranks along rows, centred and of length 1; zeros where all are tied."""
    from scipy import stats

    ranks = stats.rankdata(values, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    length = np.sqrt((centred**2).sum(-1, keepdims=True))
    return np.asarray(np.divide(centred, length, out=np.zeros_like(centred), where=length > 0))


def ranking(study: Study, claim: Claim, rng: np.random.Generator) -> Finding:
    """`rank_correlates`: Spearman's ρ of the levels' scores with the published numbers, within each seed.

    Supported (contradicted): the t interval of the seeds' ρ lies above (below) zero, so that seeds agree, *and* the
    permutation p, twice the exact tail over all orders of the levels, is below the level.  With four levels no order
    reaches that (2/24 > 0.05), with five only nearly perfect ones.  p is the larger of the two.  ρ is of the numbers as
    given: published scores for which more is better need a minus sign when compared with a loss.
    """
    sides = weighed(claim, study.manifest.cells)
    all_scores = scored(study, *claim.metrics)
    values = _level_scores(all_scores.values, sides)
    n = len(values)
    looks = planned_looks(study.manifest)
    diverged = [sum(all_scores.ends.get((cell, "diverged"), 0) for cell in side) / len(side) for side in sides]
    levels = [side_words(study.manifest, side) for side in claim.sides]
    published = np.array(claim.published, float)
    metrics = dict.fromkeys(all_scores.metrics[cell] for side in sides for cell in side)
    uneven = len(set(diverged)) > 1
    reason = "" if n >= SEEDS else f"n = {n}, fewer than {SEEDS} seeds show no ranking"
    if uneven:
        reason, ranked = "values diverged unequally often", _level_scores(all_scores.ranked, sides).to_numpy()
        if len(ranked):
            reason += f"; diverged ranked worst: {number(rank_correlation(ranked, published, rng).mean, 2)}"
    found = rank_correlation(values.to_numpy(), published, rng) if n else None
    estimate = paired(found.by_seed) if found else paired(np.array([]))
    p = math.nan if reason or not found else min(1.0, looks * max(found.p_seeds, found.p_orders))

    def at(level: float) -> Judged:
        low, high = interval(estimate, level / looks) if estimate.error else (estimate.mean, estimate.mean)
        low, high = (math.nan, math.nan) if reason or n < 2 else (max(low, -1.0), min(high, 1.0))
        return Judged(low, high, (1 if estimate.mean > 0 else -1) if p <= level else 0)

    shown = (math.nan, math.nan) if uneven else (estimate.mean, estimate.sd)
    columns = {"n": n, "mean": shown[0], "sd": shown[1], "metric": ", ".join(metrics), "paired": True}
    columns |= {"margin": math.nan, "side": ", ".join(levels), "against": "published numbers"}
    notes = _rank_notes(found, levels) if found and not reason else []
    return Finding(columns, p, at, reason, uneven, notes, RANKS_ASSUMED)


def _rank_notes(found: Ranked, levels: list[str]) -> list[str]:
    """Notes on how much a correlation depends on one level, since a few coarse groups can cause it, and on chance."""
    i = int(np.argmin(found.without * (1 if found.mean >= 0 else -1)))
    chance = [f"as good an order by chance: {p_words(found.p_orders)}"] * (found.p_orders > found.p_seeds)
    return [f"Spearman without {levels[i]} {number(float(found.without[i]), 2)}", *chance]


def _level_scores(values: pandas.DataFrame, sides: list[dict[str, float]]) -> pandas.DataFrame:
    """A row per seed that has every run, a column per level: its weighted mean."""
    complete = values[[cell for side in sides for cell in side]].dropna()
    levels = {i: complete[list(side)] @ np.array(list(side.values())) for i, side in enumerate(sides)}
    return pandas.DataFrame(levels, index=complete.index)


def forecast(study: Study, claim: Claim, rng: np.random.Generator) -> Finding:
    """`multiplier`: M of side one against the reference at a rung lies above or below a bound; p is that of log M − log
    bound."""
    own = next(iter(weighed(claim, study.manifest.cells)[0]))
    (rungs, rates), (bound, way) = arm_of(study, own, *claim.metrics), claim.bound
    reason = unusable(rungs)
    at = next(i for i, rung in enumerate(rungs) if rung.cell.id == own)
    found = combined(rungs, np.eye(len(rungs))[at]) if not reason else paired(np.array([]))
    p = math.nan if reason else p_value(found._replace(mean=found.mean - math.log(bound)))

    def judge(level: float) -> Judged:
        low, high = map(math.exp, interval(found, level))
        return Judged(low, high, 0 if reason else way * ((low > bound) - (high < bound)))

    words = [side_words(study.manifest, side) for side in claim.sides]
    columns: dict[str, Any] = {"n": len(rungs[at].pairs), "mean": math.exp(found.mean), "sd": math.nan, "paired": True}
    columns |= {"margin": math.nan, "metric": rungs[at].row.metric, "side": words[0], "against": words[1]}
    notes = ["beyond the ladder, extrapolated"] * (not reason and change(rungs, at).extrapolated)
    notes += [rates] * bool(rates)
    return Finding(columns, p, judge, reason, bool(reason), notes, assumed(found.n) if not reason else "")


FINDERS: dict[str, Callable[[Study, Claim, np.random.Generator], Finding]] = dict.fromkeys(DIFFERENCES, difference)
FINDERS |= {"diverges_more": divergence, "rank_correlates": ranking, "multiplier": forecast}


def claims(study: Study) -> pandas.DataFrame:
    """A row per claim of a study: side one minus side two, in the metric's unit, and its verdict.

    Registered claims are the family: Holm's step-down over all m that were ever registered decides them, p_holm ≤ 0.05.
    The intervals are simultaneous, of level 1 − 0.05/m, and may contain zero where Holm's step-down decides.  Claims
    written or edited after results have the verdict "estimate only", a plain 95 % interval and no p_holm.  `less` and
    `greater` compare the numbers, whether or not less is better, by more than their margin if any.  With `seeds=auto`
    all levels allow for the looks; `waits` marks claims that more seeds may decide.  Verdict, estimate, interval and p
    of a claim are those in `Study.verdicts`, where it was judged when the tables were written.  `says` is the finding,
    `sentence` adds name, verdict and grounds.  Tuning and exchange runs are not used.
    """
    entries = {} if no_evidence(study.manifest) else study.manifest.claims or {}
    found = {
        # Seeded by the claim's name, so that other claims do not change its random numbers.
        name: FINDERS[entry.claim.relation](study, entry.claim, np.random.default_rng([*name.encode()]))
        for name, entry in entries.items()
    }
    family = np.array([bool(entry.registered) for entry in entries.values()], dtype=bool)
    for name in found.keys() & study.verdicts.keys():
        found[name] = replace(found[name], p=number_of(study.verdicts[name].p))
    p = np.array([finding.p for finding in found.values()], dtype=float)
    m = registered(study.manifest)
    levels = np.where(family, ALPHA / max(1, m), ALPHA)
    p_holm = np.full(len(p), math.nan)
    p_holm[family] = holm(p[family], m)
    rows = []
    for (name, finding), level, holms in zip(found.items(), levels, p_holm, strict=True):
        row = {"name": name} | _row(entries[name], finding, level, holms)
        if kept := study.verdicts.get(name):
            row |= _kept_columns(kept, row)
        rows.append(row)
    table = pandas.DataFrame(rows, columns=COLUMNS).assign(p_holm=p_holm, alpha=levels)
    table["unadjusted"] = bool(unadjusted(study.manifest))
    table["says"] = [claim_says(study.manifest, entries[row.name].claim, row) for row in named_rows(table)]
    table["sentence"] = [claim_sentence(study.manifest, entries[row.name], row) for row in named_rows(table)]
    return table


def _row(entry: ClaimEntry, finding: Finding, level: float, p_holm: float) -> dict[str, Any]:
    """The columns of one claim: its interval is of this level, and a registered one is decided by Holm's step-down.  A
    p of at most 0.05 says that the claim is decided; in which direction, its interval of level 1 − 0.05 says."""
    found = finding.at(level)
    if p_holm <= ALPHA and not found.outcome:
        decided = finding.at(ALPHA)
        found = decided._replace(low=found.low, high=found.high, worth=found.worth)
    row = finding.columns | found.worth._asdict() | {"p": finding.p, "low": found.low, "high": found.high}
    row |= {"registered": entry.registered, "family": entry.registered, "edited": bool(entry.earlier)}
    row |= {"relation": entry.claim.relation, "assumes": finding.assumes if found.outcome and entry.registered else ""}
    row["verdict"] = VERDICTS[found.outcome] if entry.registered else ESTIMATE_ONLY
    row["note"] = "; ".join(filter(None, [finding.reason, *finding.notes]))
    return row | {"waits": entry.registered and not found.outcome and not finding.final}


def _kept_columns(kept: ClaimVerdict, row: dict[str, Any]) -> dict[str, Any]:
    """The columns of a claim that was judged when the tables were written; `row` is how it would be judged now."""
    columns = {
        "mean": number_of(kept.estimate),
        "low": number_of(kept.interval[0]),
        "high": number_of(kept.interval[1]),
    }
    now = row["verdict"]
    if now == kept.verdict:
        return columns
    both = f"judged by {kept.method}; Holm's step-down says {now}"
    note = "; ".join(filter(None, [both, row["note"]]))
    return columns | {"verdict": kept.verdict, "note": note}


def number_of(value: float | None) -> float:
    """A number from JSON, where None stands for NaN."""
    return math.nan if value is None else float(value)
