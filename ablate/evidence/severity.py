"""How often a claim would pass where there is nothing: its own rule on differences that noise alone has made."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from ablate.evidence.placebo import KEY, drawn_anew
from ablate.evidence.runs import scores
from ablate.results import Study
from ablate.words import counted

LEAST = 12  # differences; fewer say too little about the tails
RESAMPLES = 10_000
HIGHEST = 0.05  # false passes that a claim may have

Rule = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


class Severity(NamedTuple):
    """The share of resampled placebos that pass, from how many differences, of what; NaN where it was not measured.

    `why` it was not, as the end of a sentence.
    """

    rate: float
    n: int
    kind: str
    why: str = ""


class Noisy(NamedTuple):
    """A contrast's noise in placebos: of each independent part Σ w² over its cells, and its number of seeds."""

    squares: tuple[float, ...]
    seeds: tuple[int, ...]


def severity(
    placebos: Study | None,
    metric: str,
    about: Collection[str],
    noise: Noisy,
    looks: Sequence[tuple[int, float]],
    rule: Rule,
    shift: float,
    rng: np.random.Generator,
) -> Severity:
    """False passes of a claim: Σ w·cell with placebos in place of cells, plus `shift`, judged by the claim's rule.

    A placebo's difference has twice the variance of a cell's own noise, so that a sum of cells with weights w has
    √(Σ w²/2) times its spread.  Signs are drawn, since which of the two runs is called the placebo is arbitrary.
    `looks` holds n and the level of the interval at each look that was had; one pass at any of them is a pass.
    """
    kind, differences = differences_of(placebos, metric, about, len(noise.squares) == 1)
    if why := unmeasured(placebos, metric, differences):
        return Severity(math.nan, len(differences), kind, why)
    parts = []
    for squares, n in zip(noise.squares, noise.seeds, strict=True):
        signs = rng.choice([-1.0, 1.0], (RESAMPLES, n))
        parts.append(rng.choice(differences, (RESAMPLES, n)) * signs * math.sqrt(squares / 2))
    passed = np.zeros(RESAMPLES, dtype=bool)
    for n, level in looks:
        mean, half = _estimates([part[:, :n] if n < min(noise.seeds) else part for part in parts], level)
        passed |= rule(shift + mean - half, shift + mean + half, n) > 0
    return Severity(float(passed.mean()), len(differences), kind)


def differences_of(
    placebos: Study | None, metric: str, about: Collection[str], together: bool
) -> tuple[str, np.ndarray]:
    """Placebo − plain over seeds, of the kinds that fit a claim, and what these are."""
    plain, kinds, said = fitting(placebos, about, together)
    if not placebos or metric not in placebos.runs:
        return said, np.array([])
    values = scores(placebos, metric)
    found = [(values[cell] - values[plain]).dropna().to_numpy() for cell in kinds]
    return said, np.concatenate(found) if found else np.array([])


def fitting(placebos: Study | None, about: Collection[str], together: bool) -> tuple[str, list[str], str]:
    """The cell of the plain runs, those of the kinds of placebo that fit a claim, and what these are.

    What a claim is about is drawn anew where the model draws anything of it; else chaos is left.  Sides that saw other
    batches, not `together`, differ by the order of the data at least.
    """
    cells = {cell["levels"][KEY]: cell["id"] for cell in placebos.manifest["cells"]} if placebos else {}
    own = [kind for kind in cells if kind in about] if together else ["data"]
    kinds = [kind for kind in own or ["chaos"] if kind in cells]
    manifest = placebos.manifest if placebos else {}
    said = " and ".join(drawn_anew(manifest, kind) for kind in kinds)
    return cells.get(None, ""), [cells[kind] for kind in kinds], said


def unmeasured(placebos: Study | None, metric: str, differences: np.ndarray) -> str:
    """Why placebos' differences do not measure false passes, as the end of a sentence; "" where they do."""
    if n := len(differences):
        few = f", {counted(n, 'placebo')} are too few: aa={LEAST} measures them" * (n < LEAST)
        return few or ": no placebo moved anything" * (not np.any(differences))
    return f": no placebo has {metric}" if placebos else f": aa={LEAST} measures them"


def _estimates(parts: list[np.ndarray], level: float) -> tuple[np.ndarray, np.ndarray]:
    """Means, and half the width of the 1 − level interval, of each resample: Student's t of one part, Welch's of more.

    NaN where there is no spread, which decides nothing.
    """
    mean = np.sum([part.mean(1) for part in parts], axis=0)
    spread = [np.where(np.ptp(part, axis=1) > 0, part.var(1, ddof=1), 0.0) / part.shape[1] for part in parts]
    squared = np.sum(spread, axis=0)
    below = np.sum([each**2 / (part.shape[1] - 1) for each, part in zip(spread, parts, strict=True)], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = squared**2 / below
        return mean, np.where(squared > 0, stats.t.isf(level / 2, df) * np.sqrt(squared), np.nan)
