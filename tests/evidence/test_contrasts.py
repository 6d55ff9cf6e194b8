"""Contrasts of every design: what they estimate, by their expectation under effects drawn at random."""

import itertools
import string
from dataclasses import replace

import numpy as np
import pytest
from fake_studies import TASK, Levels, a_cell, a_manifest, study_of
from scipy import stats

from ablate import evidence
from ablate.config.designs import DESIGNS
from ablate.evidence import Contrast, changes, contrasts
from ablate.evidence.contrasts import slope
from ablate.runs.records import Manifest

SHAPES = [(2, 2), (3, 2), (2, 3, 4), (2,) * 4, (2, 3, 2, 2, 2), (2,) * 6]
Means = dict[str, float]


def manifest(design: str, shape: tuple[int, ...], moved: bool = False) -> Manifest:
    """What contrasts need of a study; `moved`: its reference is not at the first values."""
    factors = {string.ascii_lowercase[i]: [f"{i}{j}" for j in range(count)] for i, count in enumerate(shape)}
    base = tuple((count - 1) * (moved or design == "leave_one_out") for count in shape)
    combinations = DESIGNS[design]([len(levels) for levels in factors.values()], base)
    cells = []
    for n, cell in enumerate(combinations):
        levels = {name: factors[name][i] for name, i in zip(factors, cell, strict=True)}
        cells.append(a_cell(id=f"c{n}", label="+".join(levels.values()), levels=levels, reference=cell == base))
    reference = {name: levels[i] for (name, levels), i in zip(factors.items(), base, strict=True)}
    return a_manifest(design=design, factors=factors, reference=reference, cells=cells)


def additive(study: Manifest, seed: int) -> tuple[Means, dict[str, float]]:
    """Cell means that are sums of effects of levels, and these effects."""
    rng = np.random.default_rng(seed)
    effect = {level: float(rng.normal()) for levels in study.factors.values() for level in levels}
    return {cell.id: sum(effect[level] for level in cell.levels.values()) for cell in study.cells}, effect


def expected(contrast: Contrast, means: Means) -> float:
    return sum(weight * means[cell] for cell, weight in contrast.weights.items())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("design", "moved"), [*((d, False) for d in DESIGNS), ("grid", True)])
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
@pytest.mark.parametrize("shape", [*SHAPES, (2, 2, 2, 2, 3)], ids=str)
def test_under_two_way_interactions_main_effects_stay_clear_and_each_interaction_is_the_true_one(shape, moved):
    study = manifest("grid", shape, moved)
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
            named += 1
            true = interaction(contrast.factor.split(" x "), contrast.level.split(", "))
            assert expected(contrast, means) == pytest.approx(true)
    possible = sum((one - 1) * (two - 1) for one, two in itertools.combinations(shape, 2))
    assert named == possible, "an interaction is not estimated"


def test_an_interaction_that_is_a_main_effect_is_not_listed():
    """Of a grid of three factors only the half with c = a x b: each interaction is a main effect."""
    study = manifest("grid", (2, 2, 2))
    odd = [cell for cell in study.cells if sum(level[1] == "1" for level in cell.levels.values()) % 2 == 0]
    study = replace(study, cells=odd)
    assert {contrast.kind for contrast in contrasts(study)} == {"main", "cell"}


def test_the_first_step_of_one_factor_is_after_its_first_value():
    study = manifest("cumulative", (3,))
    labels = [contrast.label for contrast in contrasts(study) if contrast.kind == "step"]
    first, second, third = [cell.label for cell in study.cells]
    assert labels == [f"+ {second} (after {first})", f"+ {third} (after {second})"]


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
    left_out = manifest("leave_one_out", (2, 3))
    assert [c.label for c in contrasts(left_out)] == ["a: 00 − 01", "b: 10 − 12", "b: 11 − 12"]
    assert {c.kind for c in contrasts(left_out)} == {"main"}


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


WARM = {"residual": ["pre", "post"], "optim.warmup": [0, 40]}
RATES = {"residual": ["pre", "post"], "optim.lr": [1e-3, 2e-3, 8e-3]}


def noise(levels: Levels, seed: int) -> float:
    return float(np.random.default_rng([seed, *str(levels).encode()]).normal(0, 0.004))


def warmed(levels: Levels, seed: int) -> float:
    """post is as good as pre with warm-up, and 0.05 worse without."""
    return 2 + 0.05 * (levels["residual"] == "post") * (levels["optim.warmup"] == 0) + noise(levels, seed)


def rated(levels: Levels, seed: int) -> float:
    """post gains 0.03 with each doubling of the rate."""
    doublings = np.log2(levels["optim.lr"] / 1e-3)
    return float(2 - 0.03 * doublings * (levels["residual"] == "post") + noise(levels, seed))


@pytest.mark.parametrize("apart", [False, True], ids=["shared batches", "other batches"])
def test_a_component_and_a_setting_have_a_difference_of_differences_in_the_family(apart):
    batches = (lambda levels: str(levels["optim.warmup"])) if apart else (lambda levels: "b0")
    study = study_of(WARM, range(6), warmed, batches=batches)
    table = evidence.effects(study).set_index("label")
    assert list(table.index) == [
        "residual: post − pre at optim.warmup=0",
        "residual: post − pre at optim.warmup=40",
        "residual × optim.warmup",
    ]
    found = table.loc["residual × optim.warmup"]
    losses = study.runs.pivot(index="seed", columns=["optim.warmup", "residual"], values="test/loss")
    gains = [losses[at, "post"] - losses[at, "pre"] for at in (40, 0)]
    expected = stats.ttest_rel(*gains)
    assert (found["mean"], found.p) == pytest.approx(((gains[0] - gains[1]).mean(), expected.pvalue))
    assert found.low == pytest.approx(expected.confidence_interval(1 - 0.05 / 3).low), "the family has three rows"
    assert found.family and found.paired and found.kind == "interaction" and found.verdict == "better"


@pytest.mark.parametrize(
    ("levels", "x", "unit"),
    [
        ([1e-3, 2e-3, 8e-3], [0, 1, 3], "per doubling"),
        ([64, 128, 256], [0, 1, 2], "per doubling"),
        ([3e-3, 1e-3, 1e-2], np.log2([3e-3, 1e-3, 1e-2]), "per doubling"),
        ([0, 20, 40], [0, 1, 2], "per 20 more"),
        ([2, 4, 6], [0, 1, 2], "per 2 more"),
        ([0.0, 0.1, 0.3], [0, 1, 3], "per 0.1 more"),
    ],
)
def test_a_trend_is_the_least_squares_slope_on_the_axis_that_spaces_the_levels_best(levels, x, unit):
    found = slope(levels)
    assert found is not None and found[1] == unit
    y = np.random.default_rng(0).normal(size=len(levels))
    assert found[0] @ y == pytest.approx(np.polyfit(x, y, 1)[0])


@pytest.mark.parametrize("levels", [[1, 2], [True, False, 2], ["1+16", "2+32", "4+64"], [1, None, 3], [1, 1.0, 2]])
def test_what_is_no_axis_has_no_trend(levels):
    assert slope(levels) is None


def test_a_setting_of_numbers_has_a_trend():
    table = evidence.effects(study_of(RATES, range(6), rated)).set_index("label")
    found = table.loc["residual × optim.lr: post, per doubling"]
    assert found.kind == "trend" and found.family and found.verdict == "better"
    assert found.low < -0.03 < found.high and found["mean"] == pytest.approx(-0.03, abs=0.005)
    assert list(table["kind"]) == ["main"] * 3 + ["interaction"] * 2 + ["trend"]
    assert set(table["alpha"]) == {0.05 / 6}


def test_a_margin_of_differences_judges_no_slope():
    table = evidence.effects(study_of(RATES, range(6), rated, margin={"value": 1.0, "registered": True}))
    trend = table["kind"] == "trend"
    assert table.loc[~trend, "verdict"].isin(["equivalent", "negligible"]).all()
    assert list(table.loc[trend, "verdict"]) == ["better"] and table["margin"].isna().sum() == 1


def test_each_pair_is_counted_once_and_three_together_never():
    """Two components at two rates and depths: per stratum three effects, then each component by each setting."""
    factors = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu"], "optim.lr": [1e-3, 2e-3], "model.layers": [2, 4]}
    family = evidence.effects(study_of(factors)).query("family")
    assert (family["stratum"] != "").sum() == 4 * 3
    assert list(family.loc[family["stratum"] == "", "label"]) == [
        *("norm × optim.lr", "ffn × optim.lr", "norm × model.layers", "ffn × model.layers")
    ]


def test_strata_of_other_tasks_have_no_interaction_and_other_settings_one_in_each_task():
    tasks = {"f0": TASK, "f1": TASK | {"metrics": {"accuracy": "max"}}}
    task = lambda levels: {"stdlib": "f0", "copy": "f1"}[levels["data"]]  # noqa: E731
    factors = {"norm": ["ln", "rms"], "data": ["stdlib", "copy"], "optim.lr": [1e-3, 2e-3]}
    crossed = evidence.effects(study_of(factors, task=task, tasks=tasks)).query("kind == 'interaction'")
    assert list(crossed["label"]) == [f"norm × optim.lr at data={name}" for name in ("stdlib", "copy")]
    assert set(crossed["metric"]) == {"test/loss", "test/accuracy"}
