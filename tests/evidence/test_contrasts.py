"""Contrasts of every design: what they estimate, by their expectation under effects drawn at random."""

from __future__ import annotations

import itertools
import string
from dataclasses import replace

import numpy as np
import pytest
from fake_studies import a_cell, a_manifest

from ablate.config.designs import lay_out
from ablate.evidence import Contrast, changes, contrasts
from ablate.results.records import Manifest

SHAPES = [(2, 2), (3, 2), (2, 3, 4), (2,) * 4, (2, 3, 2, 2, 2), (2,) * 6]
DESIGNS = ["grid", "one_at_a_time", "leave_one_out", "cumulative", "fractional"]
Means = dict[str, float]


def manifest(design: str, shape: tuple[int, ...], moved: bool = False) -> Manifest:
    """What contrasts need of a study; `moved`: its reference is not at the first values."""
    factors = {string.ascii_lowercase[i]: [f"{i}{j}" for j in range(count)] for i, count in enumerate(shape)}
    base = tuple((count - 1) * (moved or design == "leave_one_out") for count in shape)
    made = lay_out(design, {name: len(levels) for name, levels in factors.items()}, base)
    cells = []
    for n, cell in enumerate(made.cells):
        levels = {name: factors[name][i] for name, i in zip(factors, cell, strict=True)}
        cells.append(a_cell(id=f"c{n}", label="+".join(levels.values()), levels=levels, reference=cell == base))
    reference = {name: levels[i] for (name, levels), i in zip(factors.items(), base, strict=True)}
    return a_manifest(design=design, factors=factors, reference=reference, cells=cells, aliases=made.aliases)


def additive(study: Manifest, seed: int) -> tuple[Means, dict[str, float]]:
    """Cell means that are sums of effects of levels, and these effects."""
    rng = np.random.default_rng(seed)
    effect = {level: float(rng.normal()) for levels in study.factors.values() for level in levels}
    return {cell.id: sum(effect[level] for level in cell.levels.values()) for cell in study.cells}, effect


def expected(contrast: Contrast, means: Means) -> float:
    return sum(weight * means[cell] for cell, weight in contrast.weights.items())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("design", "moved"), [*((d, False) for d in DESIGNS), ("grid", True), ("fractional", True)])
def test_under_additive_effects_each_contrast_is_the_true_effect(design, shape, moved):
    study = manifest(design, shape, moved)
    means, effect = additive(study, len(shape))
    found = contrasts(study)
    for contrast in found:
        assert sum(contrast.weights.values()) == pytest.approx(0)
        assert sum(contrast.side(1).values()) == pytest.approx(2 if contrast.kind == "interaction" else 1)
        if contrast.kind in ("main", "step"):
            assert expected(contrast, means) == pytest.approx(effect[contrast.level] - effect[contrast.reference])
        elif contrast.kind == "interaction":
            assert expected(contrast, means) == pytest.approx(0)
    mains = [(c.factor, c.level) for c in found if c.kind in ("main", "step")]
    assert len(set(mains)) == len(mains) == sum(shape) - len(shape), "an effect that can be estimated is missing"


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES, (2,) * 8, (2, 2, 2, 2, 3)], ids=str)
@pytest.mark.parametrize("design", ["grid", "fractional"])
def test_under_two_way_interactions_main_effects_stay_clear_and_aliased_ones_are_the_sum(design, shape, moved):
    study = manifest(design, shape, moved)
    rng, reference = np.random.default_rng(5), study.reference
    pairs = {
        frozenset(pair): float(rng.normal())
        for one, other in itertools.combinations(study.factors, 2)
        for pair in itertools.product(study.factors[one], study.factors[other])
    }
    means = {
        cell.id: sum(pairs[frozenset(pair)] for pair in itertools.combinations(cell.levels.values(), 2))
        for cell in study.cells
    }

    def interaction(names: list[str], levels: list[str]) -> float:
        a, b = levels
        a0, b0 = (reference[name] for name in names)
        corner = {corner: pairs[frozenset(corner)] for corner in itertools.product((a, a0), (b, b0))}
        return corner[a, b] - corner[a0, b] - corner[a, b0] + corner[a0, b0]

    def main(name: str, level: str) -> float:
        """The average difference over the levels of the others, which every two-way table of the design holds."""
        others = [levels for other, levels in study.factors.items() if other != name]
        return sum(
            float(np.mean([pairs[frozenset((level, x))] - pairs[frozenset((reference[name], x))] for x in levels]))
            for levels in others
        )

    named = 0
    for contrast in contrasts(study):
        if contrast.kind == "main":
            assert expected(contrast, means) == pytest.approx(main(contrast.factor, contrast.level))
        elif contrast.kind == "interaction":
            members = contrast.label.split(" + ")
            named += len(members)
            if len(members) == 1:
                true = interaction(contrast.factor.split(" x "), contrast.level.split(", "))
            else:  # of two-level factors alone
                split = [member.split(" × ") for member in members]
                true = sum(interaction(names, [other(study, name) for name in names]) for names in split)
                assert contrast.note == f"aliased with {', '.join(members[1:])}"
            assert expected(contrast, means) == pytest.approx(true)
    possible = sum((one - 1) * (two - 1) for one, two in itertools.combinations(shape, 2))
    assert named == possible, "an interaction is neither estimated nor named as aliased"


def other(study: Manifest, name: str) -> str:
    (level,) = (level for level in study.factors[name] if level != study.reference[name])
    return str(level)


@pytest.mark.parametrize("shape", [(2,) * 4, (2,) * 6, (2,) * 8, (2, 3, 2, 2, 2)], ids=str)
def test_aliased_rows_are_the_chains_that_the_design_tells(shape):
    study = manifest("fractional", shape)
    shown = [c.label.split(" + ") for c in contrasts(study) if c.note]
    assert sorted(shown) == sorted(study.aliases["together"]) and shown


def test_an_aliased_interaction_of_the_other_sign_is_taken_off():
    study = manifest("fractional", (2,) * 4)
    first, levels = next(iter(study.factors.items()))
    study = replace(study, reference=study.reference | {first: levels[1]})
    one, *_ = (c for c in contrasts(study) if c.note)
    own, off = one.label.split(" − ")
    assert own.startswith(f"{first} × ") and one.note == f"aliased with {off}"
    means = {cell.id: 0.0 for cell in study.cells}
    for names, effect in ((own.split(" × "), 0.3), (off.split(" × "), 0.1)):
        for cell in study.cells:
            means[cell.id] += effect * all(cell.levels[name] == other(study, name) for name in names)
    assert expected(one, means) == pytest.approx(0.3 - 0.1)


def corner_weights(study: Manifest, names: tuple[str, ...], levels: tuple[str, ...]) -> dict[str, float]:
    """A grid's effect as an average of complete corners, one for each combination of the other factors."""
    at = {tuple(cell.levels.values()): cell.id for cell in study.cells}
    rest = [[None] if name in names else values for name, values in study.factors.items()]
    combinations, found = list(itertools.product(*rest)), {}
    for kept in combinations:
        for ups in itertools.product((True, False), repeat=len(names)):
            moved = {n: lv if up else study.reference[n] for n, lv, up in zip(names, levels, ups, strict=True)}
            cell = at[tuple(moved.get(n, level) for n, level in zip(study.factors, kept, strict=True))]
            found[cell] = (-1.0) ** ups.count(False) / len(combinations)
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weights_of_a_grid_are_the_average_over_the_other_factors_to_the_last_digit(shape):
    study = manifest("grid", shape)
    for contrast in contrasts(study):
        if contrast.kind != "cell":
            names, levels = tuple(contrast.factor.split(" x ")), tuple(contrast.level.split(", "))
            assert contrast.weights == corner_weights(study, names, levels)


def test_an_interaction_that_is_a_main_effect_is_not_listed():
    """Half of a grid of three factors, c = a x b: resolution III, where each interaction is a main effect."""
    study = manifest("grid", (2, 2, 2))
    odd = [cell for cell in study.cells if sum(level[1] == "1" for level in cell.levels.values()) % 2 == 0]
    study = replace(study, design="fractional", cells=odd)
    assert {contrast.kind for contrast in contrasts(study)} == {"main", "cell"}


def test_steps_and_changes_are_called_by_what_changes():
    cumulative = manifest("cumulative", (2, 3))
    labels = ["first", "+ one", "+ two", "+ three"]
    named = [replace(cell, label=label) for cell, label in zip(cumulative.cells, labels, strict=True)]
    cumulative = replace(cumulative, cells=named)
    found = contrasts(cumulative)
    assert [(c.kind, c.label) for c in found] == [
        ("step", "+ one (after the first values)"),
        ("step", "+ two (after one)"),
        ("step", "+ three (after two)"),
        ("cell", "all steps together against first"),
    ]
    assert found[-1].weights == {"c3": 1.0, "c0": -1.0}
    assert changes(cumulative) == {"c1": ("a", "01"), "c2": ("b", "11"), "c3": ("b", "12")}
    shuffled = replace(cumulative, cells=cumulative.cells[::-1])
    assert [c.weights for c in contrasts(shuffled)] == [c.weights for c in found], "the order is that of the levels"
    left_out = manifest("leave_one_out", (2, 3))
    assert [c.label for c in contrasts(left_out)] == ["a: 00 − 01", "b: 10 − 12", "b: 11 − 12"]
    assert {c.kind for c in contrasts(left_out)} == {"main"}


@pytest.mark.parametrize("count", [20])
def test_many_factors_one_at_a_time_cost_no_more_than_their_cells(count):
    study = manifest("one_at_a_time", (2,) * count)
    found = contrasts(study)
    assert len(found) == count and all(len(contrast.weights) == 2 for contrast in found)


def test_every_cell_of_a_design_that_changes_one_factor_has_a_look_of_its_own():
    from analysis.figures.draw import style

    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("one_at_a_time", (2,) * 12),
        ("cumulative", (3, 4, 2)),
        ("fractional", (2,) * 9),
    ]
    for design, shape in shapes:
        study = manifest(design, shape)
        looks = style.encodings(study, style.colours(study))
        assert len(set(looks.values())) == len(looks)


@pytest.mark.parametrize("design", ["one_at_a_time", "leave_one_out", "cumulative"])
def test_a_factor_that_is_not_compared_is_a_stratum_of_every_design(design):
    """As when each cell of a design is tuned over the values of a key."""
    study = manifest(design, (2, 3))
    twice = [
        replace(cell, id=f"{cell.id}{rate}", levels=cell.levels | {"optim.lr": rate})
        for rate in (1, 2)
        for cell in study.cells
    ]
    found = contrasts(replace(study, factors=study.factors | {"optim.lr": [1, 2]}, cells=twice))
    plain = contrasts(study)
    assert [c.label for c in found] == [f"{c.label} at optim.lr={rate}" for rate in (1, 2) for c in plain]
    assert found[0].weights == {f"{cell}1": weight for cell, weight in plain[0].weights.items()}
