"""The 5 % of false verdicts, shared by the rows of a family and by the looks at growing numbers of seeds.

The effects of a design are a family, the registered claims another; of the rest there are only estimates.

A study with `seeds=auto` tests at every look and stops once everything is decided.  Repeated intervals (Jennison &
Turnbull 1984) use one nominal level a' at every look, chosen so that P(any look's p <= a') = a without an effect
(Pocock 1977, here for Student's t).  They are valid at whichever look a study stops.

Unpaired rows use the same levels with Welch's degrees of freedom.  This approximation is no worse than Welch's t
itself: in simulations the error rate over all looks is 4.5 %, with SDs of 1 and 3 5.2 %; for one look at 5 seeds it is
4.4 and 5.3 %.
"""

import functools
import math

import numpy as np
import pandas

from ablate.evidence.statistics import t_limit
from ablate.formatting import counted
from ablate.results.naming import no_evidence
from ablate.results.records import Manifest
from ablate.results.study import Study

ALPHA = 0.05  # messages and docs also say 5 % and 95 % in words: change them together
DECIDED = ("better", "worse", "negligible", "equivalent", "supported", "contradicted")  # conclusive verdicts
LOOKS = (5, 8, 12, 20)  # seeds
PATHS = 2**13  # simulated per look and level
GRID = np.concatenate([np.geomspace(1e-9, 0.01, 22), np.geomspace(0.014, 1, 16)])  # nominal levels


def described(manifest: Manifest) -> bool:
    """Whether effects have no verdicts, because a ladder's multipliers have, or because claims are registered without a
    registered `effects: all`.  A claim withdrawn after its results counts: otherwise withdrawing it would turn the
    effects into a family."""
    everything = manifest.effects and manifest.effects.value and manifest.effects.registered
    return manifest.design == "ladder" or (bool(registered(manifest)) and not everything)


def families(manifest: Manifest, effects: int) -> str:
    """A sentence on which verdicts share which 5 %, if a study has claims as well as a family of effects."""
    if effects and described(manifest) and not no_evidence(manifest):
        late = "; effects: all was written after results" * bool(manifest.effects and manifest.effects.value)
        tested = ["the registered claims"] * bool(registered(manifest))
        tested += ["multipliers"] * (manifest.design == "ladder")
        return f"only {' and '.join(tested)} are tested{late}"
    claims = 0 if no_evidence(manifest) else registered(manifest)
    if not (claims and effects):
        return ""
    both = f"{counted(claims, 'registered claim')} and {counted(effects, 'effect')}"
    return f"{both} are tested separately, each group with its own 5 % of false verdicts"


def registered(manifest: Manifest) -> int:
    """The number of registered claims in the family.  A claim that was edited or withdrawn after its results still
    counts: removing what failed would make the rest look better than it is."""
    seen = [entry for entry in manifest.withdrawn.values() if entry.seen is not False]
    entries = [*manifest.claims.values(), *seen]
    return sum(any(version.registered for version in (*entry.earlier, entry)) for entry in entries)


def looks_until(most: int) -> list[int]:
    """The numbers of seeds at which a study of at most `most` seeds looks; the last is `most`."""
    return [n for n in LOOKS if n < most] + [most]


def sizes(manifest: Manifest, complete: list[list[int]]) -> tuple[int, ...]:
    """The number of seeds with a value at each past and future look; `complete` lists the seeds of each group.  Runs
    without a number make a row's looks smaller than planned.  With a fixed number of seeds there is one look."""
    sequence, seeds = manifest.sequential, sorted(manifest.seeds)
    if not sequence:
        return (min(map(len, complete)),)
    lost = len(seeds) - min(map(len, complete))
    found = [min(len(set(seeds[:n]).intersection(group)) for group in complete) for n in sequence.looks]
    counts = [n - lost if n > sequence.at else had for n, had in zip(sequence.looks, found, strict=True)]
    return tuple(sorted({n for n in counts if n > 1}))


def planned_looks(manifest: Manifest) -> int:
    """The number of looks: the Bonferroni divisor for statistics that are not Student's t."""
    return len(manifest.sequential.looks) if manifest.sequential else 1


def sequential_state(study: Study, table: pandas.DataFrame, claims: pandas.DataFrame | None = None) -> str:
    """The state of a study with `seeds=auto` in one line, given its effects and claims; "" for other studies."""
    sequence = study.manifest.sequential
    if not sequence:
        return ""
    claimed = claims is not None and bool(claims["family"].any())
    table = table if claims is None or not claimed else claims
    seeds, last = counted(len(study.manifest.seeds), "seed"), sequence.at == sequence.looks[-1]
    unfinished = int(study.runs["status"].isin(["missing", "failed"]).sum())
    family = table[table["family"].astype(bool)]
    waits = family["waits"].astype(bool)
    left, decided = int(waits.sum()), int(family["verdict"].isin(DECIDED)[~waits].sum())
    withheld = len(family) - decided - left
    if unfinished:
        how = f"the analysis at {seeds} lacks {counted(unfinished, 'run')}"
    elif left:
        how = f"{counted(left, 'claim' if claimed else 'effect')} undecided at {'the last analysis, ' * last}{seeds}"
    else:
        how = f"decided at {seeds}" if decided else f"nothing to decide, stopped at {seeds}"
        how += f", {withheld} without a verdict" * bool(withheld)
    looks = ", ".join(map(str, sequence.looks))
    return f"seeds=auto: {how}; intervals allow for interim analyses at {looks} seeds"


def undecided(table: pandas.DataFrame) -> pandas.DataFrame:
    """The rows of effects, or of claims, that more seeds may decide: those of the family without a verdict."""
    return table[table["family"].astype(bool) & table["waits"].astype(bool)]


def overall(looks: tuple[int, ...], p: float) -> float:
    """P(any look's two-sided p-value <= p) without an effect; for an observed p, the repeated p-value.  It is the
    smallest overall level whose repeated interval excludes zero."""
    if len(looks) < 2 or not p > 0:
        return p
    levels, chances = _table(looks)
    if p <= levels[0]:
        return len(looks) * p  # Bonferroni's bound, nearly exact at tiny levels
    return float(np.exp(np.interp(math.log(p), np.log(levels), np.log(chances))))


def nominal(looks: tuple[int, ...], level: float) -> float:
    """The nominal level a' with P(any look's p <= a') = `level` without an effect: the inverse of `overall`."""
    if len(looks) < 2 or not level > 0:
        return level
    levels, chances = _table(looks)
    if level <= chances[0]:
        return level / len(looks)
    return float(np.exp(np.interp(math.log(level), np.log(chances), np.log(levels))))


@functools.lru_cache(maxsize=64)
def _table(looks: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rising nominal levels, and the probability that any look's p is below each, plus three standard errors."""
    rng = np.random.default_rng(looks)  # the same numbers for every level, so that the chance grows with it
    added, size = np.diff(looks, prepend=0), (PATHS, len(looks))
    # For each look the sums, and sums of squares about the mean, of the normal values that every look adds.
    blocks = [(rng.normal(size=size) * np.sqrt(added), 2 * rng.standard_gamma((added - 1) / 2, size)) for _ in looks]
    found = [min(1.0, len(looks) * level * _overlap(looks, level, blocks)) for level in GRID]
    # Below the grid, continue with Bonferroni's bound without a jump.
    levels = np.concatenate([GRID[:1] / 1e3, GRID])
    return levels, np.maximum.accumulate([len(looks) * levels[0], *found])


def _overlap(looks: tuple[int, ...], level: float, blocks: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Mean of 1 / (number of looks with p <= level) over paths on which a random look has p <= level.

    Times looks · level it is the probability of any such look (Owen, Maximov & Chertkov 2019, arXiv 1710.06965).  No
    rare event is simulated, so the relative error is small at any level.  Three standard errors are added to the mean.
    """
    limits = t_limit(level / 2, np.array(looks) - 1)
    mean, variance = 0.0, 0.0
    for k, (sums, squares) in enumerate(blocks):
        hits = _paths(looks, level, k, sums, squares) >= limits
        hits[:, k] = True  # true by construction, but perhaps not after rounding
        shares = 1 / hits.sum(1)
        mean, variance = mean + shares.mean() / len(looks), variance + shares.var() / len(shares) / len(looks) ** 2
    return min(1.0, mean + 3 * math.sqrt(variance))


def _paths(looks: tuple[int, ...], level: float, k: int, sums: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """|t| at every look (PATHS, looks), for paths of normal values without an effect whose p at look k is <= level.

    With r the norm of the first n values and θ their angle to (1, ..., 1), t = √(n − 1)·cot θ.  As r, the direction of
    the residuals and later values are independent of θ, only θ is replaced, by that of a drawn p.
    """
    n, added = looks[k], np.diff(looks, prepend=0)
    sums, squares = sums.copy(), squares.copy()
    early, total = sums[:, : k + 1], sums[:, : k + 1].sum(1, keepdims=True)
    centred = early - added[: k + 1] * total / n
    within = (squares[:, : k + 1] + centred**2 / added[: k + 1]).sum(1, keepdims=True)
    norm = np.sqrt(total**2 / n + within)
    t = t_limit(level / 2 * (np.arange(PATHS) + 0.5) / PATHS, n - 1)[:, None]
    cosine, sine = t / np.sqrt(t**2 + n - 1), np.sqrt((n - 1) / (t**2 + n - 1))
    sums[:, : k + 1] = norm * (cosine * added[: k + 1] / math.sqrt(n) + sine * centred / np.sqrt(within))
    squares[:, : k + 1] *= (norm * sine) ** 2 / within
    size = np.array(looks)
    mean = sums.cumsum(1) / size
    about = np.maximum((squares + sums**2 / added).cumsum(1) - size * mean**2, np.finfo(float).tiny)  # rounding
    return np.abs(mean) * np.sqrt(size * (size - 1) / about)
