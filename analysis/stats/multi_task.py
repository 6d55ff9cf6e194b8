"""Several tasks in one study: whether an effect depends on the task, and ranks.

Scores are put on a common scale from 0, guessing, to 1, perfect.  With g the score of a guess (0 for a share without a
yardstick; see evidence.collapse.score_of_a_guess), this is (g − loss) / g for a loss, and (share − g) / (1 − g) for a
share.  Both ends are constants of the task, so the scale does not depend on the runs.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas
from scipy import stats

from ablate import evidence
from ablate.evidence.collapse import score_of_a_guess
from ablate.evidence.verdicts import MIN_SEEDS
from ablate.runs import naming
from ablate.runs.records import Cell, Manifest
from ablate.runs.study import Study


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
    cells: dict[tuple[str, str], str] = {}
    scores = evidence.scores(study)
    scaled = {}
    reference = ""
    for cell in manifest.cells:
        names = {name: naming.named(manifest, level, name) for name, level in cell.levels.items()}
        variant = " + ".join(text for name, text in names.items() if name not in by_task)
        task = " + ".join(names[name] for name in by_task)
        cells[variant, task] = cell.id
        if cell.reference and not reference:
            reference = variant
        slope_and_offset = scale(manifest, cell)
        if slope_and_offset is None:
            return None
        slope, offset = slope_and_offset
        scaled[cell.id] = slope * scores[cell.id] + offset
    variants = list(dict.fromkeys(variant for variant, _ in cells))
    tasks = list(dict.fromkeys(task for _, task in cells))
    if not by_task or len(variants) < 2 or len(cells) < len(variants) * len(tasks):
        return None
    lost = study.runs.loc[study.runs["status"] == "diverged", "cell"].value_counts()
    diverged = {cell: int(lost.get(cell, 0)) for cell in scaled}
    return Crossed(variants, tasks, cells, pandas.DataFrame(scaled), reference or variants[0], diverged)


def task_factors(manifest: Manifest) -> list[str]:
    """The factors that change the task between cells that differ in nothing else."""
    factors = []
    for name in manifest.factors:
        tasks: dict[str, set[str]] = {}
        for cell in manifest.cells:
            others = [level for factor, level in cell.levels.items() if factor != name]
            tasks.setdefault(str(others), set()).add(cell.task)
        if any(len(names) > 1 for names in tasks.values()):
            factors.append(name)
    return factors


def scale(manifest: Manifest, cell: Cell) -> tuple[float, float] | None:
    """Slope and offset that map a cell's scores to 0 for guessing and 1 for perfect; None without a yardstick."""
    metric = evidence.endpoints(manifest)[cell.id]
    guess = score_of_a_guess(manifest.tasks[cell.task], metric)
    best = 0.0 if evidence.lower_is_better(manifest, metric) else 1.0
    if math.isnan(guess) or guess == best:
        return None
    return 1 / (best - guess), -guess / (best - guess)


def interactions(study: Crossed) -> pandas.DataFrame:
    """Whether a variant gains more on a task than on the others: the difference of differences.

    With D_t the scaled gain over the reference variant on task t, paired by seed, it is D_t − mean of D on the other
    tasks, whose runs are independent: Welch's t, simultaneous 95 % intervals over the rows (Bonferroni) and p that
    agree with them; neither below five seeds, which Welch's t needs.  A gain is NaN if the two variants lost different
    numbers of runs to divergence.
    Columns variant, task, n, gain, others, mean, low, high, p, p_bonferroni.
    """
    rows = []
    level = evidence.ALPHA / (len(study.tasks) * (len(study.variants) - 1))
    weight_of_others = -1 / (len(study.tasks) - 1)
    for variant in study.variants:
        if variant == study.reference:
            continue
        gains = {task: gains_of(study, variant, task) for task in study.tasks}
        for task in study.tasks:
            groups = [values if name == task else weight_of_others * values for name, values in gains.items()]
            estimate = evidence.welch(groups)
            low = math.nan
            high = math.nan
            p = math.nan
            if estimate.n >= MIN_SEEDS:
                low, high = evidence.interval(estimate, level)
                p = evidence.p_value(estimate)
            gain = float(gains[task].mean()) if len(gains[task]) else math.nan
            row = {"variant": variant, "task": task, "n": estimate.n, "gain": gain, "others": gain - estimate.mean}
            rows.append(row | {"mean": estimate.mean, "low": low, "high": high, "p": p})
    table = pandas.DataFrame(rows)
    return table.assign(p_bonferroni=evidence.bonferroni(table["p"].to_numpy(float), len(table)))


def gains_of(study: Crossed, variant: str, task: str) -> np.ndarray:
    """The scaled gains (seeds,) of a variant over the reference on a task; none if one of them lost more runs."""
    cell = study.cells[variant, task]
    reference_cell = study.cells[study.reference, task]
    if study.diverged[cell] != study.diverged[reference_cell]:
        return np.empty(0)
    gains: np.ndarray = (study.scores[cell] - study.scores[reference_cell]).dropna().to_numpy(float)
    return gains


def ranks(study: Crossed) -> pandas.DataFrame:
    """Each variant's rank by mean score on every task, 1 the best, ties shared, and its mean rank, best first.

    Variants with more diverged runs on a task rank behind those with fewer; those without any score rank last.
    """
    means = study.scores.mean()
    columns = {}
    for task in study.tasks:
        keys = []
        for variant in study.variants:
            cell = study.cells[variant, task]
            keys.append((math.isnan(means[cell]), study.diverged[cell], -np.nan_to_num(means[cell])))
        order = sorted(set(keys))
        columns[task] = stats.rankdata([order.index(key) for key in keys])
    table = pandas.DataFrame({"variant": study.variants} | columns)
    ordered = table.assign(mean_rank=table[study.tasks].mean(axis=1)).sort_values("mean_rank", kind="stable")
    return ordered.reset_index(drop=True)
