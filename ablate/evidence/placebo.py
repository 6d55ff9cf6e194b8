"""How large a difference noise alone makes, from placebo runs, and how many seeds a given difference needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas
from scipy import stats

from ablate.evidence import words
from ablate.evidence.runs import endpoint, scores
from ablate.evidence.statistics import power
from ablate.evidence.verdicts import ALPHA
from ablate.results import Study

KEY = "seed.placebo"
SOURCES = {"data": "data order", "init": "initialisation", "chaos": "chaos"}
POWER = 0.8
MOST = 10_000  # seeds; what needs more is out of reach


class Floor(NamedTuple):
    """Differences placebo − reference of one kind: how many, their SD over seeds, its one-sided 95 % upper bound."""

    kind: str
    n: int
    sd: float
    upper: float


def floors(study: Study, metric: str | None = None) -> list[Floor]:
    """A row per kind of placebo, over the seeds in which it and the reference ended with a number.

    The upper bound is sd · √((n − 1) / χ²_{.05, n − 1}), which takes differences to be normal.
    """
    values = scores(study, metric or endpoint(study.manifest))
    cells = {cell["levels"][KEY]: cell["id"] for cell in study.manifest["cells"]}
    plain = values[cells[None]]
    return [_floor(kind, (values[cell] - plain).dropna().to_numpy()) for kind, cell in cells.items() if kind]


def _floor(kind: str, differences: np.ndarray) -> Floor:
    n = len(differences)
    if n < 2:
        return Floor(kind, n, math.nan, math.nan)
    sd = float(np.std(differences, ddof=1))
    return Floor(kind, n, sd, sd * math.sqrt((n - 1) / float(stats.chi2.ppf(0.05, n - 1))))


def split(found: Iterable[Floor]) -> dict[str, float]:
    """SD of a single run by source, SD(difference) / √2: data order, initialisation, chaos.

    Assumed: a run is its cell's mean plus a term for each source, terms independent of each other, so that changing one
    source leaves the difference of two such terms.  A change of data order or initialisation sets off chaos as well:
    their numbers contain it.
    """
    return {row.kind: row.sd / math.sqrt(2) for row in found if row.kind in SOURCES}


def seeds_needed(difference: float, sd: float, alpha: float) -> int | None:
    """The fewest paired seeds that find a difference with 80 % power at a two-sided level; None: more than 10,000."""
    low, high = 1, 2  # too few, and perhaps enough: power grows with seeds
    while power(abs(difference) / sd, high, alpha) < POWER:
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(abs(difference) / sd, middle, alpha) >= POWER else (middle, high)
    return high


def round_differences(effects: Iterable[float], floor: float) -> list[float]:
    """Two or three round sizes (1, 2 or 5 times a power of ten) near the effects seen, the largest first.

    Without effects, near `floor`; at least two sizes, so that one sees what half as large a difference costs.
    """
    seen = [abs(effect) for effect in effects if math.isfinite(effect) and effect]
    sizes = sorted({_round(size) for size in seen or [floor]}, reverse=True)
    sizes = [sizes[0], sizes[len(sizes) // 2], sizes[-1]] if len(sizes) > 3 else sizes
    return sizes if len(sizes) > 1 else [sizes[0], _round(sizes[0] / 2)]


def _round(size: float) -> float:
    base = 10.0 ** math.floor(math.log10(size))
    return float(f"{min((1, 2, 5, 10), key=lambda m: abs(math.log(size / (m * base)))) * base:.3g}")


def placebo_lines(table: pandas.DataFrame, placebos: Study) -> list[str]:
    """What a study's placebos say: the differences that noise makes, by kind; its sources; seeds for round differences.

    `table` holds the effects of the study that they belong to.  Seeds are counted at the largest upper bound among the
    kinds of the components that are studied (chaos where nothing of them is drawn), at the level of the family.
    """
    found = floors(placebos)
    known = [row for row in found if math.isfinite(row.sd)]
    reference = next(cell for cell in placebos.manifest["cells"] if cell["levels"][KEY] is None)
    head = f"placebos (aa={len(placebos.manifest['seeds'])}, {reference['label']})"
    if not known:
        return [f"{head}: too few ended to say anything"]
    if not any(row.sd for row in known):
        return [f"{head}: no placebo moved anything, so that every difference is a real one"]
    own = [row for row in known if row.kind not in SOURCES] or [row for row in known if row.kind == "chaos"] or known
    places = words.decimals([row.sd for row in known])
    parts = [f"{_words(row.kind)} {_spread(row, places, row is own[0])}" for row in own]
    lines = [f"{head}: pure noise makes differences of SD {', '.join(parts)}"]
    sources = [f"{SOURCES[kind]} {words.number(sd, places)}" for kind, sd in split(known).items()]
    lines.append(f"a run's own SD by source, chaos in each: {', '.join(sources)}")
    return lines + _needed(table, max(row.upper for row in own))


def _spread(row: Floor, places: int, first: bool) -> str:
    n = f", n = {row.n}" if row.n < 3 else ""
    return f"{words.number(row.sd, places)} ({'95 % upper bound ' * first}{words.number(row.upper, places)}{n})"


def _words(kind: str) -> str:
    return SOURCES.get(kind, f"{kind} drawn anew")


def _needed(table: pandas.DataFrame, upper: float) -> list[str]:
    family = table[table["family"].astype(bool)] if len(table) else table
    if not upper:
        return []
    alpha, main = ALPHA / max(1, len(family)), family[family["kind"] == "main"] if len(family) else family
    sizes = round_differences(list(main["mean"].astype(float)) if len(main) else [], upper)
    parts = []
    for i, size in enumerate(sizes):
        n = seeds_needed(size, upper, alpha)
        count = f"more than {MOST:,}" if n is None else str(n)
        parts.append(f"{_size(size)} {'needs at least ' * (i == 0)}{count}{' seeds' * (i == 0)}")
    return [f"a difference between two cells of {', of '.join(parts)} (80 % power, at that upper bound)"]


def _size(size: float) -> str:
    text = f"{size:.10f}".rstrip("0").rstrip(".")
    return text[1:] if text.startswith("0.") else text
