"""Effects expressed in training steps of the reference, from its runs at 0.8, 1 and 1.25 times its steps.

For each seed, b is the slope of the reference's metric in log(steps), and D the effect: g = D / b is the logarithm of
the factor by which the reference's steps would have to grow for the same gain, and exp(g) − 1 what the effect is worth.
D and b are means over seeds, so the ratio gets Fieller's interval (1954): all g for which the mean of D − g·b does not
differ from zero at the row's significance level.  It contains g = 0 exactly where the row's interval contains zero.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas
from scipy import stats

from ablate import formatting
from ablate.config.key_checks import fraction_of
from ablate.evidence.collapse import without_collapsed
from ablate.evidence.contrasts import Contrast, Weights, strata
from ablate.evidence.estimates import independent_groups as groups
from ablate.evidence.estimates import interval, p_value, paired
from ablate.evidence.families import ALPHA
from ablate.evidence.proportions import is_solved
from ablate.evidence.scores import StudyScores as Scored
from ablate.evidence.scores import endpoints
from ablate.evidence.scores import study_scores as scored
from ablate.evidence.verdicts import MIN_SEEDS as SEEDS
from ablate.formatting import MINUS, SPEED, plus
from ablate.results.records import Manifest
from ablate.results.study import Study

LEAST, MOST = 0.8, 1.25  # times the steps that were measured
WORTH = ["worth", "worth_low", "worth_high", "worth_note"]
BENT = 0.05  # significance level of the test that the slopes of the curve's two halves differ
BEYOND = "beyond what was measured"  # "more than 25 %" already implies it


def within(low: float, high: float, margin: float) -> bool:
    """Whether worths from `low` to `high` are within a margin, 0.02 for 2 % of the steps, in both directions."""
    return bool(1 / (1 + margin) - 1 < low and high < margin)


Parts = list[np.ndarray]
Curves = dict[str, "Slope"]  # by stratum


class Worth(NamedTuple):
    """A difference in steps of the reference, as a fraction: +0.09 is 9 % more; [−1, inf] where it is unbounded.  NaN
    where it is unknown.  The note says why, or what limits the number."""

    worth: float = math.nan
    worth_low: float = math.nan
    worth_high: float = math.nan
    worth_note: str = ""


class Slope(NamedTuple):
    """Slopes of the metric of one stratum's reference in log(steps), one per seed."""

    all: pandas.Series
    lower: pandas.Series  # of the lower half of the steps
    upper: pandas.Series
    batches: str  # what identifies the reference's batches
    collapsed: int = 0  # the number of seeds left out for a collapsed run


def slopes(exchange: Study, metric: str | None = None) -> Curves:
    """Per stratum, the least-squares slope of the metric (default: the task's) on log(steps), over complete seeds.  A
    seed with a collapsed run is left out: that loss does not come from the number of steps."""
    values, found = scored(exchange, metric), dict[str, Slope]()
    if all(map(is_solved, values.metrics.values())):  # the share solved has no slope per seed
        return found
    for stratum, members in strata(exchange.manifest):
        cells = sorted(members, key=lambda cell: cell.planned_config.train.steps)
        x, names = np.log([cell.planned_config.train.steps for cell in cells]), [cell.id for cell in cells]
        complete = len(values.values[names].dropna())
        for name in names:  # compared with its own best run: fewer steps alone are not a collapse
            values, _ = without_collapsed(values, [name])
        runs = values.values[names].dropna()
        weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
        steps = np.diff(runs.to_numpy(), axis=1) / np.diff(x)
        lower, upper = (pandas.Series(steps[:, i], runs.index) for i in (0, -1))
        reference = next(cell for cell in cells if cell.reference)
        found[stratum] = Slope(runs @ weights, lower, upper, reference.batches, complete - len(runs))
    return found


def worth(found: Scored, weights: Weights, curves: Curves, alpha: float, least: int = 2) -> Worth:
    """A contrast in steps of its stratum's reference; over several strata, by the mean of their slopes.  `least` is the
    minimum number of seeds."""
    inside = shares(found.study.manifest, weights)
    if not inside.keys() <= curves.keys():
        return Worth(worth_note="no exchange runs of its reference")
    parts, lost = _parts(found, weights, [(curves[name], share) for name, share in inside.items()])
    if min(map(len, parts)) < least:
        return Worth(worth_note=f"fewer than {least} seeds have all exchange runs")
    logs, gain = fieller(parts, alpha), -1 if found.lower_is_better[next(iter(weights))] else 1
    slope = sum(float(part[:, 1].mean()) for part in parts)
    notes = [f"over {formatting.counted(min(map(len, parts)), 'seed')} that have exchange runs"] * lost
    if logs is None:
        return Worth(worth_note="no spread between seeds")
    bounded = math.isfinite(logs[1])
    if bounded and slope * gain < 0:
        return Worth(worth_note="more steps make its reference worse, so nothing can be told in steps")
    if not bounded:
        notes.append("these seeds do not show what more steps do")
    ratio, low, high = (math.expm1(log) if log < 700 else math.inf for log in logs)
    if bounded and (min(ratio, low) < LEAST - 1 or max(ratio, high) > MOST - 1):
        notes.append(f"{BEYOND}, {LEAST:g} to {MOST:g} times the steps")
    notes += ["the reference's curve bends"] * any(bend_note(curves[name]) for name in inside)
    return Worth(ratio, low, high, "; ".join(notes))


def fieller(parts: Parts, alpha: float) -> tuple[float, float, float] | None:
    """mean(D) / mean(b) with the ends of its interval: all g with |mean(D − g·b)| <= t·error, where D and b are sums
    over independent groups, each an array (seeds, 2).

    A group's columns are its share of D and of b, paired by seed.  With means m, their covariance V and t the quantile
    of 1 − alpha/2: (m_b² − t²V_bb)·g² − 2(m_D·m_b − t²V_Db)·g + m_D² − t²V_DD <= 0 (Fieller 1954).  This is an interval
    if the factor of g² is positive, that is, if b differs from zero at level alpha; else its ends are −∞ and ∞.  One
    group has n − 1 degrees of freedom; several have the smaller of Welch's at g = 0 and at the ratio.  None without any
    spread.
    """
    means = np.sum([part.mean(0) for part in parts], axis=0)
    covariances = [np.cov(part.T) / len(part) for part in parts]
    total = np.sum(covariances, axis=0)
    ratio = float(means[0] / means[1]) if means[1] else math.inf
    df = list[float]()
    for g in (0.0, ratio) if math.isfinite(ratio) else (0.0,):
        direction = np.array([1.0, -g])
        variances = np.array([direction @ covariance @ direction for covariance in covariances])
        below = float(np.sum(variances**2 / [len(part) - 1 for part in parts]))
        df.append(float(np.sum(variances)) ** 2 / below if below > 0 else math.nan)
    if not min(df) > 0:
        return None
    limit = float(stats.t.isf(alpha / 2, min(df))) ** 2
    (d, b), ((dd, db), (_, bb)) = means, total
    a, half, c = b**2 - limit * bb, d * b - limit * db, d**2 - limit * dd
    if a <= 0:
        return ratio, -math.inf, math.inf
    root = math.sqrt(max(0.0, half**2 - a * c))
    return ratio, float(half - root) / a, float(half + root) / a


def shares(manifest: Manifest, weights: Weights) -> dict[str, float]:
    """The share of a contrast's absolute weights in each stratum; shares sum to one."""
    found = {name: sum(abs(weights.get(cell.id, 0)) for cell in cells) for name, cells in strata(manifest)}
    return {name: share / sum(found.values()) for name, share in found.items() if share}


def _parts(found: Scored, weights: Weights, curves: list[tuple[Slope, float]]) -> tuple[Parts, bool]:
    """D and b of a contrast in independent groups, and whether seeds are dropped because they have no b.

    Cells with the same batches are paired by seed with each other and with their reference's slope.  If the weights sum
    to zero within the cells of each batch, the whole contrast is one group.
    """
    independent, together = groups(found.study.manifest, weights)
    by_batches = {found.cells[next(iter(group))].batches: group for group in independent}
    if together:
        by_batches = {curves[0][0].batches: weights}
        curves = [(curve._replace(batches=curves[0][0].batches), share) for curve, share in curves]
    parts, lost = list[np.ndarray](), False
    for name in {**by_batches, **dict.fromkeys(curve.batches for curve, _ in curves)}:
        own = by_batches.get(name, {})
        slopes_here = [curve.all * share for curve, share in curves if curve.batches == name]
        sums = found.values[list(own)].dropna() @ pandas.Series(own, dtype=float)
        columns = ([sums] if own else []) + slopes_here
        complete = pandas.concat(columns, axis=1, join="inner").to_numpy(float)
        parts.append(np.stack([complete[:, : bool(own)].sum(1), complete[:, bool(own) :].sum(1)], axis=1))
        lost |= bool(own) and len(complete) < len(sums)
    return parts, lost


def bend_note(curve: Slope) -> str:
    """A note if the slopes of the two halves of a reference's curve differ significantly; else ""."""
    if not p_value(paired((curve.upper - curve.lower).to_numpy())) < BENT:
        return ""
    gains = [float(half.mean()) * math.log(MOST) for half in (curve.lower, curve.upper)]
    places = formatting.decimals([abs(gain) / 10 for gain in gains])
    before, after = (formatting.number(gain, places, signed=True) for gain in gains)
    return f"its curve bends, {before} from {LEAST:g} to 1 times the steps and {after} from 1 to {MOST:g}"


def exchange_lines(study: Study) -> Iterator[str]:
    """The effect of 25 % more steps on each reference, with a 95 % interval over seeds; empty without exchange runs."""
    exchange = study.beside.get("exchange")
    if exchange is None:
        return
    metrics = endpoints(study.manifest)
    references = {name: next(cell for cell in cells if cell.reference) for name, cells in strata(study.manifest)}
    for stratum, curve in slopes(exchange).items():
        change, reference = paired(curve.all.to_numpy() * math.log(MOST)), references[stratum]
        low, high = interval(change, ALPHA)
        text = formatting.span(change.mean, low, high, formatting.decimals([(high - low) / 2]))
        left = f"{formatting.counted(curve.collapsed, 'seed')} with a collapsed run left out" * bool(curve.collapsed)
        notes = filter(None, [f"{text} {metrics[reference.id]} (n = {change.n})", left, bend_note(curve)])
        yield f"exchange rate: 25 % more steps of {reference.label}: {'; '.join(notes)}"


def curves_of(study: Study, metric: str) -> Curves:
    """The slopes of a study's exchange runs in a metric; empty without such runs and for seconds per step."""
    exchange = None if metric in SPEED else study.beside.get("exchange")
    return slopes(exchange, metric) if exchange and metric in exchange.runs else {}


def fits_in_steps(contrast: Contrast, found: Scored, share: float, curves: Curves) -> Callable[[float], bool]:
    """A test at a level, over at least five seeds, that a contrast is worth less than a share of the steps: Fieller's
    interval has to lie within the share."""

    def fits(level: float) -> bool:
        interval_in_steps = worth(found, contrast.weights, curves, level, SEEDS)
        return within(interval_in_steps.worth_low, interval_in_steps.worth_high, share)

    return fits


def outside(found: Worth, share: float) -> bool:
    """Whether the interval lies entirely beyond a share of the steps, on either side."""
    return found.worth_low > share or found.worth_high < 1 / (1 + share) - 1


def in_units(study: Study, contrast: Contrast, margin: str | float, curves: Curves) -> float:
    """A margin in the metric's unit; for a share of the steps |mean slope|·log(1 + share), NaN without exchange runs.
    Over several strata, slopes are averaged by the contrast's `shares`."""
    share = fraction_of(margin)
    if share is None:
        return float(margin)
    parts = shares(study.manifest, contrast.weights)
    if not parts.keys() <= curves.keys():
        return math.nan
    slope = sum(part * float(curves[name].all.mean()) for name, part in parts.items())
    return abs(slope) * math.log1p(share)


def worth_words(row: Any, steps: str = "training steps") -> str:
    """An effect in steps of its reference: "worth 9 % [6, 13] more training steps"; "" without exchange runs.  Numbers
    outside the measured range, 0.8 to 1.25 times the steps, are given as "more than 25 %" or "<−25"."""
    share, low, high = (float(value) for value in (row.worth, row.worth_low, row.worth_high))
    if not (math.isfinite(share) and low <= high):
        return ""
    if low == -1 and high == math.inf:
        return f"not bounded in {steps}" if steps else "not bounded"
    fewer = share < 0
    ends = sorted((-low, -high) if fewer else (low, high))
    bottom, top, places = *((0.25, 0.2) if fewer else (0.2, 0.25)), worth_places(low, high)
    least, most = f"<{MINUS}{100 * bottom:.0f}", f">{100 * top:.0f}"
    inside = [_percentage(end, places) if -bottom <= end <= top else least if end < 0 else most for end in ends]
    size, over = abs(share), abs(share) > top
    span = "" if over and ends[0] > top else f" [{', '.join(inside)}]"
    shown = f"more than {100 * top:.0f}" if over else _percentage(size, places)
    return f"worth {shown} %{span} {'fewer' if fewer else 'more'} {steps}"


def worth_text(row: Any, steps: str = "training steps") -> str:
    """What an effect is worth in steps of its reference, with the notes that limit it."""
    notes = [note for note in getattr(row, "worth_note", "").split("; ") if not note.startswith(BEYOND)]
    return ", ".join(filter(None, (worth_words(row, steps), *notes)))


def worth_places(low: float, high: float) -> int:
    """Decimal places of a worth in per cent: one if its interval is narrow, else none."""
    return int((high - low) / 2 < 0.02)


def _percentage(fraction: float, places: int) -> str:
    return plus(100 * fraction, f".{places}f").removeprefix("+")
