"""The contrasts that a design can estimate: main effects, interactions, trends, steps, cells against the reference."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.formatting import PER, grouped, is_number, show
from ablate.results.naming import assigned, named
from ablate.results.records import Cell, Manifest

NAMES = ["kind", "factor", "level", "reference", "stratum", "label"]
TREND = 3  # levels that a trend needs: with two it is their difference
Levels = dict[str, Any]
Weights = dict[str, float]
Corner = tuple[Any, ...]  # a level of each of some factors


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of cells whose weights sum to zero; cells with positive weights are the side of `level`.

    kind is `main`, `interaction`, `trend`, `step` or `cell`; weights map cell ids to numbers; stratum is "" or text
    such as "optim.lr=0.001"; corners, of a claim only, are the cells of both sides at each of two places.  factor,
    level and reference hold keys (labels for a `cell`); stratum and label are text for display, with the user's labels.
    """

    kind: str
    factor: str
    level: str
    reference: str
    stratum: str
    label: str
    weights: dict[str, float]
    corners: tuple[list[str], ...] = ()

    def side(self, sign: int) -> dict[str, float]:
        """The absolute weights of one side: +1 for the level, −1 for the reference."""
        return {cell: abs(weight) for cell, weight in self.weights.items() if weight * sign > 0}


def contrasts(manifest: Manifest) -> list[Contrast]:
    """Every contrast that a study's design can estimate, within each stratum of the factors that are not compared.

    grid: main effects and two-way interactions, then cells against the reference, then the dependence of
    each main effect on each setting that defines strata; one at a time, leave one out: each changed cell against the
    reference; cumulative: each step against the one before, then the last against the first.
    """
    found = ESTIMABLE[manifest.design]
    within = [contrast for stratum in strata(manifest) for contrast in found(manifest, *stratum)]
    return [*within, *(_with_settings(manifest) if found is _factorial else ())]


def strata(manifest: Manifest) -> list[tuple[str, list[Cell]]]:
    """The name and the cells of each combination of the factors for which the reference names no level."""
    outside = [factor for factor in manifest.factors if factor not in manifest.reference]
    names = [", ".join(assigned(manifest, name, cell.levels[name]) for name in outside) for cell in manifest.cells]
    return list(grouped(zip(names, manifest.cells, strict=True)).items())


def changes(manifest: Manifest) -> dict[str, tuple[str, Any]]:
    """By cell, the factor that the design changes there, and its level, unless a cell changes none or several."""
    return {cell: change for _, cells in strata(manifest) for cell, change in _changes(manifest, cells).items()}


def _changes(manifest: Manifest, cells: list[Cell]) -> dict[str, tuple[str, Any]]:
    ordered, found = _ordered(manifest, cells), {}
    base = next((cell for cell in ordered if cell.reference), None)
    for i, cell in enumerate(ordered):
        before = ordered[max(0, i - 1)] if manifest.design == "cumulative" else base
        differ = [name for name, level in cell.levels.items() if before and before.levels[name] != level]
        if len(differ) == 1:
            found[cell.id] = (differ[0], cell.levels[differ[0]])
    return found


def _ordered(manifest: Manifest, cells: list[Cell]) -> list[Cell]:
    factors = manifest.factors
    return sorted(cells, key=lambda cell: sum(factors[name].index(level) for name, level in cell.levels.items()))


def _factorial(manifest: Manifest, stratum: str, cells: list[Cell]) -> Iterator[Contrast]:
    """Main effects and two-way interactions, then single cells.

    With cell means μ and reference levels a₀, b₀: the main effect of a is μ_a − μ_a₀, averaged over the cells with
    these levels; the interaction of a and b is (μ_ab − μ_a₀b) − (μ_ab₀ − μ_a₀b₀).  One that cells which
    are missing mix with a main effect is left out.
    """
    reference = manifest.reference
    factors = {name: levels for name, levels in manifest.factors.items() if name in reference}
    others = {name: [level for level in levels if level != reference[name]] for name, levels in factors.items()}
    own = {cell.id: cell.levels for cell in cells}
    for names in [*itertools.combinations(factors, 1), *itertools.combinations(factors, 2)]:
        corners, base = corners_of(own, names), _key(reference, names)
        for levels in itertools.product(*(others[name] for name in names)):
            weights = _weights(corners, _key(dict(zip(names, levels, strict=True)), names), base)
            if weights and _free_of_main_effects(own, weights, [name for name in factors if names != (name,)]):
                several = any(len(others[name]) > 1 for name in names)
                yield _effect(manifest, names, levels, stratum, several, weights)
    if len(factors) > 1:
        yield from _cells(cells, stratum)


def bases(manifest: Manifest) -> Levels:
    """The base level of each factor: the reference's level, or the first one of a setting."""
    return {name: manifest.reference.get(name, levels[0]) for name, levels in manifest.factors.items()}


def _with_settings(manifest: Manifest) -> Iterator[Contrast]:
    """How each main effect depends on each setting: (μ_as − μ_a₀s) − (μ_as₀ − μ_a₀s₀), and its trend over numbers.

    s₀ is the setting's first level.  Other components are averaged over, and so are other settings of the same task.
    Three-way interactions are left out.
    """
    full = dataclasses.replace(manifest, reference=bases(manifest))
    for stratum, cells, setting in crossings(manifest):
        own = {cell.id: cell.levels for cell in cells}
        for factor, first in manifest.reference.items():
            names, changed = (factor, setting), [each for each in manifest.factors[factor] if each != first]
            corners, base = corners_of(own, names), _key(full.reference, names)
            rest = [each for each in manifest.factors[setting] if each != full.reference[setting]]
            for pair in itertools.product(changed, rest):
                weights = _weights(corners, _key(dict(zip(names, pair, strict=True)), names), base)
                if weights and _free_of_main_effects(own, weights, list(manifest.factors)):
                    yield _effect(full, names, pair, stratum, len(changed) * len(rest) > 1, weights)
            for level in changed:
                yield from _trend(full, names, level, stratum, own)


def _trend(
    manifest: Manifest, names: tuple[str, str], level: Any, stratum: str, own: dict[str, Levels]
) -> Iterator[Contrast]:
    """The slope of a factor's effect over a setting's levels, if these are numbers and every level has cells."""
    factor, setting = names
    first, values = manifest.reference[factor], manifest.factors[setting]
    trend, corners, weights = slope(values), corners_of(own, names), dict[str, float]()
    if trend is None:
        return
    for value, part in zip(values, trend[0], strict=True):
        sides = [corners.get(_key({factor: each, setting: value}, names), []) for each in (level, first)]
        if not all(sides):
            return
        weights |= {cell: sign * part / len(side) for sign, side in zip((1, -1), sides, strict=True) for cell in side}
    weights = {cell: weight for cell, weight in weights.items() if abs(weight) > 1e-12}
    if _free_of_main_effects(own, weights, list(manifest.factors)):
        keys = " x ".join(names), f"{show(level)}, {trend[1]}", show(first)
        label = f"{' × '.join(named(manifest, each) for each in names)}: {show(level)}, {trend[1]}"
        if manifest.shown:
            label = f"{assigned(manifest, factor, level)} × {named(manifest, setting)}, {trend[1]}"
        yield Contrast("trend", *keys, stratum, label + _at(stratum), weights)


def _at(stratum: str) -> str:
    return f" at {stratum}" * bool(stratum)


def corners_of(own: dict[str, Levels], names: tuple[str, ...]) -> dict[Corner, list[str]]:
    """The cells at each combination of levels of these factors, given the levels of every cell."""
    return grouped((_key(levels, names), cell) for cell, levels in own.items())


def _key(levels: Levels, names: tuple[str, ...]) -> Corner:
    return tuple(tuple(levels[name]) if isinstance(levels[name], list) else levels[name] for name in names)


def _weights(corners: dict[Corner, list[str]], changed: Corner, base: Corner) -> Weights:
    """Weights of a corner's cells: (−1)^(number of factors at their base) / number of cells; empty if any has none."""
    signed: dict[float, list[list[str]]] = {1.0: [], -1.0: []}
    for ups in itertools.product((True, False), repeat=len(changed)):
        corner = corners.get(tuple(new if up else old for new, old, up in zip(changed, base, ups, strict=True)))
        if not corner:
            return {}
        signed[(-1.0) ** ups.count(False)].append(corner)
    return {cell: sign / len(corner) for sign, found in signed.items() for corner in found for cell in corner}


def _free_of_main_effects(own: dict[str, Levels], weights: dict[str, float], factors: list[str]) -> bool:
    """Whether a contrast is free of main effects of these factors: the weights of each level's cells sum to zero."""
    own = {cell: own[cell] for cell in weights}
    sums = (sum(weights[cell] for cell in each) for name in factors for each in corners_of(own, (name,)).values())
    return not any(abs(total) > 1e-9 for total in sums)


def _effect(
    manifest: Manifest, names: tuple[str, ...], levels: tuple[Any, ...], stratum: str, several: bool, weights: Weights
) -> Contrast:
    base, where = [manifest.reference[name] for name in names], _at(stratum)
    keys = " x ".join(names), ", ".join(map(show, levels)), ", ".join(map(show, base))
    factor = " × ".join(named(manifest, name) for name in names)
    if len(names) == 1:
        level, other = (named(manifest, those[0], *names) for those in (levels, base))
        return Contrast("main", *keys, stratum, f"{factor}: {level} − {other}{where}", weights)
    label = factor + f": {keys[1]}" * several
    if manifest.shown:  # RMSNorm × learning rate 1e-3
        label = " × ".join(assigned(manifest, *each) for each in zip(names, levels, strict=True))
    return Contrast("interaction", *keys, stratum, label + where, weights)


def _cells(cells: list[Cell], stratum: str) -> Iterator[Contrast]:
    reference = next((cell for cell in cells if cell.reference), None)
    for cell in cells:
        if reference and cell is not reference:
            label = f"{cell.label} against {reference.label}{_at(stratum)}"
            weights = {cell.id: 1.0, reference.id: -1.0}
            yield Contrast("cell", "", cell.label, reference.label, stratum, label, weights)


def _changed(manifest: Manifest, stratum: str, cells: list[Cell]) -> Iterator[Contrast]:
    base, found = next((cell for cell in cells if cell.reference), None), _changes(manifest, cells)
    for cell in cells:
        if base and cell.id in found:
            name, level = found[cell.id]
            yield _effect(manifest, (name,), (level,), stratum, True, {cell.id: 1.0, base.id: -1.0})


def _steps(manifest: Manifest, stratum: str, cells: list[Cell]) -> Iterator[Contrast]:
    """Each cell against the one before it and, if there are several steps, the last against the first."""
    found, ordered, where = _changes(manifest, cells), _ordered(manifest, cells), _at(stratum)
    for i, (before, cell) in enumerate(itertools.pairwise(ordered)):
        name, level = found[cell.id]
        after = before.label.removeprefix("+ ") if i else "the first values"
        label = f"+ {cell.label.removeprefix('+ ')} (after {after}){where}"
        reference, weights = show(before.levels[name]), {cell.id: 1.0, before.id: -1.0}
        yield Contrast("step", name, show(level), reference, stratum, label, weights)
    if len(ordered) > 2:
        first, *_, last = ordered
        label = f"all steps together against {first.label}{where}"
        yield Contrast("cell", "", last.label, first.label, stratum, label, {last.id: 1.0, first.id: -1.0})


ESTIMABLE: dict[str, Callable[[Manifest, str, list[Cell]], Iterator[Contrast]]] = {
    "grid": _factorial,
    "one_at_a_time": _changed,
    "leave_one_out": _changed,
    "ladder": _changed,
    "cumulative": _steps,
}


def crossings(manifest: Manifest) -> Iterator[tuple[str, list[Cell], str]]:
    """Stratum, cells and name of each setting that varies among cells of one task.  Other settings are averaged over,
    except those that change the task, which are kept separate."""
    outside = [name for name in manifest.factors if name not in manifest.reference]
    for setting in (name for name in outside if len(manifest.factors[name]) > 1):
        others = [name for name in outside if name != setting]
        alike = grouped((str([cell.levels[name] for name in others]), cell) for cell in manifest.cells).values()
        of_one_task = [cells for cells in alike if len({cell.task for cell in cells}) == 1]
        blocks = grouped((cell.task, cell) for cells in of_one_task for cell in cells)
        varied = [name for name in others if len(manifest.factors[name]) > 1]
        for cells in blocks.values():
            fixed = [name for name in varied if len({show(cell.levels[name]) for cell in cells}) == 1]
            stratum = ", ".join(assigned(manifest, name, cells[0].levels[name]) for name in fixed)
            yield stratum, cells, setting


def slope(levels: list[Any]) -> tuple[np.ndarray, str] | None:
    """The weights that give the least-squares slope of values at these levels, (x − x̄) / Σ(x − x̄)², and its unit.

    x is log₂ of the levels, "per doubling", if these are more evenly spaced than the levels; else x is the levels in
    units of their smallest gap, "per 20 more".  None for fewer than three levels, or if any is not a number.
    """
    if len(levels) < TREND or not all(map(is_number, levels)):
        return None
    values = np.array(levels, float)
    gap = float(np.diff(np.sort(values)).min())
    if not (np.isfinite(values).all() and gap > 0):
        return None

    def unevenness(values: np.ndarray) -> float:
        gaps = np.diff(np.sort(values))
        return math.log(gaps.max() / gaps.min())

    doubling = bool((values > 0).all()) and unevenness(np.log2(values)) < unevenness(values)
    x = np.log2(values) if doubling else values / gap
    centred = x - x.mean()
    return centred / np.sum(centred**2), PER + ("doubling" if doubling else f"{show(gap)} more")
