"""Simulated studies: how often intervals of worths in steps, and of their trend over sizes, hold the truth.

The reference follows a law of loss over steps and a change is worth a known factor of them.  Runs of one seed share
part of their noise: a loss has an SD of 0.010 over seeds, a paired difference of 0.009, as in our runs.  Runs collapse
with a probability, are seen to (0.9 of the way to what is known without learning), and leave out their seed.  As in
real studies the reference is trained for 0.8, 1, 1.25 and 1.6 times the steps and further while the change's mean loss
lies beyond.  Coverage is of single 95 % intervals, those without a bound included, which hold every truth on that side.
A trend is over four sizes, with twice as many seeds at the smaller two.  "at 1.1" is the worst place for a break: in
the middle between two numbers of steps.

python benchmarks/worth_coverage.py [--studies 2000]
"""

import argparse
import itertools
import math
from collections.abc import Callable

import numpy as np

from ablate.evidence.ladder import trend_of
from ablate.evidence.verdicts import MIN_PAIRS
from ablate.evidence.worth import factor_interval
from ablate.planning.rounds import FEWER, MORE

NOISE, PAIRED = 0.010, 0.009  # SD over seeds of a loss, and of a paired difference
SHARED = math.sqrt(NOISE**2 - PAIRED**2 / 2)
START, UNLEARNED = 1.5, 4.0  # the reference's loss, and that of byte frequencies
SLOPE = 0.12  # nats per e-fold of steps, at the study's own number
Law = Callable[[float], float]  # loss over log(steps / the study's own)


def power(exponent: float) -> Law:
    """A power law of steps over a constant, with `SLOPE` at 0."""
    return lambda x: START + SLOPE / exponent * (math.exp(-exponent * x) - 1)


def broken(bend: float) -> Law:
    """A law whose slope falls abruptly to less than half."""

    def law(x: float) -> float:
        def fallen(x: float) -> float:
            return 0.09 * x if x < bend else 0.09 * bend + 0.04 * (x - bend)

        return START + fallen(0.0) - fallen(x)

    return law


def flat(x: float) -> float:
    """A reference that hardly gains from more steps."""
    return START - 0.002 * x


# The law of a study; a break lies anywhere between 0.5 and 4 times the steps.
LAWS: dict[str, Callable[[np.random.Generator], Law]] = {
    "power 0.1": lambda rng: power(0.1),
    "power 0.5": lambda rng: power(0.5),
    "broken": lambda rng: broken(rng.uniform(math.log(0.5), math.log(4))),
    "at 1.1": lambda rng: broken(math.log(1.1)),
    "flat": lambda rng: flat,
}


def log_worth(
    law: Law, gain: float, seeds: int, collapses: float, rng: np.random.Generator, alpha: float = 0.05
) -> tuple[float, float, float] | None:
    """One study of a change that loses `gain` nats: log(1 + worth) and its ends, or None without one."""
    own = rng.normal(0, SHARED, seeds)

    def runs(loss: float) -> np.ndarray:
        scores = loss + own + rng.normal(0, PAIRED / math.sqrt(2), seeds)
        return np.where(rng.random(seeds) < collapses, UNLEARNED + rng.normal(0, NOISE, seeds), scores)

    change = runs(law(0.0) - gain)
    ratios = [FEWER[0], 1.0, *MORE[:2]]
    scores = {ratio: runs(law(math.log(ratio))) for ratio in ratios}
    for further, beyond in ((MORE[2:], np.less), (FEWER[1:], np.greater)):
        for ratio in further:
            reached = [values.mean() for values in scores.values()]
            if not beyond(change.mean(), min(reached) if beyond is np.less else max(reached)):
                break
            scores[ratio] = runs(law(math.log(ratio)))
    ratios = sorted(scores)
    table = np.stack([change, *(scores[ratio] for ratio in ratios)], axis=1)
    learned = table < table.min() + 0.9 * (UNLEARNED - table.min())
    table = table[learned.all(axis=1)]
    if len(table) < MIN_PAIRS:
        return None
    # curve(s) − curve(1) − (change − curve(1))
    distances = table[:, 1:] - table[:, :1]
    means = distances.mean(axis=0)
    if means[-1] >= means[0]:
        return None
    return factor_interval(distances, np.log(ratios), -1, alpha)


def gain_of(law: Law, worth: float) -> float:
    """What a change gains that is worth this factor of the steps."""
    return law(0.0) - law(math.log(worth))


def coverage(name: str, worth: float, seeds: int, collapses: float, studies: int) -> tuple[float, float, float]:
    """The shares of studies without a worth, with one that lacks a bound, and of intervals that hold the truth."""
    rng = np.random.default_rng(0)
    intervals = []
    for _ in range(studies):
        law = LAWS[name](rng)
        if found := log_worth(law, gain_of(law, worth), seeds, collapses, rng):
            intervals.append(found)
    holds = [low <= math.log(worth) <= high for _, low, high in intervals]
    unbounded = [math.isinf(low) or math.isinf(high) for _, low, high in intervals]
    return 1 - len(intervals) / studies, float(np.mean(unbounded)), float(np.mean(holds))


def trend_coverage(
    name: str, top: float, trend: float, seeds: int, collapses: float, studies: int
) -> tuple[float, float]:
    """The share of ladders without a trend, and of their intervals that hold the truth."""
    rng = np.random.default_rng(1)
    x = np.arange(4) * math.log10(4)
    truth = math.log(top) + trend * (x - x[-1])
    holds = []
    for _ in range(studies):
        found = []
        for log, n in zip(truth, (2 * seeds, 2 * seeds, seeds, seeds), strict=True):
            law = LAWS[name](rng)
            found.append(log_worth(law, gain_of(law, math.exp(log)), n, collapses, rng))
        if all(each and np.isfinite(each).all() for each in found):
            points, lows, highs = np.array(found).T
            _, low, high = trend_of(x, points, lows, highs)
            holds.append(low <= trend <= high)
    return 1 - len(holds) / studies, float(np.mean(holds)) if holds else math.nan


def main() -> None:
    """Print a line per law, worth, number of seeds and share of collapses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000)
    studies = parser.parse_args().studies
    print("law        worth  seeds  collapses | no worth  not bounded  coverage")
    for name, worth, seeds, collapses in itertools.product(LAWS, (0.85, 1.1, 1.4), (5, 8, 12), (0.0, 0.02)):
        none, unbounded, held = coverage(name, worth, seeds, collapses, studies)
        start = f"{name:10} {worth:5} {seeds:6} {collapses:10}"
        print(f"{start} | {none:8.3f} {unbounded:12.3f} {held:9.3f}", flush=True)
    print("law          top  trend  seeds  collapses | no trend  coverage")
    trends = ((1.4, 0.0), (1.4, 0.1), (1.1, 0.0))
    for name, (top, trend), seeds, collapses in itertools.product(LAWS, trends, (5, 8, 12), (0.0, 0.02)):
        none, held = trend_coverage(name, top, trend, seeds, collapses, studies)
        print(f"{name:10} {top:5} {trend:6} {seeds:6} {collapses:10} | {none:8.3f} {held:9.3f}", flush=True)


if __name__ == "__main__":
    main()
