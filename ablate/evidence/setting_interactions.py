"""Components crossed with settings: over which cells an effect's dependence on a setting is asked, and its trend."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ablate.formatting import PER, show
from ablate.formatting.settings import is_number
from ablate.results.naming import assigned
from ablate.results.records import Cell, Manifest

TREND = 3  # levels; of two a trend is the difference between them


class Crossing(NamedTuple):
    """A setting that splits the comparison of components, with the cells of all its levels; stratum as in Contrast."""

    stratum: str
    cells: list[Cell]
    setting: str


def settings(manifest: Manifest) -> list[str]:
    """The factors with several levels that the reference says nothing about."""
    factors = manifest.factors
    return [name for name, levels in factors.items() if name not in manifest.reference and len(levels) > 1]


def crossings(manifest: Manifest) -> list[Crossing]:
    """Each setting with cells that differ in it and have one task; none where its levels are other tasks.

    Other settings are averaged over, but for those that change the task, which are told apart.
    """
    found = []
    for setting in settings(manifest):
        others = [name for name in manifest.factors if name not in manifest.reference and name != setting]
        blocks: dict[str, list[Cell]] = {}
        for cells in _alike(manifest.cells, others).values():
            if len(tasks := {cell.task for cell in cells}) == 1:
                blocks.setdefault(tasks.pop(), []).extend(cells)
        found += [Crossing(_stratum(manifest, others, cells), cells, setting) for cells in blocks.values()]
    return found


def _alike(cells: list[Cell], names: list[str]) -> dict[str, list[Cell]]:
    """Cells by their levels of these factors."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(str([cell.levels[name] for name in names]), []).append(cell)
    return found


def _stratum(manifest: Manifest, others: list[str], cells: list[Cell]) -> str:
    """What other settings are the same in all of these cells although they vary in the study."""
    fixed = [name for name in others if len(manifest.factors[name]) > 1]
    fixed = [name for name in fixed if len({show(cell.levels[name]) for cell in cells}) == 1]
    return ", ".join(assigned(manifest, name, cells[0].levels[name]) for name in fixed)


def slope(levels: list[Any]) -> tuple[np.ndarray, str] | None:
    """The weights of values at these levels whose sum is their least-squares slope, (x − x̄) / Σ(x − x̄)², and its unit.

    x is log₂ of the levels, "per doubling", where that spaces them more evenly than the levels themselves do; else x
    counts the smallest gap between two of them, "per 20 more".  None of fewer than three levels, and of no numbers.
    """
    if len(levels) < TREND or not all(map(is_number, levels)):
        return None
    values = np.array(levels, float)
    gap = float(np.diff(np.sort(values)).min())
    if not (np.isfinite(values).all() and gap > 0):
        return None
    doubling = bool((values > 0).all()) and _unevenness(np.log2(values)) < _unevenness(values)
    x = np.log2(values) if doubling else values / gap
    centred = x - x.mean()
    return centred / np.sum(centred**2), PER + ("doubling" if doubling else f"{show(gap)} more")


def _unevenness(values: np.ndarray) -> float:
    """Largest over smallest gap between neighbours, as a logarithm."""
    gaps = np.diff(np.sort(values))
    return math.log(gaps.max() / gaps.min())
