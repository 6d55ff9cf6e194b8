"""A study's margin, and the runs that collapse, that is, learn nothing: these bar *equivalent* and *negligible*."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate import formatting
from ablate.config.key_checks import fraction_of
from ablate.evidence.contrasts import Contrast
from ablate.evidence.estimates import Scored
from ablate.evidence.exact import is_solved
from ablate.evidence.scores import endpoints, is_share, lower_is_better
from ablate.formatting import SPEED
from ablate.results import naming
from ablate.results.records import MarginText, TaskFacts
from ablate.results.study import Study

PAIRS = 3  # seeds that a verdict on paired differences needs; with two, t has one degree of freedom
SEEDS = 5  # seeds that equivalent, negligible and verdicts on unpaired differences need
# Places on the way from the best run (0) to the task's yardstick (1).
MIDDLE = 0.5
LAST_TENTH = 0.9


class Margin(NamedTuple):
    """The largest difference that does not matter, in one of two units; the other one is NaN."""

    size: float = math.nan  # in the metric's unit
    steps: float = math.nan  # as a share of the training steps
    registered: bool = True  # whether it was written before any comparison existed


def margin_of(entry: MarginText | None) -> Margin:
    """The margin of a study, or an earlier one; both NaN without one."""
    if entry is None or entry.value is None:
        return Margin()
    share = fraction_of(entry.value)
    return Margin(math.nan if share else float(entry.value), share or math.nan, entry.registered)


def within(low: float, high: float, margin: float) -> bool:
    """Whether worths from `low` to `high` are within a margin, 0.02 for 2 % of the steps, in both directions.  The
    margin is symmetric in the logarithm: 1 / 1.02 − 1 < low and high < 1.02 − 1."""
    return bool(1 / (1 + margin) - 1 < low and high < margin)


def inside(row: Any) -> bool:
    """Whether a row's interval lies inside its margin; for a share of the steps, the interval of its worth."""
    if math.isfinite(row.margin):
        return bool(-row.margin < row.low and row.high < row.margin)
    return bool(within(float(row.worth_low), float(row.worth_high), row.margin_steps))


def margin_line(study: Study) -> str:
    """The margin in a sentence, with its earlier values; "" if the study never had one or is no evidence."""
    manifest = study.manifest
    entry = manifest.margin
    if not entry or naming.no_evidence(manifest):
        return ""
    parts = [f"{margin_words(entry)}, {_when(entry)}" if entry.value is not None else "none any more"]
    if math.isfinite(margin_of(entry).steps) and "exchange" not in study.beside:
        parts.append("nothing can be judged by it without step_equivalents=true")
    before = [f"{margin_words(old)} ({_when(old)})" for old in entry.earlier if old.value]
    parts += [f"earlier: {', '.join(before)}"] * bool(before)
    return f"margin: {'; '.join(parts)}"


def margin_words(entry: MarginText | None) -> str:
    """The margin of a study, or an earlier one: "±0.01", "±2 % of the training steps"; "" without one."""
    found = margin_of(entry)
    return formatting.bounds(found.size, found.steps)


def _when(entry: MarginText) -> str:
    if not entry.written:
        return "post hoc: nothing tells that it was written before the results"
    day = entry.written[:10]
    return f"registered {day}, before any result" if entry.registered else f"post hoc: written {day}, after results"


class Collapse(NamedTuple):
    """The collapsed runs in one contrast."""

    counts: tuple[tuple[int, int], ...]  # per independent group of cells: seeds with a collapsed run, and seeds
    sides: tuple[int, int]  # seeds with a collapsed run on the level's side, and on the reference's

    @property
    def seen(self) -> int:
        """Seeds with a collapsed run."""
        return sum(count for count, _ in self.counts)


def guess_of(task: TaskFacts, metric: str) -> float:
    """The score of a model without any learning: e^−c or 0 for a share, the largest yardstick c for a loss, or NaN."""
    name = metric.split("/")[-1].split("@")[0]
    known = {name: value for name, value in task.yardsticks.items() if value is not None}
    if is_share(task, metric):
        return math.exp(-known["chance"]) if "chance" in known and name == "accuracy" else 0.0
    return max(map(float, known.values()), default=math.nan) if name.startswith("loss") else math.nan


def nothing_learned(task: TaskFacts, metric: str) -> float:
    """The score below which something was learned: the loss of byte or token frequencies where it is known, else that
    of a guess."""
    frequencies = task.yardsticks.get("unigram")
    if metric.split("/")[-1] == "loss" and frequencies is not None:
        return float(frequencies)
    return guess_of(task, metric)


def collapse_of(found: Scored, contrast: Contrast) -> Collapse:
    """The collapsed runs of a contrast."""
    names = list(contrast.weights)
    collapsed = collapsed_runs(found, names)
    known = ~np.isnan(found.of(names, ranked=True))
    parts, _ = found.groups(contrast.weights)
    counts = []
    for part in parts:
        columns = [names.index(name) for name in part]
        complete = known[:, columns].all(axis=1)
        lost = collapsed[:, columns].any(axis=1) & complete
        counts.append((int(lost.sum()), int(complete.sum())))
    level, reference = ([names.index(name) for name in contrast.side(sign)] for sign in (1, -1))
    sides = int(collapsed[:, level].any(axis=1).sum()), int(collapsed[:, reference].any(axis=1).sum())
    return Collapse(tuple(counts), sides)


def collapsed_runs(found: Scored, cells: Sequence[str]) -> np.ndarray:
    """Which runs of some cells learned nothing on the task that they were trained on (seeds, cells).

    Results are scaled so that the best of these runs is 0 and the task's yardstick 1 (see `nothing_learned`).  A run
    collapsed if it lies at 0.9 or beyond and no run of its cell lies between 0.5 and 0.9: the cell splits in two.
    Diverged runs always count.  They alone count where the cells share no yardstick, the metric is a speed or a share
    of solved tasks, or no run is better than the yardstick.
    """
    diverged = np.isinf(found.of(cells, ranked=True))
    endpoint = endpoints(found.study.manifest)
    tasks = found.study.manifest.tasks
    yardsticks = {nothing_learned(tasks[found.cells[cell].task], endpoint[cell]) for cell in cells}
    measured = {found.metrics[cell] for cell in cells}
    if len(yardsticks) > 1 or measured & SPEED.keys() or any(is_solved(endpoint[cell]) for cell in cells):
        return np.asarray(diverged)
    sign = 1 if lower_is_better(found.study.manifest, endpoint[cells[0]]) else -1
    columns = [found.at[cell] for cell in cells]
    losses = sign * found.trained.to_numpy()[:, columns]  # lower is better from here on
    yardstick = sign * yardsticks.pop()
    best = np.min(losses, where=~np.isnan(losses), initial=math.inf)
    if not best < yardstick:
        return np.asarray(diverged)
    fraction_to_yardstick = (losses - best) / (yardstick - best)
    learned_nothing = fraction_to_yardstick >= LAST_TENTH
    learned_little = (fraction_to_yardstick > MIDDLE) & ~learned_nothing
    splits_in_two = ~learned_little.any(axis=0)  # by cell
    return np.asarray(diverged | (learned_nothing & splits_in_two))


def without_collapsed(found: Scored, cells: Sequence[str]) -> tuple[Scored, int]:
    """The scores without the cells' runs that diverged or collapsed, and the number of seeds with such a run."""
    collapsed = collapsed_runs(found, cells)
    lost = pandas.DataFrame(collapsed, found.values.index, cells).reindex(columns=[*found.cells], fill_value=False)
    trained = found._replace(values=found.values.mask(lost), ranked=found.ranked.mask(lost))
    return trained, int(collapsed.any(axis=1).sum())


def seen_words(collapse: Collapse) -> str:
    """How many seeds have a collapsed run; "" if none has."""
    (count, n) = max(collapse.counts)
    return f"{count} of {n} seeds collapsed" if count else ""


def within_margin(row: Any) -> str:
    """equivalent or negligible where the interval of a row lies inside its margin; else "", also below five seeds and
    where a seed collapsed.  `row.fits` judges a margin in steps at a level."""
    if row.n < SEEDS or row.collapse.seen:
        return ""
    if not (row.fits(row.alpha) if row.fits else max(abs(row.low), abs(row.high)) < row.margin):
        return ""
    return "equivalent" if row.low <= 0 <= row.high else "negligible"
