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
    """Scaled scores, seeds by (variant, task); diverged runs by (variant, task); the reference among the variants."""

    scores: pandas.DataFrame
    diverged: dict[tuple[str, str], int]
    reference: str

    @property
    def variants(self) -> list[str]:
        """The variants in the order of the plan."""
        return list(self.scores.columns.unique(0))

    @property
    def tasks(self) -> list[str]:
        """The tasks in the order of the plan."""
        return list(self.scores.columns.unique(1))


def crossed(study: Study) -> Crossed | None:
    """The study as variants by tasks, with scaled scores; None with fewer than two of either, or without yardsticks."""
    manifest = study.manifest
    by_task = task_factors(manifest)
    if not by_task:
        return None
    scores = evidence.scores(study)
    is_diverged = study.runs["status"] == "diverged"
    scaled = {}
    diverged = {}
    references = []
    for cell in manifest.cells:
        names = {name: naming.named(manifest, level, name) for name, level in cell.levels.items()}
        variant = " + ".join(text for name, text in names.items() if name not in by_task)
        task = " + ".join(names[name] for name in by_task)
        slope_and_offset = scale(manifest, cell)
        if slope_and_offset is None:
            return None
        slope, offset = slope_and_offset
        scaled[variant, task] = slope * scores[cell.id] + offset
        diverged[variant, task] = int((is_diverged & (study.runs["cell"] == cell.id)).sum())
        if cell.reference:
            references.append(variant)
    result = Crossed(pandas.DataFrame(scaled), diverged, "")
    if len(result.variants) < 2 or len(scaled) < len(result.variants) * len(result.tasks):
        return None
    return result._replace(reference=[*references, result.variants[0]][0])


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
            gain = float(gains[task].mean()) if len(gains[task]) else math.nan
            row = {"variant": variant, "task": task, "n": estimate.n, "gain": gain, "others": gain - estimate.mean}
            row |= {"mean": estimate.mean, "low": math.nan, "high": math.nan, "p": math.nan}
            if estimate.n >= MIN_SEEDS:
                row["low"], row["high"] = evidence.interval(estimate, level)
                row["p"] = evidence.p_value(estimate)
            rows.append(row)
    table = pandas.DataFrame(rows)
    return table.assign(p_bonferroni=evidence.bonferroni(table["p"].to_numpy(float), len(table)))


def gains_of(study: Crossed, variant: str, task: str) -> np.ndarray:
    """The scaled gains (seeds,) of a variant over the reference on a task; none if one of them lost more runs."""
    if study.diverged[variant, task] != study.diverged[study.reference, task]:
        return np.empty(0)
    gains: np.ndarray = (study.scores[variant, task] - study.scores[study.reference, task]).dropna().to_numpy(float)
    return gains


def ranks(study: Crossed) -> pandas.DataFrame:
    """Each variant's rank by mean score on every task, 1 the best, ties shared, and its mean rank, best first.

    Variants with more diverged runs on a task rank behind those with fewer; those without any score rank last.
    """
    means = study.scores.mean()
    table = pandas.DataFrame({"variant": study.variants})
    for task in study.tasks:
        keys = []
        for variant in study.variants:
            mean = means[variant, task]
            keys.append((math.isnan(mean), study.diverged[variant, task], -np.nan_to_num(mean)))
        order = sorted(set(keys))
        table[task] = stats.rankdata([order.index(key) for key in keys])
    table["mean_rank"] = table[study.tasks].mean(axis=1)
    return table.sort_values("mean_rank", kind="stable", ignore_index=True)
