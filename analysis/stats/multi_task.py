"""Several tasks in one study: whether an effect depends on the task, ranks, and one number over all tasks.

Scores are put on a common scale from 0, guessing, to 1, perfect.  With g the score of a guess (0 for a share without a
yardstick; see evidence.equivalence.guess_of), this is (g − loss) / g for a loss and (share − g) / (1 − g) for a share.
Both ends are constants of the task, so the scale does not depend on the runs.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas
from scipy import stats

from ablate import evidence
from ablate.evidence.collapse import score_of_a_guess
from ablate.evidence.verdicts import MIN_SEEDS
from ablate.runs import naming
from ablate.runs.records import Cell, Manifest
from ablate.runs.study import Study

RESAMPLES = 2000
LEAST = 3  # tasks that an aggregate needs


class Crossed(NamedTuple):
    """Variants by tasks: names of both, ids of cells, scaled scores (seeds by cells), number of diverged runs."""

    variants: list[str]
    tasks: list[str]
    cells: dict[tuple[str, str], str]
    scores: pandas.DataFrame
    reference: str
    diverged: dict[str, int]


def crossed(study: Study) -> Crossed | None:
    """The study as variants by tasks, with scaled scores; None with fewer than two of either, or without yardsticks."""
    manifest = study.manifest
    by_task = task_factors(manifest)
    if not by_task:
        return None
    cells, reference = dict[tuple[str, str], str](), ""
    for cell in manifest.cells:
        sides = [[k for k in cell.levels if (k in by_task) == inside] for inside in (False, True)]
        variant, task = (" + ".join(naming.named(manifest, cell.levels[key], key) for key in side) for side in sides)
        cells[variant, task] = cell.id
        reference = reference or variant * bool(cell.reference)
    variants, tasks = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    full = len(cells) == len(variants) * len(tasks)
    scales = {cell.id: made for cell in manifest.cells if (made := scale(manifest, cell))}
    if not full or len(variants) < 2 or len(scales) < len(cells):
        return None
    values = evidence.scores(study)
    scaled = {cell: slope * values[cell] + offset for cell, (slope, offset) in scales.items()}
    lost = study.runs.loc[study.runs["status"] == "diverged", "cell"].value_counts()
    diverged = {cell: int(lost.get(cell, 0)) for cell in scales}
    return Crossed(variants, tasks, cells, pandas.DataFrame(scaled), reference or variants[0], diverged)


def task_factors(manifest: Manifest) -> list[str]:
    """The factors that change the task between cells that differ in nothing else."""
    found = []
    for name in manifest.factors:
        others = [str([level for key, level in c.levels.items() if key != name]) for c in manifest.cells]
        with_tasks = {*zip(others, (cell.task for cell in manifest.cells), strict=True)}
        found += [name] * (len(with_tasks) > len({*others}))
    return found


def scale(manifest: Manifest, cell: Cell) -> tuple[float, float] | None:
    """Slope and offset that map a cell's scores to 0 for guessing and 1 for perfect; None without a yardstick."""
    metric = evidence.endpoints(manifest)[cell.id]
    guess, best = (
        score_of_a_guess(manifest.tasks[cell.task], metric),
        float(not evidence.lower_is_better(manifest, metric)),
    )
    return None if math.isnan(guess) or guess == best else (1 / (best - guess), -guess / (best - guess))


def interactions(found: Crossed) -> pandas.DataFrame:
    """Whether a variant gains more on a task than on the others: the difference of differences.

    With D_t the scaled gain over the reference variant on task t, paired by seed, it is D_t − mean of D on the other
    tasks, whose runs are independent: Welch's t, simultaneous 95 % intervals over the rows (Bonferroni) and p that
    agree with them; neither below five seeds, which Welch's t needs.  A gain is NaN if the two variants lost different
    numbers of runs to divergence.
    Columns variant, task, n, gain, others, mean, low, high, p, p_bonferroni.
    """
    rows = []
    level = evidence.ALPHA / (len(found.tasks) * (len(found.variants) - 1))
    for variant in (name for name in found.variants if name != found.reference):
        gains = {}
        for task in found.tasks:
            one, other = found.cells[variant, task], found.cells[found.reference, task]
            alike = found.diverged[one] == found.diverged[other]
            gains[task] = (found.scores[one] - found.scores[other]).dropna().to_numpy(float)[: None if alike else 0]
        for task in found.tasks:
            share = -1 / (len(found.tasks) - 1)
            groups = [gain if name == task else share * gain for name, gain in gains.items()]
            estimate = evidence.welch(groups)
            few = estimate.n < MIN_SEEDS
            low, high = (math.nan, math.nan) if few else evidence.interval(estimate, level)
            p = math.nan if few else evidence.p_value(estimate)
            own = float(gains[task].mean()) if len(gains[task]) else math.nan
            row = {"variant": variant, "task": task, "n": estimate.n, "gain": own, "others": own - estimate.mean}
            rows.append(row | {"mean": estimate.mean, "low": low, "high": high, "p": p})
    table = pandas.DataFrame(rows)
    return table.assign(p_bonferroni=evidence.bonferroni(table["p"].to_numpy(float), len(table)))


def ranks(found: Crossed) -> pandas.DataFrame:
    """Each variant's rank by mean score on every task, 1 the best, ties shared, and its mean rank, best first.

    Variants with more diverged runs on a task rank behind those with fewer; those without any score rank last.
    """
    means, columns = found.scores.mean(), {}
    for task in found.tasks:
        cells = [found.cells[variant, task] for variant in found.variants]
        keys = [(math.isnan(means[cell]), found.diverged[cell], -np.nan_to_num(means[cell])) for cell in cells]
        columns[task] = stats.rankdata([sorted(set(keys)).index(key) for key in keys])
    table = pandas.DataFrame({"variant": found.variants} | columns)
    ordered = table.assign(mean_rank=table[found.tasks].mean(axis=1)).sort_values("mean_rank", kind="stable")
    return ordered.reset_index(drop=True)


def aggregate(found: Crossed, rng: np.random.Generator) -> pandas.DataFrame | None:
    """Interquartile mean of each variant's scaled scores over all tasks and seeds (Agarwal 2021, arXiv 2108.13264).

    It is the mean of the middle half of the runs, with a 95 % interval from a bootstrap of the runs within each task.
    Columns variant, tasks, runs, iqm, low, high, diverged.  None with fewer than three tasks.
    """
    if len(found.tasks) < LEAST:
        return None
    rows = []
    for variant in found.variants:
        cells = [found.cells[variant, task] for task in found.tasks]
        groups = [found.scores[cell].dropna().to_numpy() for cell in cells]
        row: dict[str, Any] = {"variant": variant, "tasks": len(cells), "runs": sum(map(len, groups))}
        row |= {"iqm": math.nan, "low": math.nan, "high": math.nan}
        if all(len(group) for group in groups):
            row["iqm"] = float(stats.trim_mean(np.concatenate(groups), 0.25))
        if all(len(group) > 1 for group in groups):
            row["low"], row["high"] = bootstrap(groups, rng)
        rows.append(row | {"diverged": sum(found.diverged[cell] for cell in cells)})
    return pandas.DataFrame(rows)


def bootstrap(groups: list[np.ndarray], rng: np.random.Generator) -> tuple[float, float]:
    """95 % percentile interval of the interquartile mean, resampling runs within each task, widened for few runs.

    Resampled runs have an SD √((n − 1)/n) times that of new ones, and percentiles follow a normal, not t: with 3 to 8
    runs of 3 tasks the plain interval covers the truth in 82 to 93 % of studies.  So the distance of its ends from the
    mean is scaled by √(n/(n − 1)) · t / z, with n of the smallest task and t of Σ (nᵢ − 1) degrees of freedom.
    """
    drawn = [group[rng.integers(len(group), size=(RESAMPLES, len(group)))] for group in groups]
    means = stats.trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1)
    ends, middle = np.quantile(means, [0.025, 0.975]), stats.trim_mean(np.concatenate(groups), 0.25)
    n, df = min(map(len, groups)), sum(len(group) - 1 for group in groups)
    wider = math.sqrt(n / (n - 1)) * stats.t.isf(0.025, df) / stats.norm.isf(0.025)
    low, high = middle + wider * (ends - middle)
    return float(low), float(high)
