"""What a difference is worth in training steps of its reference, which is also trained for other numbers of steps.

For a factor s of the steps, each seed's scores of the reference are interpolated in log s between the numbers of steps
that were trained.  With D the difference within the seed (level minus reference), the distance of the seed is

    v(s) = reference(s) − reference(1) − D,

and the difference is worth the s at which the mean of v over seeds is zero.  The 1 − α confidence set is every s at
which a t test does not tell the mean of v from zero: between two neighbouring numbers of steps v is linear in log s, so
this is a quadratic (Fieller 1954).  Independent groups of seeds add up, with Welch's degrees of freedom.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

from ablate import formatting
from ablate.evidence.collapse import collapsed_runs
from ablate.evidence.contrasts import Weights, strata
from ablate.evidence.estimates import groups_of, t_limit
from ablate.evidence.proportions import is_solved
from ablate.evidence.scores import StudyScores, study_scores
from ablate.evidence.verdicts import MIN_PAIRS, MIN_SEEDS
from ablate.formatting import SPEED, number
from ablate.runs.records import Manifest
from ablate.runs.study import Study

TOO_FEW_STEPS = 0.5  # share of runs that learned nothing
WORTH = ["worth", "worth_low", "worth_high", "worth_note"]


@dataclass(frozen=True)
class Worth:
    """A difference in steps of the reference, as a fraction: +0.09 is 9 % more.  −1 and inf stand for an end beyond the
    numbers of steps that were trained, NaN for a worth that is not known; the note says why."""

    worth: float = math.nan
    worth_low: float = math.nan
    worth_high: float = math.nan
    worth_note: str = ""
    seeds: int = 0  # that have all runs


@dataclass(frozen=True)
class Curve:
    """The scores of one stratum's reference over the logarithm of its steps."""

    log_steps: np.ndarray  # log(steps / the study's own steps), ascending
    scores: pandas.DataFrame  # a row per seed that has every run, a column per number of steps
    batches: str  # what identifies the reference's batches
    left_out: str = ""  # the configurations and seeds that collapsed or diverged

    def at(self, log_steps: np.ndarray) -> pandas.DataFrame:
        """Each seed's scores, interpolated."""
        rows = [np.interp(log_steps, self.log_steps, row) for row in self.scores.to_numpy(float)]
        return pandas.DataFrame(np.reshape(rows, (-1, len(log_steps))), self.scores.index)


Curves = dict[str, Curve]  # by stratum


def curves_of(study: Study, metric: str) -> Curves:
    """The curves of a study's references in a metric; empty if they were trained for no other numbers of steps, for
    seconds per step, and for shares of runs solved, which no seed has by itself."""
    others = study.beside.get("exchange")
    if others is None or metric in SPEED or is_solved(metric) or metric not in others.runs:
        return {}
    scores = study_scores(others, metric)
    curves = {}
    for stratum, cells in strata(others.manifest):
        reference = next(cell for cell in cells if cell.reference)
        steps = {cell.id: cell.planned_config.train.steps for cell in cells}
        ids = sorted(steps, key=steps.__getitem__)
        ratios = [steps[cell] / steps[reference.id] for cell in ids]
        # Each is compared with its own best run: fewer steps alone are not a collapse.
        lost = pandas.concat([collapsed_runs(scores, [cell]) for cell in ids], axis=1)
        # Where half of the runs or more learn nothing, that is what so few steps bring, and no collapse.
        lost.loc[:, lost.mean() >= TOO_FEW_STEPS] = False
        complete = scores.values[ids].mask(lost).dropna()
        curves[stratum] = Curve(np.log(ratios), complete, reference.batches, lost_words(scores, lost))
    return curves


def lost_words(scores: StudyScores, lost: pandas.DataFrame) -> str:
    """The configurations with collapsed or diverged runs, and the seeds of these: "ln, 640 steps: seed 2"."""
    parts = []
    for cell in lost:
        seeds = [str(seed) for seed in lost.index[lost[cell]]]
        if seeds:
            noun = "seed" if len(seeds) == 1 else "seeds"
            parts.append(f"{scores.cells[cell].label}: {noun} {formatting.listed(seeds)}")
    return "; ".join(parts)


def worth(scores: StudyScores, weights: Weights, curves: Curves, alpha: float) -> Worth:
    """What a contrast is worth at level `alpha`, over at least three seeds.  Over several strata their references'
    curves are averaged with the contrast's `shares`."""
    inside = shares(scores.study.manifest, weights)
    if not inside.keys() <= curves.keys():
        return Worth(worth_note="its reference was trained for no other numbers of steps")
    weighed = [(curves[stratum], share) for stratum, share in inside.items()]
    log_steps = common_steps([curve.log_steps for curve, _ in weighed])
    collapsed = collapsed_runs(scores, [*weights])
    distances = distances_of(scores.without_runs(collapsed), weights, weighed, log_steps)
    left_out = dict.fromkeys([*(curve.left_out for curve, _ in weighed), lost_words(scores, collapsed)])
    notes = [f"left out as collapsed or diverged: {words}" for words in left_out if words]
    n = min(len(group) for group in distances)
    if n < MIN_PAIRS:
        return Worth(worth_note="; ".join([f"fewer than {MIN_PAIRS} seeds have all runs", *notes]))
    if n < int(scores.values[[*weights]].notna().sum().min()) and not notes:
        notes = [f"over {formatting.counted(n, 'seed')} that have all runs"]
    gain = -1 if scores.lower_is_better[next(iter(weights))] else 1
    means = np.sum([group.mean(axis=0) for group in distances], axis=0)
    if gain * (means[-1] - means[0]) <= 0:
        return Worth(worth_note="; ".join(["more steps do not improve its reference", *notes]))
    if not any(np.ptp(group, axis=0).any() for group in distances):
        return Worth(worth_note="no spread between seeds")
    point, low, high = factor_interval(distances, log_steps, gain, alpha)
    if high == math.inf:
        notes.append(f"not bounded within {math.exp(log_steps[-1]):.3g} times the steps")
    if low == -math.inf:
        notes.append(f"not bounded down to {math.exp(log_steps[0]):.3g} times the steps")
    return Worth(math.expm1(point), math.expm1(low), math.expm1(high), "; ".join(notes), n)


def factor_interval(
    distances: Sequence[np.ndarray], log_steps: np.ndarray, gain: int, alpha: float
) -> tuple[float, float, float]:
    """The logarithm of the factor at which the mean distance is zero, and the ends of its 1 − alpha confidence set.

    `distances` holds an array (seeds, numbers of steps) per independent group; `gain` is 1 if higher scores are better,
    −1 if lower ones are.  An end is infinite where a t test at the last number of steps does not show that the
    reference has passed the score by then, on the premise that more steps make it no worse.
    """
    means = np.sum([group.mean(axis=0) for group in distances], axis=0)
    covariances = [np.cov(group, rowvar=False) / len(group) for group in distances]
    limits = t_limits([np.diag(covariance) for covariance in covariances], [len(group) for group in distances], alpha)
    total = np.sum(covariances, axis=0)
    crossings = []
    inside = []
    for i in range(len(log_steps) - 1):
        width = log_steps[i + 1] - log_steps[i]
        change = means[i + 1] - means[i]
        if means[i] * means[i + 1] <= 0 and change:
            crossings.append(log_steps[i] - width * means[i] / change)
        covariance = total[i, i + 1] - total[i, i]
        variance = total[i, i] + total[i + 1, i + 1] - 2 * total[i, i + 1]
        limit = max(limits[i], limits[i + 1]) ** 2
        quadratic = [
            change**2 - limit * variance,
            2 * (means[i] * change - limit * covariance),
            means[i] ** 2 - limit * total[i, i],
        ]
        inside += [log_steps[i] + width * share for share in solutions(quadratic)]
    inside += crossings
    unbounded = gain * means[0] > -limits[0] * math.sqrt(total[0, 0])
    low = -math.inf if unbounded else min(inside, default=log_steps[-1])
    unbounded = gain * means[-1] < limits[-1] * math.sqrt(total[-1, -1])
    high = math.inf if unbounded else max(inside, default=log_steps[0])
    if crossings:
        return float(min(crossings, key=abs)), low, high
    return (math.inf if gain * means[0] < 0 else -math.inf), low, high


def solutions(quadratic: list[float]) -> list[float]:
    """The ends of the parts of [0, 1] on which a·w² + b·w + c ≤ 0."""
    ends = [w for w in (0.0, 1.0) if np.polyval(quadratic, w) <= 0]
    roots = np.roots(quadratic)
    return ends + [float(root.real) for root in roots if abs(root.imag) < 1e-12 and 0 <= root.real <= 1]


def t_limits(variances: Sequence[np.ndarray], seeds: Sequence[int], alpha: float) -> np.ndarray:
    """The limit of |t| at each number of steps, for a sum of independent means with these squared errors (Welch 1947);
    for one group that of n − 1 degrees of freedom."""
    total = np.sum(variances, axis=0)
    below = sum(variance**2 / (n - 1) for variance, n in zip(variances, seeds, strict=True))
    fewest = float(min(seeds) - 1)
    df = np.divide(total**2, below, out=np.full(len(total), fewest), where=below > 0)
    return np.asarray(t_limit(alpha, df))


def common_steps(every: Sequence[np.ndarray]) -> np.ndarray:
    """All logarithms of steps, in the range that every curve has."""
    low = max(log_steps[0] for log_steps in every)
    high = min(log_steps[-1] for log_steps in every)
    merged = np.unique(np.concatenate(every))
    return merged[(merged >= low) & (merged <= high)]


def distances_of(
    scores: StudyScores, weights: Weights, weighed: list[tuple[Curve, float]], log_steps: np.ndarray
) -> list[np.ndarray]:
    """The distances of a contrast in independent groups, each (seeds, numbers of steps).

    Cells with the same batches are paired by seed with each other and with their reference's curve.  If the weights sum
    to zero within the cells of each batch, everything is paired.
    """
    groups, pairs = groups_of(scores, weights)
    terms: dict[str, list[pandas.DataFrame]] = {}
    for group in groups:
        batches = "" if pairs else scores.cells[next(iter(group))].batches
        complete = scores.values[[*group]].dropna()
        differences = complete.to_numpy(float) @ np.array([*group.values()])
        repeated = np.repeat(differences[:, None], len(log_steps), axis=1)
        terms.setdefault(batches, []).append(pandas.DataFrame(-repeated, complete.index))
    for curve, share in weighed:
        batches = "" if pairs else curve.batches
        change = curve.at(log_steps).sub(curve.at(np.zeros(1))[0], axis=0)
        terms.setdefault(batches, []).append(share * change)
    distances = []
    for group_terms in terms.values():
        total = group_terms[0]
        for term in group_terms[1:]:
            total = (total + term).dropna()
        distances.append(total.to_numpy(float))
    return distances


def shares(manifest: Manifest, weights: Weights) -> dict[str, float]:
    """The share of a contrast's absolute weights in each stratum; shares sum to one."""
    sizes = {name: sum(abs(weights.get(cell.id, 0)) for cell in cells) for name, cells in strata(manifest)}
    total = sum(sizes.values())
    return {name: size / total for name, size in sizes.items() if size}


def fits_in_steps(value: Worth, share: float) -> bool:
    """Whether the interval of a worth, over at least five seeds, lies within a share of the steps."""
    return value.seeds >= MIN_SEEDS and within(value.worth_low, value.worth_high, share)


def within(low: float, high: float, share: float) -> bool:
    """Whether worths from `low` to `high` are within a share of the steps, 0.02 for 2 %, as far in both directions."""
    return 1 / (1 + share) - 1 < low and high < share


def outside(found: Worth, share: float) -> bool:
    """Whether the interval lies entirely beyond a share of the steps, on either side."""
    return found.worth_low > share or found.worth_high < 1 / (1 + share) - 1


def worth_words(row: Any, steps: str = "training steps") -> str:
    """A worth in words: "worth +9 % [+6, +13] training steps"; "" where it is not known."""
    share = float(row.worth)
    low = float(row.worth_low)
    high = float(row.worth_high)
    if math.isnan(share):
        return ""
    unit = f" {steps}" if steps else ""
    places = worth_places(low, high)
    if share == math.inf and low > 0:
        return f"worth at least {number(100 * low, places)} % more{unit}"
    if share == -1 and high < 0:
        return f"worth at least {number(-100 * high, places)} % fewer{unit}"
    if not -1 < share < math.inf or (low == -1 and high == math.inf):
        return "not bounded"
    least = "unbounded" if low == -1 else number(100 * low, places, signed=True)
    most = "unbounded" if high == math.inf else number(100 * high, places, signed=True)
    return f"worth {number(100 * share, places, signed=True)} % [{least}, {most}]{unit}"


def worth_text(row: Any, steps: str = "training steps") -> str:
    """What an effect is worth in steps of its reference, with the notes that limit it."""
    return ", ".join(filter(None, (worth_words(row, steps), getattr(row, "worth_note", ""))))


def worth_places(low: float, high: float) -> int:
    """Decimal places of a worth in per cent: one if its interval is narrow, else none."""
    return int((high - low) / 2 < 0.02)
