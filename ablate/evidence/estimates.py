"""The estimate of one contrast from scores: mean, SD, pairing, ranks and the counts of diverged and failed runs."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate.evidence.contrasts import Contrast, corners_of
from ablate.evidence.error_rates import planned_looks, sizes
from ablate.evidence.exact import counted, hypergeometric_p, is_solved, permutation_p, sign_flip_p
from ablate.evidence.normality import normality
from ablate.evidence.scores import by_cell, is_share, lower_is_better, scores
from ablate.evidence.statistics import Estimate, correlated, paired, welch
from ablate.formatting import CROSSED, SPEED
from ablate.results.records import Cell, Manifest
from ablate.results.study import Study

MATCHED = "match_difference"  # in a matched study: the largest in absolute value among the cells of a contrast


class Scored(NamedTuple):
    """A study's scores with the metric of each cell, computed once for all of its contrasts."""

    study: Study
    cells: dict[str, Cell]
    metrics: dict[str, str]
    lower: dict[str, bool]
    values: pandas.DataFrame  # a row per seed, a column per cell, NaN where a run has no number
    ranked: pandas.DataFrame  # the same with diverged runs infinitely bad: for ranks only, never for a mean
    ends: dict[tuple[str, str], int]  # number of runs by cell and status
    at: dict[str, int]  # the index of each cell's column in all tables
    trained: pandas.DataFrame  # the scores by each cell's endpoint, that is, on the task it was trained on

    def of(self, cells: Iterable[str], ranked: bool = False) -> np.ndarray:
        """The values, or ranked values, of these cells (seeds, cells), in NumPy because pandas' selection is slow."""
        table = self.ranked if ranked else self.values
        return np.asarray(table.to_numpy()[:, [self.at[cell] for cell in cells]])

    def groups(self, weights: dict[str, float]) -> tuple[list[dict[str, float]], bool]:
        """See `groups`; speed is always paired, because runs of one seed are timed side by side."""
        timed = all(self.metrics[cell] in SPEED for cell in weights)
        return ([weights], True) if timed else groups(self.study.manifest, weights)


def scored(study: Study, metric: str | dict[str, str] | None = None) -> Scored:
    """The scores of a study by each cell's endpoint, by one metric, or by one for each cell."""
    manifest, values = study.manifest, scores(study, metric)
    metrics = by_cell(manifest, metric)
    lower = {cell: lower_is_better(manifest, name) for cell, name in metrics.items()}
    cells, at = {cell.id: cell for cell in manifest.cells}, {cell: i for i, cell in enumerate(values)}
    ranked, lost = values.copy(), study.runs[study.runs["status"] == "diverged"]
    for cell, seed in zip(lost["cell"], lost["seed"], strict=True):
        if not is_solved(metrics[cell]):
            ranked.loc[seed, cell] = math.inf if lower[cell] else -math.inf
    ends = Counter(zip(study.runs["cell"], study.runs["status"], strict=True))
    trained = values if metric is None else scores(study)
    return Scored(study, cells, metrics, lower, values, ranked, ends, at, trained)


def second_metric(cell: str, metric: str) -> str:
    """The id of the copy of a cell that is scored by the second of two metrics."""
    return f"{cell} by {metric}"


def scored_by_two(study: Study, one: str, other: str) -> Scored:
    """A study's scores by one metric and, in copies of all cells named by `second_metric`, by another.  Both scores of
    a cell come from the same runs, so their difference is taken within seeds."""
    new = {cell.id: second_metric(cell.id, other) for cell in study.manifest.cells}
    cells = [*study.manifest.cells, *(replace(cell, id=new[cell.id]) for cell in study.manifest.cells)]
    runs = pandas.concat([study.runs, study.runs.assign(cell=study.runs["cell"].map(new))], ignore_index=True)
    twice = replace(study, manifest=replace(study.manifest, cells=cells), runs=runs)
    return scored(twice, dict.fromkeys(new, one) | dict.fromkeys(new.values(), other))


def estimate_row(found: Scored, contrast: Contrast) -> dict[str, Any]:
    """The columns of `effects` that depend on this contrast alone."""
    cells, names = found.cells, list(contrast.weights)
    parts, together = found.groups(contrast.weights)
    values = [sums(found.of(w), w) for w in parts]
    estimate = paired(values[0]) if together else welch(values)  # the one group if seeds pair, or independent ones
    exact = all(is_solved(found.metrics[name]) for name in names)
    different = len({cells[name].task for name in names}) > 1
    lost = _diverged(found, contrast)
    seeds = found.values.index.to_numpy()
    complete = [seeds[~np.isnan(value).any(axis=1)].astype(int).tolist() for value in map(found.of, parts)]
    looked = sizes(found.study.manifest, complete)
    if exact:  # a diverged run did not solve the task; the level is split evenly among the looks
        counts = counted(map(found.of, parts), [w.values() for w in parts], planned_looks(found.study.manifest))
        estimate, looked, lost["uneven"] = estimate._replace(exact=counts), (estimate.n,), False
    metrics = list(dict.fromkeys(found.metrics[name] for name in names))
    tasks = found.study.manifest.tasks
    clumps = any(tasks[found.cells[name].task].clumps(found.metrics[name]) for name in names)
    matches = [match for name in names if (match := cells[name].matched)]
    left = max((match.difference for match in matches), key=abs, default=0)
    row: dict[str, Any] = lost | {"metric": ", ".join(metrics), "lower_is_better": found.lower[names[0]], MATCHED: left}
    row |= {"estimate": estimate, "n": estimate.n, "mean": estimate.mean, "sd": estimate.sd, "paired": together}
    row |= {"different": different, "clumps": clumps, "looks": looked, "reach": _reach(found, contrast, metrics)}
    row |= {status: _count(found, contrast.weights, status) for status in ("failed", "missing")}
    row["p_normal"] = math.nan if different or lost["uneven"] or exact else normality(values)
    return row | _pairs(found, contrast, together)


def _reach(found: Scored, contrast: Contrast, metrics: list[str]) -> float:
    """The largest possible absolute value of a contrast of shares; inf for other metrics and for shares in per cent."""
    tasks = found.study.manifest.tasks.values()
    shares = all(any(is_share(task, metric) for task in tasks) for metric in metrics)
    values = found.of(contrast.weights) if shares else np.array([])
    if not shares or not (np.isnan(values) | (values >= 0) & (values <= 1)).all():
        return math.inf
    return sum(contrast.side(1).values())


def groups(manifest: Manifest, weights: dict[str, float]) -> tuple[list[dict[str, float]], bool]:
    """The weights of each independent group of cells, and whether all is paired by seed.  Cells with the same batches
    form a group; if the weights sum to zero in each, seeds pair, and all is one group."""
    batches = {cell.id: cell.batches for cell in manifest.cells}
    found: dict[str, dict[str, float]] = {}
    for name, weight in weights.items():
        found.setdefault(batches[name], {})[name] = weight
    together = all(abs(sum(each.values())) < 1e-9 for each in found.values())
    return [weights] if together else list(found.values()), together


def weighted(
    manifest: Manifest, values: pandas.DataFrame, weights: dict[str, float], exact: bool
) -> tuple[Estimate, bool]:
    """The estimate of a weighted sum of cells' values (a row per seed, a column per cell) and whether it is paired.
    `exact` says that the values are shares solved."""
    parts, together = groups(manifest, weights)
    known = [values[[*part]].to_numpy(float) for part in parts]
    summed = [sums(each, part) for each, part in zip(known, parts, strict=True)]
    estimate = paired(summed[0]) if together else welch(summed)
    counts = counted(known, [part.values() for part in parts], 1) if exact else None
    return estimate._replace(exact=counts), together


def sums(values: np.ndarray, weights: dict[str, float]) -> np.ndarray:
    """The weighted sum of these cells' values (seeds, cells) within each seed that has them all."""
    complete = values[~np.isnan(values).any(axis=1)]
    return _rounded(complete @ np.array(list(weights.values())), complete)


def _rounded(differences: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Differences of values, without the rounding error that remains between equal cells: 1e-16 in every seed would
    count as a significant difference, and its sign as that of a lower or higher score."""
    size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    return np.asarray(np.round(differences / size, 12) * size)


def _diverged(found: Scored, contrast: Contrast) -> dict[str, Any]:
    """How many runs of each side diverged, and whether the number per cell is unequal.

    For an interaction, a difference of differences, it has to be equal at all corners: if all runs with one norm
    diverged, both sides have lost equally many runs, but the rest compares nothing.
    """
    compared = [list(contrast.side(sign)) for sign in (1, -1)]
    a, b = (_count(found, side, "diverged") for side in compared)
    if contrast.corners:
        compared = [*contrast.corners]
    elif contrast.kind in CROSSED:
        own = {name: found.cells[name].levels for name in contrast.weights}
        compared = [*corners_of(own, tuple(contrast.factor.split(" x "))).values()]
    shares = {Fraction(_count(found, cells, "diverged"), len(cells)) for cells in compared}
    return {"diverged": a, "diverged_reference": b, "uneven": len(shares) > 1}


def _count(found: Scored, side: Iterable[str], status: str) -> int:
    return int(sum(found.ends.get((cell, status), 0) for cell in side))


def _pairs(found: Scored, contrast: Contrast, together: bool) -> dict[str, float]:
    """Columns that compare the two sides: correlation over seeds, counts of lower and higher pairs."""
    sides = map(contrast.side, (1, -1))
    up, down = (found.of(side, ranked=True) @ np.array(list(side.values())) for side in sides)
    known, other_known = ~np.isnan(up), ~np.isnan(down)
    if together:
        known = other_known = known & other_known
    one, other = up[known], down[other_known]
    ended = np.isfinite(one) & np.isfinite(other) if together else slice(0)
    with np.errstate(invalid="ignore"):  # two diverged runs tie
        grid = np.nan_to_num(np.sign(_rounded(one[:, None] - other, found.of(contrast.weights))))
    pairs = np.diagonal(grid) if together else grid
    lower, higher = int((pairs < 0).sum()), int((pairs > 0).sum())
    counts = {"lower": lower, "higher": higher, "tied": pairs.size - lower - higher}
    return {"correlation": correlated(one[ended], other[ended]), **counts}


class Divergence(NamedTuple):
    """How often the runs of two sides diverged."""

    counts: list[tuple[int, int]]  # for each side the diverged runs and those that ended (done or diverged)
    n: int  # seeds whose runs all ended, of the side with fewer if unpaired
    paired: bool
    p: float  # exact and two-sided


def divergence_of(study: Study, level: Sequence[str], reference: Sequence[str]) -> Divergence:
    """The divergence of two sides, given as ids of cells."""
    ended = study.runs[study.runs["status"].isin(["done", "diverged"])]
    ended = ended[["seed", "cell"]].assign(lost=(ended["status"] == "diverged").astype(float))
    table = ended.pivot(index="seed", columns="cell", values="lost")
    sides = [table.reindex(columns=side) for side in (level, reference)]
    counts = [(int(side.sum().sum()), int(side.notna().sum().sum())) for side in sides]
    weights = {cell: 1 / len(level) for cell in level} | {cell: -1 / len(reference) for cell in reference}
    paired = groups(study.manifest, weights)[1]
    sums = [side.sum(axis=1, skipna=False) for side in sides]
    both = sums[0].notna() & sums[1].notna()
    one, other = (side[both if paired else side.notna()].to_numpy(int) for side in sums)
    m, n = len(level), len(reference)
    if paired:
        p = sign_flip_p(map(int, one - other)) if m == n else hypergeometric_p(one, other, m, n)
    else:  # shares of diverged runs as integers: counts times the other side's number of cells
        p = permutation_p([int(count) * n for count in one], [int(count) * m for count in other])
    return Divergence(counts, min(len(one), len(other)), paired, p)
