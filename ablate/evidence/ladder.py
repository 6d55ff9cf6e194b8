"""What a change is worth at each size of design=ladder, and how that depends on compute.

At each rung the reference of that size is trained for other numbers of steps, which gives what a change is worth in
steps there (see `worth`).  Training compute is C = 3 · forward FLOPs per token · tokens, head included; with `cost`,
the change's compute for the same tokens over the reference's, its multiplier (1 + worth) / cost says how many times the
change's own compute the reference needs.  The trend is the least-squares slope of log(1 + worth) per tenfold compute.
Its ends combine those of the rungs, which are independent (MOVER, Zou and Donner 2008): with weights w, points g and
ends l and u of log(1 + worth),

    low = Σ w·g − √(Σ (w·(g − (l if w > 0 else u)))²),    high = Σ w·g + √(Σ (w·(g − (u if w > 0 else l)))²).

Intervals hold together for all worths and trends of a study.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas

from ablate.config.ladder import RUNG, number_of
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.estimates import Comparison, compare
from ablate.evidence.families import ALPHA
from ablate.evidence.scores import StudyScores, study_scores
from ablate.evidence.verdicts import MIN_PAIRS, no_verdict
from ablate.evidence.worth import WORTH, Curves, Worth, curves_of, worth, worth_words
from ablate.formatting import columns, ends, listed, number, span
from ablate.runs.records import Cell, Manifest
from ablate.runs.study import Study
from ablate.runs.tables import named_rows

COLUMNS = ["label", "rung", "cell", "n", "compute", "cost", *WORTH, "multiplier", "low", "high", "alpha"]
COLUMNS += ["trend", "trend_low", "trend_high", "why", "rates"]


@dataclass(frozen=True)
class Rung:
    """A change at one rung."""

    cell: Cell
    contrast: Contrast
    compute: float  # of the reference
    cost: float  # the change's compute / the reference's
    comparison: Comparison  # with the reference

    @property
    def number(self) -> int:
        """From 1, the smallest."""
        return number_of(self.cell.levels[RUNG]) or 0


def changes_of(study: Study, scores: StudyScores) -> tuple[dict[str, list[Rung]], dict[str, list[Contrast]]]:
    """By label the changes of a ladder at its rungs, and their contrasts at other learning rates."""
    rungs: dict[str, list[Rung]] = {}
    rates: dict[str, list[Contrast]] = {}
    for contrast in contrasts(study.manifest):
        label = contrast.label_in_any_stratum
        cell = scores.cells[next(iter(contrast.side(1)))]
        reference = scores.cells[next(iter(contrast.side(-1)))]
        if number_of(cell.levels[RUNG]) is None:
            rates.setdefault(label, []).append(contrast)
            continue
        cost = cell.training_flops / reference.training_flops
        rungs.setdefault(label, []).append(
            Rung(cell, contrast, reference.training_flops, cost, compare(scores, contrast))
        )
    return rungs, rates


def worth_at(scores: StudyScores, curves: Curves, rung: Rung, alpha: float) -> Worth:
    """What a change is worth at a rung, in steps; with the reason if it has no valid difference there."""
    if reason := no_verdict(rung.comparison):
        return Worth(worth_note=reason.note)
    return worth(scores, rung.contrast.weights, curves, alpha)


def ladder(study: Study, metric: str | None = None) -> pandas.DataFrame:
    """A row per change and rung: its worth, with the trend over rungs, repeated in each of its rows.

    `worth` is in steps, as in `effects`; `multiplier`, `low`, `high` are in compute, `compute` is the reference's, and
    `cost` the change's as a multiple of it.  `trend` is the change of log(1 + worth) per tenfold compute; `why` says
    why there is none, `rates` where another learning rate than the carried one is better.  Empty for another design.
    """
    if study.manifest.design != "ladder":
        return pandas.DataFrame(columns=COLUMNS)
    scores = study_scores(study, metric)
    changes, rates = changes_of(study, scores)
    alpha = ALPHA / sum(len(rungs) + 1 for rungs in changes.values())
    rows = []
    for label, rungs in changes.items():
        curves = curves_of(study, rungs[0].comparison.metric)
        worths = [worth_at(scores, curves, rung, alpha) for rung in rungs]
        common = {"label": label, "alpha": alpha, "rates": rate_problem(scores, rates[label])}
        common |= trend_columns(rungs, worths)
        for rung, known_worth in zip(rungs, worths, strict=True):
            row = common | {"rung": rung.number, "cell": rung.cell.id, "n": rung.comparison.n}
            row |= {"compute": rung.compute, "cost": rung.cost} | vars(known_worth)
            row |= dict(zip(("multiplier", "low", "high"), in_compute(known_worth, rung.cost), strict=True))
            rows.append(row)
    return pandas.DataFrame(rows, columns=COLUMNS)


def in_compute(worth: Worth, cost: float) -> tuple[float, float, float]:
    """The compute multiplier (1 + worth) / cost with its interval; ends beyond what was trained are 0 and inf."""
    return (1 + worth.worth) / cost, (1 + worth.worth_low) / cost, (1 + worth.worth_high) / cost


def trend_columns(rungs: Sequence[Rung], worths: Sequence[Worth]) -> dict[str, Any]:
    """The trend of a change with its interval, or why there is none."""
    for rung, one in zip(rungs, worths, strict=True):
        if math.isnan(one.worth):
            return {"why": f"rung {rung.number}: {one.worth_note}"}
        if one.worth_low == -1 or one.worth_high == math.inf:
            return {"why": f"rung {rung.number}: its worth is not bounded"}
    points = np.log1p([one.worth for one in worths])
    lows = np.log1p([one.worth_low for one in worths])
    highs = np.log1p([one.worth_high for one in worths])
    trend, low, high = trend_of(np.log10([rung.compute for rung in rungs]), points, lows, highs)
    return {"trend": trend, "trend_low": low, "trend_high": high, "why": ""}


def trend_of(x: np.ndarray, points: np.ndarray, lows: np.ndarray, highs: np.ndarray) -> tuple[float, float, float]:
    """The least-squares slope of independent points over x, with an interval from those of the points (MOVER)."""
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    slope = float(weights @ points)
    down = weights * (points - np.where(weights > 0, lows, highs))
    up = weights * (np.where(weights > 0, highs, lows) - points)
    return slope, slope - float(np.linalg.norm(down)), slope + float(np.linalg.norm(up))


def rung_of(study: Study, cell: str, metric: str | None = None) -> tuple[StudyScores, Rung, str]:
    """The scores of a ladder, the change that a cell is, and what is wrong with the change's learning rate, if
    anything."""
    scores = study_scores(study, metric)
    changes, rates = changes_of(study, scores)
    for label, rungs in changes.items():
        for rung in rungs:
            if rung.cell.id == cell:
                return scores, rung, rate_problem(scores, rates[label])
    raise KeyError(cell)


def rate_problem(scores: StudyScores, rates: list[Contrast]) -> str:
    """The cells for which another learning rate is better than the carried one, by more than one standard error or
    since fewer runs diverge, or the first with too few runs to tell; "" if there are none."""
    better: dict[str, list[str]] = {}
    for contrast in rates:
        for name in contrast.weights:
            cell = scores.cells[name]
            rung, _, rate = str(cell.levels[RUNG]).partition(" at ")
            levels_at_carried = {**cell.levels, RUNG: int(rung)}
            carried = next(other for other in scores.cells.values() if other.levels == levels_at_carried)
            change = compare(scores, replace(contrast, weights={name: 1.0, carried.id: -1.0}))
            if change.lower + change.higher + change.tied < MIN_PAIRS:
                return f"too few runs at {rate}: {carried.label}"
            gain = -change.estimate.mean if change.lower_is_better else change.estimate.mean
            more_diverged = change.diverged - change.diverged_reference
            if more_diverged < 0 or (more_diverged == 0 and gain > change.estimate.error):
                where = f"better at {rate} (optim.lr={cell.planned_config.optim.lr:g} there)"
                better.setdefault(where, []).append(carried.label)
    return "; ".join(f"{where}: {listed(dict.fromkeys(labels))}" for where, labels in better.items())


def ladder_lines(table: pandas.DataFrame) -> list[str]:
    """What each change is worth at each rung, with its trend, the slope of log(1 + worth); [] for another design and
    where nothing has a worth."""
    changes = [list(named_rows(rows)) for _, rows in table.groupby("label", sort=False)]
    if not changes or table["worth"].isna().all():
        return []
    lines = [["", *(f"rung {row.rung}" for row in changes[0]), "trend per tenfold compute", ""]]
    for rows in changes:
        first = rows[0]
        trend = span(first.trend, first.trend_low, first.trend_high, 2)
        notes = "; ".join(filter(None, [first.why, first.rates]))
        lines.append([first.label, *(rung_words(row) for row in rows), trend, notes])
    heading = "worth in training steps of the reference at each rung, simultaneous 95 % intervals"
    return [heading, *(f"  {line}" for line in columns(lines))]


def rung_words(row: Any) -> str:
    """A rung's worth: "+40 % [+28, +59]"; "–" where it is not known."""
    return worth_words(row, "").removeprefix("worth ") or "–"


def reference_rungs(manifest: Manifest) -> list[Cell]:
    """The reference's cells on a ladder, from the lowest rung; [] for another design."""
    return [cell for cell in manifest.cells if cell.reference and number_of(cell.levels.get(RUNG))]


def rung_lines(manifest: Manifest) -> list[str]:
    """What the rungs are, from the lowest, each with its compute over that of the one below; [] for another design."""
    shapes = []
    before = 0.0
    for cell in reference_rungs(manifest):
        config = cell.planned_config
        compute = cell.training_flops
        shape = f"{config.model.layers} × {config.model.dim}, {config.train.steps:,} × {config.train.batch_size}"
        shapes.append(shape + (f", compute ×{number(compute / before, 1)}" if before else f", {compute:.1e} FLOPs"))
        before = compute
    return [f"rungs (layers × width, steps × batch): {'; '.join(shapes)}"] if shapes else []


def times(row: Any, name: str = "multiplier", low: str = "low", high: str = "high") -> str:
    """A multiplier with its interval: "×1.21 [1.08, 1.36]"; "at least ×1.58" where it is not bounded."""
    value, least, most = (float(getattr(row, column)) for column in (name, low, high))
    if math.isnan(value):
        return "–"
    if value == math.inf:
        return f"at least ×{number(least, 2)}"
    if value == 0:
        return f"at most ×{number(most, 2)}"
    return f"×{number(value, 2)} [{ends(least, most, 2)}]"
