"""The contrasts that a design can estimate: main effects, interactions, trends, steps, cells against the reference."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.formatting import PER, grouped, is_number, show
from ablate.runs.naming import assigned, named
from ablate.runs.records import Cell, Manifest

NAMES = ["kind", "factor", "level", "reference", "stratum", "label"]
MIN_TREND_LEVELS = 3  # with two levels a trend is their difference
ROUNDING = 1e-9
Levels = dict[str, Any]
Weights = dict[str, float]
Corner = tuple[Any, ...]  # a level of each of some factors
Corners = dict[Corner, list[str]]  # the cells at each corner


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
    weights: Weights
    corners: tuple[list[str], ...] = ()

    @property
    def label_in_any_stratum(self) -> str:
        """The label without the stratum."""
        return self.label.removesuffix(in_stratum("", self.stratum))

    def side(self, sign: int) -> Weights:
        """The absolute weights of one side: +1 for the level, −1 for the reference."""
        return {cell: abs(weight) for cell, weight in self.weights.items() if weight * sign > 0}


def contrasts(manifest: Manifest) -> list[Contrast]:
    """Every contrast that a study's design can estimate, within each stratum of the factors that are not compared.

    grid: main effects and two-way interactions, then cells against the reference, then the dependence of
    each main effect on each setting that defines strata; one at a time, leave one out: each changed cell against the
    reference; cumulative: each step against the one before, then the last against the first.
    """
    contrasts_of_design = ESTIMABLE[manifest.design]
    result: list[Contrast] = []
    for stratum, cells in strata(manifest):
        result.extend(contrasts_of_design(manifest, stratum, cells))
    if manifest.design == "grid":
        result.extend(dependence_on_settings(manifest))
    return result


# Strata and the cells of a design


def strata(manifest: Manifest) -> list[tuple[str, list[Cell]]]:
    """The name and the cells of each combination of the factors for which the reference names no level."""
    settings = [factor for factor in manifest.factors if factor not in manifest.reference]
    cells_of: dict[str, list[Cell]] = {}
    for cell in manifest.cells:
        name = ", ".join(assigned(manifest, setting, cell.levels[setting]) for setting in settings)
        cells_of.setdefault(name, []).append(cell)
    return list(cells_of.items())


def reference_cell(cells: list[Cell]) -> Cell | None:
    """The reference among the cells of a stratum."""
    return next((cell for cell in cells if cell.reference), None)


def bases(manifest: Manifest) -> Levels:
    """The base level of each factor: the reference's level, or the first one of a setting."""
    return {name: manifest.reference.get(name, levels[0]) for name, levels in manifest.factors.items()}


def changes(manifest: Manifest) -> dict[str, tuple[str, Any]]:
    """By cell, the factor that the design changes there, and its level, unless a cell changes none or several."""
    result: dict[str, tuple[str, Any]] = {}
    for _, cells in strata(manifest):
        result |= changes_within(manifest, cells)
    return result


def changes_within(manifest: Manifest, cells: list[Cell]) -> dict[str, tuple[str, Any]]:
    """`changes` of one stratum: of a cumulative design against the cell before, else against the reference."""
    in_order = by_number_of_changes(manifest, cells)
    before = reference_cell(in_order)
    result: dict[str, tuple[str, Any]] = {}
    for i, cell in enumerate(in_order):
        if manifest.design == "cumulative":
            before = in_order[max(0, i - 1)]
        if before is None:
            continue
        changed = [name for name, level in cell.levels.items() if before.levels[name] != level]
        if len(changed) == 1:
            result[cell.id] = (changed[0], cell.levels[changed[0]])
    return result


def by_number_of_changes(manifest: Manifest, cells: list[Cell]) -> list[Cell]:
    """Cells in the order of a cumulative design."""

    def distance(cell: Cell) -> int:
        return sum(manifest.factors[name].index(level) for name, level in cell.levels.items())

    return sorted(cells, key=distance)


def corners_of(levels: dict[str, Levels], names: tuple[str, ...]) -> Corners:
    """The cells at each combination of levels of these factors, given the levels of every cell."""
    return grouped((corner_at(levels_of_cell, names), cell) for cell, levels_of_cell in levels.items())


def corner_at(levels: Levels, names: tuple[str, ...]) -> Corner:
    """The levels of these factors, as a key of a dictionary."""
    return tuple(tuple(levels[name]) if isinstance(levels[name], list) else levels[name] for name in names)


# Weights


def factorial_weights(corners: Corners, changed: Corner, base: Corner) -> Weights:
    """The weights of an effect between the corners `changed` and `base`; empty if one of its corners has no cell.

    Each cell has (−1)^(number of factors at their base) / number of cells at its corner.
    """
    positive: Weights = {}
    negative: Weights = {}
    for at_base in itertools.product((False, True), repeat=len(changed)):
        corner = tuple(old if is_base else new for new, old, is_base in zip(changed, base, at_base, strict=True))
        cells = corners.get(corner)
        if not cells:
            return {}
        sign = (-1.0) ** sum(at_base)
        side = positive if sign > 0 else negative
        for cell in cells:
            side[cell] = sign / len(cells)
    return positive | negative


def free_of_main_effects(levels: dict[str, Levels], weights: Weights, factors: list[str]) -> bool:
    """Whether a contrast is free of main effects of these factors: the weights of each level's cells sum to zero."""
    weighted_cells = {cell: levels[cell] for cell in weights}
    for factor in factors:
        for cells in corners_of(weighted_cells, (factor,)).values():
            total = sum(weights[cell] for cell in cells)
            if abs(total) > ROUNDING:
                return False
    return True


def slope(levels: list[Any]) -> tuple[np.ndarray, str] | None:
    """The weights that give the least-squares slope of values at these levels, (x − x̄) / Σ(x − x̄)², and its unit.

    x is log₂ of the levels, "per doubling", if these are more evenly spaced than the levels; else x is the levels in
    units of their smallest gap, "per 20 more".  None for fewer than three levels, or if any is not a number.
    """
    if len(levels) < MIN_TREND_LEVELS or not all(map(is_number, levels)):
        return None
    values = np.array(levels, float)
    smallest_gap = float(np.diff(np.sort(values)).min())
    if not (np.isfinite(values).all() and smallest_gap > 0):
        return None
    per_doubling = bool((values > 0).all()) and unevenness(np.log2(values)) < unevenness(values)
    x = np.log2(values) if per_doubling else values / smallest_gap
    centred = x - x.mean()
    unit = "doubling" if per_doubling else f"{show(smallest_gap)} more"
    return centred / np.sum(centred**2), PER + unit


def unevenness(values: np.ndarray) -> float:
    """The logarithm of the largest gap between neighbouring values over the smallest."""
    gaps = np.diff(np.sort(values))
    return math.log(gaps.max() / gaps.min())


# The contrasts of each design


def factorial(manifest: Manifest, stratum: str, cells: list[Cell]) -> Iterator[Contrast]:
    """Main effects and two-way interactions, then single cells.

    With cell means μ and reference levels a₀, b₀: the main effect of a is μ_a − μ_a₀, averaged over the cells with
    these levels; the interaction of a and b is (μ_ab − μ_a₀b) − (μ_ab₀ − μ_a₀b₀).  One without a cell at a corner is
    left out, and one that missing cells mix with a main effect.
    """
    factors = [name for name in manifest.factors if name in manifest.reference]
    levels_of_cells = {cell.id: cell.levels for cell in cells}
    for names in [*itertools.combinations(factors, 1), *itertools.combinations(factors, 2)]:
        must_balance = [name for name in factors if names != (name,)]  # a main effect is one of its own factor
        yield from effects_at_levels(manifest, names, stratum, levels_of_cells, must_balance)
    if len(factors) > 1:
        yield from cells_against_reference(cells, stratum)


def effects_at_levels(
    manifest: Manifest,
    names: tuple[str, ...],
    stratum: str,
    levels_of_cells: dict[str, Levels],
    must_balance: list[str],
) -> Iterator[Contrast]:
    """The effect of each combination of other levels of one or two factors, in place of their base levels."""
    corners = corners_of(levels_of_cells, names)
    base_levels = bases(manifest)
    base = corner_at(base_levels, names)
    other_levels = [[level for level in manifest.factors[name] if level != base_levels[name]] for name in names]
    combinations = list(itertools.product(*other_levels))
    for levels in combinations:
        changed = corner_at(dict(zip(names, levels, strict=True)), names)
        weights = factorial_weights(corners, changed, base)
        if weights and free_of_main_effects(levels_of_cells, weights, must_balance):
            yield effect_of(manifest, names, levels, stratum, weights, len(combinations) > 1)


def dependence_on_settings(manifest: Manifest) -> Iterator[Contrast]:
    """How each main effect depends on each setting: (μ_as − μ_a₀s) − (μ_as₀ − μ_a₀s₀), and its trend over numbers.

    s₀ is the setting's first level.  Other components are averaged over, and so are other settings of the same task.
    Three-way interactions are left out.
    """
    factors = list(manifest.factors)
    for stratum, cells, setting in crossings(manifest):
        levels_of_cells = {cell.id: cell.levels for cell in cells}
        for factor, reference_level in manifest.reference.items():
            names = (factor, setting)
            yield from effects_at_levels(manifest, names, stratum, levels_of_cells, factors)
            for level in manifest.factors[factor]:
                trend = trend_of(manifest, factor, setting, level, stratum, levels_of_cells)
                if trend is not None and level != reference_level:
                    yield trend


def crossings(manifest: Manifest) -> Iterator[tuple[str, list[Cell], str]]:
    """Stratum, cells and name of each setting that varies among cells of one task.  Other settings are averaged over,
    except those that change the task, which are kept separate."""
    settings = [name for name in manifest.factors if name not in manifest.reference]
    for setting in settings:
        if len(manifest.factors[setting]) == 1:
            continue
        other_settings = [name for name in settings if name != setting]
        place_of = {cell.id: str([cell.levels[name] for name in other_settings]) for cell in manifest.cells}
        tasks_at = grouped((place_of[cell.id], cell.task) for cell in manifest.cells)
        in_one_task = [cell for cell in manifest.cells if len(set(tasks_at[place_of[cell.id]])) == 1]
        cells_of_task = grouped((cell.task, cell) for cell in in_one_task)
        for cells in cells_of_task.values():
            fixed = []
            for name in other_settings:
                levels = {show(cell.levels[name]) for cell in cells}
                if len(manifest.factors[name]) > 1 and len(levels) == 1:
                    fixed.append(assigned(manifest, name, cells[0].levels[name]))
            yield ", ".join(fixed), cells, setting


def trend_of(
    manifest: Manifest, factor: str, setting: str, level: Any, stratum: str, levels_of_cells: dict[str, Levels]
) -> Contrast | None:
    """The slope of a factor's effect over a setting's levels, if these are numbers and every level has cells."""
    reference_level = manifest.reference[factor]
    values = manifest.factors[setting]
    slope_and_unit = slope(values)
    if slope_and_unit is None:
        return None
    slope_weights, unit = slope_and_unit
    corners = corners_of(levels_of_cells, (factor, setting))
    weights: Weights = {}
    for value, slope_weight in zip(values, slope_weights, strict=True):
        for sign, factor_level in ((1, level), (-1, reference_level)):
            cells = corners.get(corner_at({factor: factor_level, setting: value}, (factor, setting)))
            if not cells:
                return None
            if abs(slope_weight) > ROUNDING:  # the middle of an odd number of levels has none
                weights |= {cell: sign * slope_weight / len(cells) for cell in cells}
    if not free_of_main_effects(levels_of_cells, weights, list(manifest.factors)):
        return None
    factor_name = named(manifest, factor)
    setting_name = named(manifest, setting)
    label = f"{factor_name} × {setting_name}: {show(level)}, {unit}"
    if manifest.shown:
        label = f"{assigned(manifest, factor, level)} × {setting_name}, {unit}"
    return Contrast(
        kind="trend",
        factor=f"{factor} x {setting}",
        level=f"{show(level)}, {unit}",
        reference=show(reference_level),
        stratum=stratum,
        label=in_stratum(label, stratum),
        weights=weights,
    )


def changes_against_reference(manifest: Manifest, stratum: str, cells: list[Cell]) -> Iterator[Contrast]:
    """Each cell that changes one factor against the reference."""
    reference = reference_cell(cells)
    if reference is None:
        return
    change_of_cell = changes_within(manifest, cells)
    for cell in cells:
        if cell.id in change_of_cell:
            factor, level = change_of_cell[cell.id]
            weights = {cell.id: 1.0, reference.id: -1.0}
            yield effect_of(manifest, (factor,), (level,), stratum, weights)


def steps_of_a_series(manifest: Manifest, stratum: str, cells: list[Cell]) -> Iterator[Contrast]:
    """Each cell against the one before it and, if there are several steps, the last against the first."""
    changed = changes_within(manifest, cells)
    in_order = by_number_of_changes(manifest, cells)
    first = in_order[0]
    last = in_order[-1]
    for before, cell in itertools.pairwise(in_order):
        factor, level = changed[cell.id]
        is_named = before is not first or len(manifest.factors) == 1
        after = before.label.removeprefix("+ ") if is_named else "the first values"
        label = f"+ {cell.label.removeprefix('+ ')} (after {after})"
        weights = {cell.id: 1.0, before.id: -1.0}
        reference = show(before.levels[factor])
        yield Contrast("step", factor, show(level), reference, stratum, in_stratum(label, stratum), weights)
    if len(in_order) > 2:
        label = in_stratum(f"all steps together against {first.label}", stratum)
        yield Contrast("cell", "", last.label, first.label, stratum, label, {last.id: 1.0, first.id: -1.0})


def cells_against_reference(cells: list[Cell], stratum: str) -> Iterator[Contrast]:
    """Each other cell of a stratum against its reference."""
    reference = reference_cell(cells)
    if reference is None:
        return
    for cell in cells:
        if cell is not reference:
            label = in_stratum(f"{cell.label} against {reference.label}", stratum)
            weights = {cell.id: 1.0, reference.id: -1.0}
            yield Contrast("cell", "", cell.label, reference.label, stratum, label, weights)


def effect_of(
    manifest: Manifest,
    names: tuple[str, ...],
    levels: tuple[Any, ...],
    stratum: str,
    weights: Weights,
    has_several: bool = False,
) -> Contrast:
    """A main effect of one factor, or an interaction of two; `has_several`: with other levels there is another one."""
    base = bases(manifest)
    base_levels = [base[name] for name in names]
    factor = " x ".join(names)
    level = ", ".join(map(show, levels))
    reference = ", ".join(map(show, base_levels))
    factor_names = " × ".join(named(manifest, name) for name in names)
    if len(names) == 1:
        level_name = named(manifest, levels[0], names[0])
        base_name = named(manifest, base_levels[0], names[0])
        label = in_stratum(f"{factor_names}: {level_name} − {base_name}", stratum)
        return Contrast("main", factor, level, reference, stratum, label, weights)
    label = factor_names
    if manifest.shown:  # RMSNorm × learning rate 1e-3
        pairs = zip(names, levels, strict=True)
        label = " × ".join(assigned(manifest, name, level) for name, level in pairs)
    elif has_several:
        label = f"{factor_names}: {level}"
    return Contrast("interaction", factor, level, reference, stratum, in_stratum(label, stratum), weights)


def in_stratum(label: str, stratum: str) -> str:
    """A label with the stratum that it is of, if any."""
    return f"{label} at {stratum}" if stratum else label


ESTIMABLE: dict[str, Callable[[Manifest, str, list[Cell]], Iterator[Contrast]]] = {
    "grid": factorial,
    "one_at_a_time": changes_against_reference,
    "leave_one_out": changes_against_reference,
    "ladder": changes_against_reference,
    "cumulative": steps_of_a_series,
}
