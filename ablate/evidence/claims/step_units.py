"""Differences of claims in training steps: what they are worth, and margins that are a share of the steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ablate.evidence.collapse import Fits, without_collapsed
from ablate.evidence.contrasts import Contrast
from ablate.evidence.equivalence import SEEDS, within
from ablate.evidence.estimates import Scored
from ablate.evidence.step_equivalents import Slope, Worth, shares, slopes, worth
from ablate.formatting import SPEED
from ablate.results.study import Study


def worth_of(study: Study, contrast: Contrast, found: Scored, row: Any) -> Callable[[float], Worth] | None:
    """What a difference is worth at a level of its interval; None without exchange runs that have its metric."""
    curves = _curves(study, row.metric)
    if not curves or math.isnan(row.mean):
        return None
    return lambda level: worth(study.manifest, contrast.weights, found.values, curves, row.lower_is_better, level)


def _curves(study: Study, metric: str) -> dict[str, Slope]:
    exchange = None if metric in SPEED else study.beside.get("exchange")  # steps are what they compare
    return slopes(exchange, metric) if exchange and metric in exchange.runs else {}


def fits_in_steps(study: Study, contrast: Contrast, found: Scored, row: Any, share: float) -> Fits:
    """Whether the seeds that trained, five at least, are worth less than a share of the steps at a level.

    Fieller's interval, moved by a cost to either side, has to lie within: the slope is of these seeds, too, and taken
    as known it would make false equals of every third study of which a run collapsed.
    """
    trained, _ = without_collapsed(found, list(contrast.weights))
    of_row, curves = (study.manifest, contrast.weights, trained.values), _curves(study, row.metric)

    def fits(level: float, cost: float) -> bool:
        ends = [worth(*of_row, curves, row.lower_is_better, level, move, SEEDS) for move in {cost, -cost}]
        return all(within(told.worth_low, told.worth_high, share) for told in ends)

    return fits


def outside(told: Worth, share: float) -> bool:
    """Whether all of a worth is more than a share of the steps."""
    return told.worth_low > share or told.worth_high < 1 / (1 + share) - 1


def in_units(study: Study, contrast: Contrast, row: Any, share: float) -> float:
    """A share of the steps in the metric's unit, |mean slope|·log(1 + share); NaN without exchange runs.

    Of several strata the slope is a mean by how much of the contrast is in each, as in `step_equivalents`.
    """
    curves, parts = _curves(study, row.metric), shares(study.manifest, contrast.weights)
    if not parts.keys() <= curves.keys():
        return math.nan
    slope = sum(part * float(curves[name].all.mean()) for name, part in parts.items())
    return abs(slope) * math.log1p(share)
