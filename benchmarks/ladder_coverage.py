"""Simulated ladders: how often intervals of multipliers and trends hold the truth, and how often verdicts are wrong.

A reference follows a law of loss over compute, a change needs M(C) times less of it, log M = log m + trend · log10(C /
C_top); seeds add normal noise with the spreads of our runs.  Coverage is of single 95 % intervals; the truth of a trend
is the least-squares slope of the true log M at the rungs.

python benchmarks/ladder_coverage.py [--ladders 2000] [--seeds 8] [--rungs 4]
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from ablate.evidence.equivalence import Margin
from ablate.evidence.statistics import interval, paired

from ablate.evidence.ladder import DECADE, Rung, combined, line, trend_of, unsound

NOISE, PAIRED = 0.010, 0.009  # SD over seeds of the reference's loss, and of the paired difference
TOP = math.log(2.5e13)
Law = Callable[[float], float]


def laws() -> dict[str, Law]:
    """Loss over log C, with a local slope of about 0.06 nats per e-fold in the middle."""
    middle = TOP - 1.5 * math.log(4)

    def power(alpha: float) -> Law:  # L∞ follows from the exponent, for the slope of 0.06
        return lambda c: 1.9 + 0.06 / alpha * math.exp(-alpha * (c - middle))

    def broken(c: float) -> float:
        return 1.9 - (0.09 if c < middle else 0.04) * (c - middle)

    return {f"power {alpha:g}": power(alpha) for alpha in (0.03, 0.06, 0.15, 0.3)} | {"broken": broken}


def ladder_of(law: Law, logs: list[float], seeds: list[int], worse: float, rng: np.random.Generator) -> list[Rung]:
    """One simulated ladder; `worse` nats are lost by the change below the top, as by an unsuitable rate."""
    count, found = len(logs), []
    for at, (log, n) in enumerate(zip(logs, seeds, strict=True)):
        c = TOP - (count - 1 - at) * math.log(4)
        truth = law(c + log) - law(c) + worse * (count - 1 - at) / (count - 1)
        reference = law(c) + NOISE * rng.standard_normal(n)
        pairs = np.stack([truth + PAIRED * rng.standard_normal(n), reference], axis=1)
        cell: Any = SimpleNamespace(levels={"rung": at + 1})
        found.append(Rung(cell, SimpleNamespace(lower_is_better=True), c, 1.0, pairs))
    return found


def main() -> None:
    """Print a line per law, multiplier at the top and trend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ladders", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rungs", type=int, default=4)
    parser.add_argument("--margin", type=float, default=0.2)
    asked = parser.parse_args()
    print(
        f"{'law':12} {'M at top':>8} {'trend':>6} | coverage of M per rung      trend | half-width M  trend | verdicts"
    )
    for name, law in laws().items():
        for top, trend in ((1.0, 0.0), (1.2, 0.0), (1.2, 0.2), (1.5, 0.1), (2.0, -0.1), (0.8, 0.0)):
            report(name, law, top, trend, 0.0, asked)
    for worse in (0.01, 0.03):
        report(f"rate {worse:g}", laws()["power 0.06"], 1.2, 0.0, worse, asked)


def report(name: str, law: Law, top: float, trend: float, worse: float, asked: argparse.Namespace) -> None:
    """Simulate one truth and print what was found."""
    rng, count = np.random.default_rng(0), asked.rungs
    logs = [math.log(top) + trend * -(count - 1 - at) * math.log(4) / DECADE for at in range(count)]
    seeds = [asked.seeds * (1 + (at < count - 2)) for at in range(count)]
    x = np.arange(count) * math.log(4)
    true_slope = float(np.polyfit(x, logs, 1)[0])
    inside, verdicts, spread = [], Counter[str](), []
    for _ in range(asked.ladders):
        rungs = ladder_of(law, logs, seeds, worse, rng)
        better = paired(worse / (count - 1) + PAIRED * rng.standard_normal(seeds[-2]))  # at a rate that suits it
        rates = "another rate is better" * bool(worse and better.mean > better.error)
        trend_row = trend_of(rungs, unsound(rungs), rates, Margin(asked.margin), 0.05 / (count + 1))
        verdicts[trend_row["verdict"]] += 1
        if trend_row["verdict"] != "withheld":
            found = [interval(combined(rungs, weights), 0.05) for weights in (*np.eye(count), line(rungs))]
            inside.append([low <= one <= high for (low, high), one in zip(found, [*logs, true_slope], strict=True)])
            spread.append([(high - low) / 2 for low, high in found])
    told = ", ".join(f"{word} {number / asked.ladders:.3f}" for word, number in verdicts.most_common())
    if not spread:
        return print(f"{name:12} {top:8.2f} {trend:+6.2f} | {told}", flush=True)
    *shares, held = np.mean(inside, axis=0)
    *halves, wide = np.median(spread, axis=0)
    text = " ".join(f"{share:.3f}" for share in shares)
    print(f"{name:12} {top:8.2f} {trend:+6.2f} | {text} | {held:.3f} | ", end="")
    print(f"×/÷ {math.exp(max(halves[:-1])):.3f} {math.exp(halves[-1]):.3f}  ±{wide * DECADE:.3f} | {told}", flush=True)


if __name__ == "__main__":
    main()
