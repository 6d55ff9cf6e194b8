"""Which comparisons a design holds: main effects, two-way interactions, cells against their reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ablate.evidence.words import show

Levels = dict[str, Any]


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of cells whose weights sum to zero; positive weights are the side of `level`.

    kind is `main`, `interaction` or `cell`; weights map cell ids to numbers; stratum is "" or as "optim.lr=0.001".
    """

    kind: str
    factor: str
    level: str
    reference: str
    stratum: str
    label: str
    weights: dict[str, float]

    def side(self, sign: int) -> dict[str, float]:
        """The absolute weights of one side: +1 for the level, −1 for the reference."""
        return {cell: abs(weight) for cell, weight in self.weights.items() if weight * sign > 0}


def contrasts(manifest: dict[str, Any]) -> list[Contrast]:
    """Every contrast of a study, within each stratum of the factors that are no components.

    With cell means μ and reference levels a₀, b₀: the main effect of a is μ_a − μ_a₀, averaged over the levels of the
    other component factors; the interaction of a and b is (μ_ab − μ_a₀b) − (μ_ab₀ − μ_a₀b₀), averaged over those of the
    remaining ones; a cell's is μ − μ_reference, left out where it would repeat the main effects of an only factor.
    """
    return [found for stratum in strata(manifest) for found in _within(manifest, *stratum)]


def strata(manifest: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The name and the cells of each combination of the factors that the reference says nothing about."""
    outside = [factor for factor in manifest["factors"] if factor not in manifest["reference"]]
    grouped: dict[str, list[dict[str, Any]]] = {}
    for cell in manifest["cells"]:
        grouped.setdefault(", ".join(f"{name}={show(cell['levels'][name])}" for name in outside), []).append(cell)
    return list(grouped.items())


def _within(manifest: dict[str, Any], stratum: str, cells: list[dict[str, Any]]) -> Iterator[Contrast]:
    reference = manifest["reference"]
    factors = {name: levels for name, levels in manifest["factors"].items() if name in reference}
    others = {name: [level for level in levels if level != reference[name]] for name, levels in factors.items()}
    at = {tuple(cell["levels"][name] for name in factors): cell["id"] for cell in cells}
    for names in [*itertools.combinations(factors, 1), *itertools.combinations(factors, 2)]:
        for levels in itertools.product(*(others[name] for name in names)):
            weights = _weights(at, factors, dict(zip(names, levels, strict=True)), reference)
            if weights:
                yield _effect(names, levels, reference, stratum, any(len(others[n]) > 1 for n in names), weights)
    if len(factors) > 1:
        yield from _cells(cells, stratum)


def _weights(at: dict[tuple[Any, ...], str], factors: Levels, changed: Levels, reference: Levels) -> dict[str, float]:
    """Signed weights of the cells where every corner exists: −1 for each changed factor at its reference, averaged."""
    corners = []
    for kept in itertools.product(*([None] if name in changed else levels for name, levels in factors.items())):
        corner: dict[str, float] = {}
        for ups in itertools.product((True, False), repeat=len(changed)):
            moved = {n: changed[n] if up else reference[n] for n, up in zip(changed, ups, strict=True)}
            cell = at.get(tuple(moved.get(name, level) for name, level in zip(factors, kept, strict=True)))
            corner |= {} if cell is None else {cell: (-1.0) ** ups.count(False)}
        if len(corner) == 2 ** len(changed):
            corners.append(corner)
    return {cell: sign / len(corners) for corner in corners for cell, sign in corner.items()}


def _effect(
    names: tuple[str, ...],
    levels: tuple[Any, ...],
    reference: Levels,
    stratum: str,
    named: bool,
    weights: dict[str, float],
) -> Contrast:
    level, base = ", ".join(map(show, levels)), ", ".join(show(reference[name]) for name in names)
    factor, where = " x ".join(names), f" at {stratum}" * bool(stratum)
    if len(names) == 1:
        return Contrast("main", factor, level, base, stratum, f"{factor}: {level} − {base}{where}", weights)
    return Contrast("interaction", factor, level, base, stratum, factor + f": {level}" * named + where, weights)


def _cells(cells: list[dict[str, Any]], stratum: str) -> Iterator[Contrast]:
    reference = next((cell for cell in cells if cell["reference"]), None)
    for cell in cells:
        if reference and cell is not reference:
            label = f"{cell['label']} against {reference['label']}" + f" at {stratum}" * bool(stratum)
            weights = {cell["id"]: 1.0, reference["id"]: -1.0}
            yield Contrast("cell", "", cell["label"], reference["label"], stratum, label, weights)
