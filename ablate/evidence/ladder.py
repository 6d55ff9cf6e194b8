"""What a change is worth in compute at each rung of design=ladder, and whether that grows or fades with scale.

At rung r, the multiplier M = C_ref(metric of the variant) / C_variant says how much more training compute the reference
needs for what the variant reaches, with C = 3 · forward FLOPs per token · tokens, head included.  With g = log C − log
C_ref(r), the reference's metric around rung r is the parabola through the three nearest rungs, metric(r) + slope·g +
bend·g²; the paired difference D = slope·g + bend·g² gives g, and log M = g − log(C_variant / C_ref).  (Straight lines
between rungs would put the change of slope from rung to rung into every multiplier.)

All of this is a function of means over seeds of independent rungs, so multipliers and their trend, the least-squares
slope of log M per decade of compute, have the delta method's errors with one covariance over rungs: neighbours share
slopes, and all share the reference.  Intervals hold together for all multipliers and trends of a study.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate.config.ladder import RUNG, number_of
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.estimates import Comparison, Estimate, compare, interval, paired, welch
from ablate.evidence.families import ALPHA
from ablate.evidence.scores import StudyScores as Scored
from ablate.evidence.scores import study_scores as scored
from ablate.evidence.verdicts import MIN_PAIRS as PAIRS
from ablate.evidence.verdicts import Margin, margin_of, no_verdict
from ablate.formatting import columns, ends, known, listed, number, span
from ablate.results.records import Cell, Manifest
from ablate.results.study import Study
from ablate.results.tables import named_rows

COLUMNS = ["label", "rung", "cell", "n", "compute", "cost", "multiplier", "low", "high", "alpha", "extrapolated"]
COLUMNS += ["verdict", "note", "why", "trend", "trend_low", "trend_high", "ten", "ten_low", "ten_high"]
COLUMNS += ["forecast", "forecast_low", "forecast_high", "hit"]
DECADE = math.log(10)
NEAR = 3  # rungs that determine a parabola
BENT = 2.0  # the steepest of the reference's slopes between rungs, as a multiple of the flattest


class Rung(NamedTuple):
    """One arm at one rung."""

    cell: Cell
    row: Comparison  # the difference from the reference there
    log_compute: float  # of the reference
    cost: float  # the arm's compute / the reference's
    pairs: np.ndarray  # D and the reference's metric, of the seeds that have both (seeds, 2)


class Change(NamedTuple):
    """log M at one rung, and its derivatives with respect to the means of each rung's D and reference."""

    log: float
    of_difference: np.ndarray  # (rungs,)
    of_reference: np.ndarray  # (rungs,)
    extrapolated: bool


def arms(study: Study, metric: str | None = None) -> tuple[Scored, dict[str, list[Rung]], dict[str, list[Contrast]]]:
    """The scores, and by label the arms of a ladder at its rungs, and their contrasts at other learning rates."""
    found = scored(study, metric)
    climbed, rates = dict[str, list[Rung]](), dict[str, list[Contrast]]()
    for each in contrasts(study.manifest):
        (cell,), (base,) = (list(each.side(sign)) for sign in (1, -1))
        level, label = found.cells[cell].levels[RUNG], each.label.removesuffix(f" at {each.stratum}")
        if number_of(level) is None:
            rates.setdefault(label, []).append(each)
            continue
        cost, own = found.cells[cell].training_flops, found.cells[base].training_flops
        both = found.values[[cell, base]].to_numpy(float)
        both = both[~np.isnan(both).any(axis=1)]
        pairs = np.stack([both[:, 0] - both[:, 1], both[:, 1]], axis=1)
        row = compare(found, each)
        climbed.setdefault(label, []).append(Rung(found.cells[cell], row, math.log(own), cost / own, pairs))
    return found, climbed, rates


def change(rungs: list[Rung], at: int) -> Change:
    """log M of an arm at the rung of this index: the root nearest to zero of slope·g + bend·g² = D, less log cost."""
    near = slice(first := min(max(at - 1, 0), len(rungs) - NEAR), first + NEAR)
    x = np.array([rung.log_compute for rung in rungs])
    means, difference = np.array([rung.pairs[:, 1].mean() for rung in rungs]), float(rungs[at].pairs[:, 0].mean())
    of_slope, of_bend = np.zeros((2, len(rungs)))
    _, of_slope[near], of_bend[near] = np.linalg.inv(np.vander(x[near] - x[at], NEAR, increasing=True))
    slope, bend = float(of_slope @ means), float(of_bend @ means)
    root = math.sqrt(max(0.0, slope**2 + 4 * bend * difference)) or math.nan
    log = 2 * difference / (slope + math.copysign(root, slope))
    steepness = slope + 2 * bend * log
    of_difference = np.eye(len(rungs))[at] / steepness
    of_reference = -(of_slope * log + of_bend * log**2) / steepness
    outside = not x[0] <= x[at] + log <= x[-1]
    return Change(log - math.log(rungs[at].cost), of_difference, of_reference, outside)


def combined(rungs: list[Rung], weights: np.ndarray) -> Estimate:
    """Σ w·log M over the rungs, with the error that the delta method gives."""
    return estimated(rungs, *gradient(rungs, weights))


def gradient(rungs: list[Rung], weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Σ w·log M, and its derivatives with respect to each rung's mean D and mean of the reference (rungs, 2)."""
    changes = [change(rungs, at) for at in range(len(rungs))]
    of_difference = weights @ np.array([each.of_difference for each in changes])
    of_reference = weights @ np.array([each.of_reference for each in changes])
    return float(weights @ [each.log for each in changes]), np.stack([of_difference, of_reference], axis=1)


def estimated(rungs: list[Rung], value: float, derivatives: np.ndarray) -> Estimate:
    """A function of the means of independent rungs, with its error."""
    error = welch([rung.pairs @ each for rung, each in zip(rungs, derivatives, strict=True)])
    return replace(error, mean=value)


def line(rungs: list[Rung], at: float | None = None) -> np.ndarray:
    """The weights of each rung's log M in the least-squares slope on log C, or in the line's value at a log C."""
    x = np.array([rung.log_compute for rung in rungs])
    slope = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    return slope if at is None else slope * (at - x.mean()) + 1 / len(x)


def arm_of(study: Study, cell: str, metric: str | None = None) -> tuple[list[Rung], str]:
    """The rungs of the arm that has a cell, and what is wrong with its learning rates, if anything."""
    found, climbed, rates = arms(study, metric)
    label = next(name for name, rungs in climbed.items() if any(rung.cell.id == cell for rung in rungs))
    return climbed[label], rate_problem(found, rates[label])


def ladder(study: Study, metric: str | None = None) -> pandas.DataFrame:
    """A row per change and rung: its compute multiplier with the trend over rungs, repeated in each of its rows.

    `multiplier`, `low`, `high` are M, `compute` is the reference's, `cost` the change's compute as a multiple of it.
    `trend` is log M per decade of compute; `ten` the line's M at ten times the top rung's compute, which nothing
    calibrates; `forecast` M at the top rung as the rungs below predict it, and `hit` whether the measured one differs
    from it by no more than their errors allow.  Empty for a study of another design.
    """
    if study.manifest.design != "ladder":
        return pandas.DataFrame(columns=COLUMNS)
    found, climbed, rates = arms(study, metric)
    alpha = ALPHA / sum(len(rungs) + 1 for rungs in climbed.values())
    margin = margin_of(study.manifest.margin)
    rows = []
    for label, rungs in climbed.items():
        problem = rate_problem(found, rates[label])
        common = {"label": label, "alpha": alpha} | trend_of(rungs, unusable(rungs), problem, margin, alpha)
        for at, rung in enumerate(rungs):
            row = common | {"rung": at + 1, "cell": rung.cell.id, "n": len(rung.pairs), "note": unfit(rung)}
            row |= {"compute": math.exp(rung.log_compute), "cost": rung.cost}
            if row["verdict"] != "withheld":
                row |= multiplied(combined(rungs, np.eye(len(rungs))[at]), alpha)
                row |= {"extrapolated": change(rungs, at).extrapolated}
            rows.append(row)
    return pandas.DataFrame(rows, columns=COLUMNS)


def trend_of(rungs: list[Rung], withheld: str, rates: str, margin: Margin, alpha: float) -> dict[str, Any]:
    """The columns of an arm's trend: its slope and lines, and the verdict with what limits it."""
    if withheld:
        return {"verdict": "withheld", "why": withheld}
    top = rungs[-1].log_compute
    slope = combined(rungs, line(rungs))
    last, own = gradient(rungs, np.eye(len(rungs))[-1])
    low, high = (DECADE * end for end in interval(slope, alpha))
    found: dict[str, Any] = {"trend": DECADE * slope.mean, "trend_low": low, "trend_high": high}
    found |= multiplied(combined(rungs, line(rungs, top + DECADE)), alpha, "ten", "ten_")
    if len(below := rungs[:-1]) >= NEAR and not unsound(below):
        value, derivatives = gradient(below, line(below, top))
        found |= multiplied(estimated(below, value, derivatives), ALPHA, "forecast", "forecast_")
        # The two share means of the reference.
        apart = estimated(rungs, value - last, np.vstack([derivatives, [0, 0]]) - own)
        found["hit"] = not sign(interval(apart, ALPHA))
    mean = combined(rungs, np.full(len(rungs), 1 / len(rungs)))
    at_top, over_all = sign(interval(estimated(rungs, last, own), alpha)), sign(interval(mean, alpha))
    changes, side = sign((low, high)), at_top or over_all
    if rates:
        verdict, why = "undecided", rates
    elif -margin.size < low and high < margin.size:
        verdict, why = "holds", "by a margin written after results" * (not margin.registered)
    elif changes and at_top * over_all < 0:
        verdict, why = "undecided", f"worth {'more' if at_top > 0 else 'less'} than 1 at the top, the reverse below"
    elif changes and side:
        verdict, why = "grows" if changes == side else "fades", ""
    elif changes:
        verdict, why = "undecided", "a multiplier of 1 is not excluded over all rungs or at the top"
    else:
        size = margin.size
        why = f"its interval is not within ±{size:g}" if math.isfinite(size) else "the study has no margin"
        verdict, why = "undecided", f"neither growing nor fading, and {why}"
    return found | {"verdict": verdict, "why": why}


def multiplied(log: Estimate, alpha: float, name: str = "multiplier", prefix: str = "") -> dict[str, float]:
    """The columns of a multiplier with its interval, from its logarithm."""
    low, high = interval(log, alpha)
    return {name: math.exp(log.mean), f"{prefix}low": math.exp(low), f"{prefix}high": math.exp(high)}


def sign(ends: tuple[float, float]) -> int:
    """The sign that all numbers of an interval have; 0 without one."""
    return (ends[0] > 0) - (ends[1] < 0)


def unusable(rungs: list[Rung]) -> str:
    """Why an arm has no multipliers; "" if it has some."""
    return next(filter(None, map(unfit, rungs)), "") or unsound(rungs)


def unsound(rungs: list[Rung]) -> str:
    """Why the reference's curve is no scale for multipliers; "" if it is one."""
    slopes = np.diff([rung.pairs[:, 1].mean() for rung in rungs]) / np.diff([rung.log_compute for rung in rungs])
    if not (slopes * (-1 if rungs[0].row.lower_is_better else 1) > 0).all():
        return "more compute does not always make the reference better"
    near = [abs(slopes[i : i + NEAR]) for i in range(max(1, len(slopes) - NEAR + 1))]
    if any(max(each) > BENT * min(each) for each in near):
        return f"the reference's slope changes by more than {BENT:g} times: its curve bends too much"
    if any(math.isnan(change(rungs, at).log) for at in range(len(rungs))):
        return "the reference's curve, continued, does not reach its metric"
    return ""


def unfit(rung: Rung) -> str:
    """Why an arm has no multiplier at a rung; "" if it has one."""
    reason = no_verdict(rung.row)
    return f"rung {rung.cell.levels[RUNG]}: {reason.note}" if reason else ""


def rate_problem(found: Scored, rates: list[Contrast]) -> str:
    """The cells for which another learning rate is better than the carried one, by more than one standard error or
    since fewer runs diverge, or too few runs tell; "" if there are none."""
    better: dict[str, list[str]] = {}
    for each in rates:
        for cell in each.weights:
            levels = found.cells[cell].levels
            rung, _, rate = str(levels[RUNG]).partition(" at ")
            own = {**levels, RUNG: int(rung)}
            (carried,) = (name for name, other in found.cells.items() if other.levels == own)
            both, label = found.ranked[[cell, carried]].to_numpy(float), found.cells[carried].label
            both = both[~np.isnan(both).any(axis=1)]
            if len(both) < PAIRS:
                return f"too few runs at {rate}: {label}"
            lost, lost_carried = np.isinf(both).sum(axis=0)
            ended = both[np.isfinite(both).all(axis=1)]
            gain = paired((ended[:, 0] - ended[:, 1]) * (-1 if found.lower_is_better[cell] else 1))
            if lost < lost_carried or (lost == lost_carried and gain.mean > gain.error):
                lr = f"optim.lr={found.cells[cell].planned_config.optim.lr:g}"
                better.setdefault(f"better at {rate} ({lr} there)", []).append(label)
    return "; ".join(f"{what}: {listed(list(dict.fromkeys(labels)))}" for what, labels in better.items())


def ladder_lines(table: pandas.DataFrame) -> list[str]:
    """The multipliers of each change, then its trend and verdict, under headings; [] for another design."""
    arms = [list(named_rows(rows)) for _, rows in table.groupby("label", sort=False)]
    if not arms:
        return []
    rungs, trends = [["", *(f"rung {row.rung}" for row in arms[0])]], []
    for rows in arms:
        shown = [f"{times(row)}{'*' * bool(row.extrapolated)}" if known(row.multiplier) else "–" for row in rows]
        rungs.append([rows[0].label, *shown])
        one = rows[0]
        trend = span(one.trend, one.trend_low, one.trend_high, 2) if known(one.trend) else "–"
        trends.append([one.label, trend, one.verdict + f": {one.why}" * bool(one.why)])
    beyond = " (*: beyond the reference's rungs)" * any("*" in text for _, *texts in rungs for text in texts)
    heading = f"multipliers in compute of the reference, simultaneous 95 % intervals{beyond}"
    blocks = {heading: rungs, "trends of their logarithms per tenfold compute": trends}
    return [line for head, rows in blocks.items() for line in (head, *(f"  {text}" for text in columns(rows)))]


def reference_rungs(manifest: Manifest) -> list[Cell]:
    """The reference's cells on a ladder, from the lowest rung; [] for another design."""
    return [cell for cell in manifest.cells if cell.reference and number_of(cell.levels.get(RUNG))]


def rung_lines(manifest: Manifest) -> list[str]:
    """What the rungs are, from the lowest, each with its compute over that of the one below; [] for another design."""
    shapes, before = [], 0.0
    for cell in reference_rungs(manifest):
        config, own = cell.planned_config, cell.training_flops
        model, train = config.model, config.train
        shape = f"{model.layers} × {model.dim}, {train.steps:,} × {train.batch_size}"
        shapes.append(shape + (f", compute ×{number(own / before, 1)}" if before else f", {own:.1e} FLOPs"))
        before = own
    return [f"rungs (layers × width, steps × batch): {'; '.join(shapes)}"] * bool(shapes)


def times(row: Any, name: str = "multiplier", low: str = "low", high: str = "high") -> str:
    """A multiplier with its interval: "×1.21 [1.08, 1.36]"."""
    return f"×{number(getattr(row, name), 2)} [{ends(getattr(row, low), getattr(row, high), 2)}]"
