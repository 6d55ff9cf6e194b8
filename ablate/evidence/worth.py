"""What a difference is worth in training steps of its reference, which is also trained for other numbers of steps.

With D a seed's difference (level minus reference), the distance of the seed at s times the steps is

    v(s) = reference(s) − reference(1) − D,

linear in log s between the numbers of steps that were trained.  The difference is worth the s at which the mean of v
over seeds is zero.  Its 1 − α confidence set is every s at which a t test does not tell that mean from zero; between
two neighbouring numbers of steps the ends of the set solve a quadratic (Fieller 1954).  A step of other batches, or at
another setting, brings something else: only paired differences at one setting have a worth.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

from ablate import formatting
from ablate.evidence.collapse import collapsed_runs
from ablate.evidence.contrasts import Weights, strata
from ablate.evidence.estimates import groups_of, in_each_seed, t_limit
from ablate.evidence.proportions import is_solved
from ablate.evidence.scores import StudyScores, study_scores
from ablate.evidence.verdicts import MIN_PAIRS, MIN_SEEDS
from ablate.formatting import SPEED, number
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
    """How the scores of one stratum's reference change with its steps."""

    log_steps: np.ndarray  # log(steps / the study's own steps), ascending
    changes: pandas.DataFrame  # from the score at the study's own steps: a row per seed, a column per number of steps
    left_out: str  # the configurations and seeds that collapsed or diverged


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
        changes = complete.sub(complete[reference.id], axis=0)
        curves[stratum] = Curve(np.log(ratios), changes, lost_words(scores, lost))
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
    """What a contrast is worth at level `alpha`, over at least three seeds that have all runs."""
    names = {name for name, cells in strata(scores.study.manifest) for cell in cells if cell.id in weights}
    _, paired = groups_of(scores, weights)
    if len(names) > 1 or not paired:
        return Worth(worth_note="only paired differences at one setting have a worth in steps")
    curve = curves.get(names.pop())
    if curve is None:
        return Worth(worth_note="its reference was trained for no other numbers of steps")
    collapsed = collapsed_runs(scores, [*weights])
    values = scores.values[[*weights]].mask(collapsed).dropna()
    differences = pandas.Series(in_each_seed(values, weights), values.index)
    distances = curve.changes.sub(differences, axis=0).dropna().to_numpy(float)
    left_out = dict.fromkeys([curve.left_out, lost_words(scores, collapsed)])
    notes = [f"left out as collapsed or diverged: {words}" for words in left_out if words]
    n = len(distances)
    if n < MIN_PAIRS:
        return Worth(worth_note="; ".join([f"fewer than {MIN_PAIRS} seeds have all runs", *notes]))
    if n < len(scores.values[[*weights]].dropna()) and not notes:
        notes = [f"over {formatting.counted(n, 'seed')} that have all runs"]
    gain = -1 if scores.lower_is_better[next(iter(weights))] else 1
    means = distances.mean(axis=0)
    if gain * (means[-1] - means[0]) <= 0:
        return Worth(worth_note="; ".join(["more steps do not improve its reference", *notes]))
    if not np.ptp(distances, axis=0).any():
        return Worth(worth_note="no spread between seeds")
    point, low, high = factor_interval(distances, curve.log_steps, gain, alpha)
    return Worth(math.expm1(point), math.expm1(low), math.expm1(high), "; ".join(notes), n)


def factor_interval(
    distances: np.ndarray, log_steps: np.ndarray, gain: int, alpha: float
) -> tuple[float, float, float]:
    """The logarithm of the factor at which the mean distance is zero, and the ends of its 1 − alpha confidence set.

    `distances` has a row per seed and a column per number of steps; `gain` is 1 if higher scores are better, −1 if
    lower ones are.  An end is infinite where a t test at the last number of steps does not show that the reference has
    passed the score by then, on the premise that more steps make it no worse.
    """
    n = len(distances)
    limit = t_limit(alpha, n - 1)
    means = distances.mean(axis=0)
    covariances = np.cov(distances, rowvar=False) / n
    errors = np.sqrt(np.diag(covariances))
    crossings = []
    inside = []
    for i in range(len(log_steps) - 1):
        width = log_steps[i + 1] - log_steps[i]
        change = means[i + 1] - means[i]
        if means[i] * means[i + 1] <= 0 and change:
            crossings.append(log_steps[i] - width * means[i] / change)
        covariance = covariances[i, i + 1] - covariances[i, i]
        variance = covariances[i, i] + covariances[i + 1, i + 1] - 2 * covariances[i, i + 1]
        quadratic = [
            change**2 - limit**2 * variance,
            2 * (means[i] * change - limit**2 * covariance),
            means[i] ** 2 - limit**2 * covariances[i, i],
        ]
        inside += [log_steps[i] + width * share for share in solutions(quadratic)]
    inside += crossings
    is_unbounded = gain * means[0] > -limit * errors[0]
    low = -math.inf if is_unbounded else min(inside, default=log_steps[-1])
    is_unbounded = gain * means[-1] < limit * errors[-1]
    high = math.inf if is_unbounded else max(inside, default=log_steps[0])
    if crossings:
        return float(min(crossings, key=abs)), low, high
    return (math.inf if gain * means[0] < 0 else -math.inf), low, high


def solutions(quadratic: list[float]) -> list[float]:
    """The ends of the parts of [0, 1] on which a·w² + b·w + c ≤ 0."""
    ends = [w for w in (0.0, 1.0) if np.polyval(quadratic, w) <= 0]
    roots = np.roots(quadratic)
    return ends + [float(root.real) for root in roots if abs(root.imag) < 1e-12 and 0 <= root.real <= 1]


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
