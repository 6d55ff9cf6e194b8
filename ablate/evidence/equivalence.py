"""A study's margin, and what an interval inside it leaves open: runs that collapse, that is, learn nothing.

A t interval does not cover failures that no seed has shown, so an interval inside the margin is not enough for
"equivalent".  With n seeds of which k have a collapsed run, the share of such seeds is below Clopper & Pearson's bound
p (1934; for k = 0: 1 − α^(1/n)), and p times the size of a collapse must fit inside the margin, too.  The size comes
from the task, never from the seeds that were seen: it is the distance from the best cell's score to a guess's.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate import formatting
from ablate.config.key_checks import fraction_of
from ablate.evidence.contrasts import Contrast
from ablate.evidence.estimates import Scored, sums
from ablate.evidence.exact import bound, is_solved
from ablate.evidence.normality import normality, rejects_normality
from ablate.evidence.scores import is_share
from ablate.evidence.statistics import Estimate, interval, paired, welch
from ablate.results import naming
from ablate.results.records import MarginText, TaskFacts
from ablate.results.study import Study

PAIRS = 3  # seeds that a verdict on paired differences needs; with two, t has one degree of freedom
SEEDS = 5  # seeds that equivalent, negligible and verdicts on unpaired differences need
Fits = Callable[[float, float], bool]
Best = Callable[[np.ndarray], Any]  # what a cell's runs reach: their median, or the least of them
COLLAPSED = 0.25  # share of the distance from the best cell to a guess beyond which a run has collapsed


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
        parts.append("without exchange runs nothing can be judged by it; step_equivalents=true adds them")
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
    sizes: tuple[float, ...]  # per group: the most that a collapse moves the contrast, in its unit; inf if unknown
    sides: tuple[int, int]  # seeds with a collapsed run on the level's side, and on the reference's
    solved: Estimate  # from the other seeds
    p_normal: float  # the p of their normality

    @property
    def seen(self) -> int:
        """Seeds with a collapsed run."""
        return sum(count for count, _ in self.counts)

    @property
    def some(self) -> bool:
        """Whether some seeds collapsed but most did not; a cell that never learns is worse, not fragile."""
        return any(self.sides) and all(2 * count < n for count, n in self.counts) and self.solved.n >= SEEDS


def guess_of(task: TaskFacts, metric: str) -> float:
    """The score of a model without any learning: e^−c or 0 for a share, the largest yardstick c for a loss, or NaN."""
    name = metric.split("/")[-1].split("@")[0]
    known = {name: value for name, value in task.yardsticks.items() if value is not None}
    if is_share(task, metric):
        return math.exp(-known["chance"]) if "chance" in known and name == "accuracy" else 0.0
    return max(map(float, known.values()), default=math.nan) if name.startswith("loss") else math.nan


def collapse_of(found: Scored, contrast: Contrast) -> Collapse:
    """The collapsed runs of a contrast: those a quarter or more of the way from its best cell to a guess."""
    names, weights = list(contrast.weights), contrast.weights
    values, collapsed, room = _collapsed_runs(found, names)
    left = np.where(collapsed, math.nan, values)
    parts, together = found.groups(weights)
    at, known = [[names.index(name) for name in part] for part in parts], ~np.isnan(values)
    sides = [int(collapsed[:, [names.index(n) for n in contrast.side(sign)]].any(1).sum()) for sign in (1, -1)]
    solved = [sums(left[:, i], part) for i, part in zip(at, parts, strict=True)]
    whole = [known[:, i].all(1) for i in at]
    lost = [collapsed[:, i].any(1) & own for i, own in zip(at, whole, strict=True)]
    counts = tuple((int(one.sum()), int(own.sum())) for one, own in zip(lost, whole, strict=True))
    sizes = tuple(room * max(sum(max(0.0, sign * w) for w in part.values()) for sign in (1, -1)) for part in parts)
    estimate = paired(solved[0]) if together else welch(solved)
    return Collapse(counts, sizes, (sides[0], sides[1]), estimate, normality(solved))


def _finite(worse: np.ndarray) -> list[np.ndarray]:
    """The finite values of each cell that has any."""
    return [column for each in worse.T if len(column := each[np.isfinite(each)])]


def spread_of(found: Scored, cells: Sequence[str]) -> float:
    """The distance from a cell's best run to its median; the median over cells, since one may have collapsed."""
    known = _finite((1 if found.lower[cells[0]] else -1) * found.of(cells))
    return float(np.median([np.median(column) - column.min() for column in known])) if known else 0.0


def without_collapsed(
    found: Scored, cells: Sequence[str], best: Best = np.median, least: float = 0.0
) -> tuple[Scored, int]:
    """The scores without the cells' runs that diverged or collapsed, and the number of seeds with such a run.  A
    collapse loses at least `least`: near a guess, a quarter of the remaining distance is within the noise of seeds."""
    _, collapsed, _ = _collapsed_runs(found, cells, best, least)
    lost = pandas.DataFrame(collapsed, found.values.index, cells).reindex(columns=[*found.cells], fill_value=False)
    trained = found._replace(values=found.values.mask(lost), ranked=found.ranked.mask(lost))
    return trained, int(collapsed.any(axis=1).sum())


def _collapsed_runs(
    found: Scored, names: Sequence[str], of: Best = np.median, least: float = 0.0
) -> tuple[np.ndarray, np.ndarray, float]:
    """The values of some cells (seeds, cells), which of them collapsed, and the distance from the best to a guess."""
    sign = 1 if found.lower[names[0]] else -1
    values = found.of(names, ranked=True)  # diverged runs count as collapsed
    if all(is_solved(found.metrics[name]) for name in names):  # the share solved counts failures itself
        return values, np.zeros_like(values, dtype=bool), 0.0
    tasks = found.study.manifest.tasks
    guesses = {guess_of(tasks[found.cells[name].task], found.metrics[name]) for name in names}
    best = min((float(of(column)) for column in _finite(sign * values)), default=math.nan)
    guess = sign * (guesses.pop() if len(guesses) == 1 else math.nan)
    room = guess - best if guess > best else math.inf
    return values, np.isinf(values) | (sign * values > best + max(COLLAPSED * room, least)), room


def bounds(collapse: Collapse, level: float) -> list[float]:
    """The upper bound of each independent group's share of collapses; `level` is split among the groups."""
    return [bound(count, n, level / len(collapse.counts)) for count, n in collapse.counts]


def cost(collapse: Collapse, level: float) -> float:
    """The most that the undetected share of collapses may move a contrast, in its metric's unit; inf if unknown."""
    return sum(share * size for share, size in zip(bounds(collapse, level), collapse.sizes, strict=True))


def bound_words(collapse: Collapse, level: float, lower_is_better: bool) -> str:
    """How many seeds trained, and the bound of the failure rate: "20 of 20 trained, failure rate < 14 %"."""
    share, (count, n) = max(zip(bounds(collapse, level), collapse.counts, strict=True))
    one, other = collapse.sides
    sides = f", {one} collapsed against {other}" * bool(collapse.seen)
    rate = f"failure rate < {ceiling(share)} %"
    return f"{n - count} of {n} {'trained' if lower_is_better else 'solved'}, {rate}{sides}"


def unseen(collapse: Collapse, level: float) -> dict[str, float]:
    """The bound of the share of collapses at a level, and how far these would move the contrast; NaN if unknown, and
    where half the seeds or more collapse: these are what the contrast compares."""
    # The share solved, whose collapses have no size, counts failures itself.
    if not any(collapse.sizes) or any(2 * count >= n for count, n in collapse.counts):
        return {"collapse_share": math.nan, "collapse_cost": math.nan}
    lost = cost(collapse, level)
    return {"collapse_share": max(bounds(collapse, level)), "collapse_cost": lost if math.isfinite(lost) else math.nan}


def unseen_line(table: pandas.DataFrame) -> str:
    """A note on the collapses that the verdicts *better* and *worse* of a table do not rule out; "" without these."""
    rows = table[table["verdict"].map(formatting.leaning).isin(["better", "worse"]) & table["collapse_share"].notna()]
    if rows.empty:
        return ""
    most = rows["collapse_share"].max()
    moved = rows.loc[rows["collapse_share"] == most, "collapse_cost"].max()
    known = math.isfinite(moved) and rows["metric"].nunique() == 1
    would = f", which would move a difference by up to {float(f'{moved:.2g}'):g}" * known
    return f"better and worse hold for these seeds: up to {ceiling(most)} % of seeds may collapse (95 %){would}"


def ceiling(share: float) -> int:
    """Per cent, rounded up so that "at most" is true."""
    return math.ceil(100 * share - 1e-9)


def condition(collapse: Collapse, level: float, fits: Fits, row: Any, margin: float) -> tuple[str, str, bool]:
    """The seeds that an interval inside a margin is limited to, the reason, and whether the seeds up to the last of
    `row.looks` may lift the limit; "", "" and False if it holds for all seeds.  fits(level, cost): whether the interval
    of that level stays inside the margin, in the metric's unit, when collapses cost that much."""
    if fits(level, cost(collapse, level)):
        return "", "", False
    last = collapse._replace(counts=tuple((count, max(n, *row.looks)) for count, n in collapse.counts))
    whom = "among seeds that trained" if row.lower_is_better else "among solved seeds"
    # At best no other seed collapses, and the interval shrinks to zero.
    return whom, bound_words(collapse, level, row.lower_is_better), cost(last, level) < margin


def seen_words(collapse: Collapse) -> str:
    """How many seeds have a collapsed run; "" if none has."""
    (count, n) = max(collapse.counts)
    return f"{count} of {n} seeds collapsed" * bool(count)


def within_margin(row: Any) -> tuple[str, str, bool] | None:
    """equivalent or negligible, perhaps "among" the seeds that did not collapse, with a note and whether more seeds may
    change it; None if neither.  `row` is one of effects with its `collapse` and, for a margin in steps, `fits` and its
    `size` in the metric's unit: see `condition`."""
    collapsed, some = row.collapse, row.collapse.some
    estimate = collapsed.solved if some else row.estimate
    low, high = interval(estimate, row.alpha)
    unfit = collapsed.p_normal if some else row.p_normal
    if rejects_normality(unfit) or (collapsed.seen and not some) or row.n < SEEDS:
        return None  # too few seeds without a collapse for a verdict of equality, or no valid interval
    fits = row.fits or (lambda _, cost: max(abs(low), abs(high)) + cost < row.margin)
    if not fits(row.alpha, 0.0):
        return None
    word = "equivalent" if low <= 0 <= high else "negligible"
    whom, why, waits = condition(collapsed, row.alpha, fits, row, row.size if row.fits else row.margin)
    why = why or seen_words(collapsed)
    others = formatting.span(estimate.mean, low, high, formatting.decimals([(high - low) / 2]))
    return f"{word} {whom}".strip(), f"{why}; the others {others}" if some else why, waits
