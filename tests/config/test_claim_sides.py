"""Which cells a claim compares, with which weights, and why it cannot be tested in others."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from claimed_cells import CELLS, LENGTHS, LESS, RANKED, typed
from fake_studies import a_cell

from ablate.config.claims import applicable, sides_of, weighed
from ablate.config.designs import DESIGNS
from ablate.runs.records import Cell

NORMS = {"less": [{"norm": "rms"}, {"norm": "ln"}]}
TASKS = [f"{cell.levels['norm']} task" for cell in CELLS]
AT_TWO_NORMS = LESS | {"at": {"norm": "ln", "optim.lr": 1e-3}, "than_at": {"norm": "rms"}}


def problems(claim: dict[str, Any], cells: list[Cell] = CELLS, tasks: Sequence[str] = ()) -> list[str]:
    """Why a claim cannot be tested in these cells."""
    return [problem.message for problem in applicable({"a": typed(claim)}, cells, tasks)[1]]


def test_sides_are_all_cells_that_have_their_levels_and_those_that_at_fixes():
    side, other_side = sides_of(typed(LESS), CELLS)
    assert side == {"swiglu-ln-0.001", "swiglu-ln-0.002", "swiglu-rms-0.001", "swiglu-rms-0.002"}
    assert len(other_side) == 8
    claim = typed(LESS | {"at": {"norm": "ln", "optim.lr": 1e-3}})
    assert sides_of(claim, CELLS) == [{"swiglu-ln-0.001"}, {"mlp-ln-0.001", "gelu-ln-0.001"}]


def test_a_ranking_has_a_side_for_each_level():
    assert [len(side) for side in sides_of(typed(RANKED), CELLS)] == [4, 4, 4]


def test_a_difference_at_one_level_is_compared_with_that_at_another():
    assert [len(side) for side in sides_of(typed(AT_TWO_NORMS), CELLS)] == [1, 2, 1, 2]
    assert weighed(typed(AT_TWO_NORMS), CELLS) == [
        {"swiglu-ln-0.001": 1, "mlp-rms-0.001": 0.5, "gelu-rms-0.001": 0.5},
        {"swiglu-rms-0.001": 1, "mlp-ln-0.001": 0.5, "gelu-ln-0.001": 0.5},
    ]


@pytest.mark.parametrize(
    ("factor", "levels", "sides"),
    [
        ("model.layers+model.dim", ["2+64", "4+128"], [{"model.dim": 64}, {"model.dim": 128}]),
        (
            "attention+model.layers",
            ["window(scale=1e+0)+mha+4", "mha+4"],
            [{"attention": "window(scale=1e+0)+mha"}, {"attention": "mha"}],
        ),
    ],
    ids=str,
)
def test_a_zipped_factor_is_named_by_any_of_its_keys(factor, levels, sides):
    cells = [a_cell(id=level, label=level, levels={factor: level}) for level in levels]
    assert sides_of(typed({"less": sides}), cells) == [{level} for level in levels]


def test_a_key_of_a_zipped_factor_names_nothing_where_its_level_is_unclear():
    cells = [a_cell(id="x", label="x", levels={"attention+ffn": "window+mha+mlp"})]  # of which key is the pattern?
    assert sides_of(typed({"less": [{"ffn": "mlp"}, {"ffn": "swiglu"}]}), cells) == [set(), set()]


# Weights


def design(kind: str, **factors: list[str]) -> list[Cell]:
    """Cells of a design as a manifest has them."""
    reference = tuple(len(levels) - 1 if kind == "leave_one_out" else 0 for levels in factors.values())
    cells = []
    for combination in DESIGNS[kind]([len(levels) for levels in factors.values()], reference):
        levels = {name: factors[name][i] for name, i in zip(factors, combination, strict=True)}
        cells.append(a_cell(id="+".join(levels.values()), label="", levels=levels))
    return cells


@pytest.mark.parametrize(
    ("kind", "ffns", "side"),
    [
        ("grid", ["mlp", "gelu", "glu"], ["gelu", "glu"]),
        ("one_at_a_time", ["mlp", "gelu", "glu"], ["gelu", "glu"]),
        ("leave_one_out", ["gelu", "mlp"], ["gelu"]),
        ("cumulative", ["mlp", "gelu"], ["gelu"]),
    ],
)
def test_of_additive_effects_a_claim_has_the_difference_of_what_it_names(kind, ffns, side):
    """Each level adds a power of ten to a cell's mean, so that any other difference between sides would show."""
    cells = design(kind, ffn=ffns, norm=["ln", "rms"], init=["a", "b"], position=["no", "rope"])
    levels = ["mlp", "gelu", "glu", "ln", "rms", "a", "b", "no", "rope"]
    effect = {level: 10.0**i for i, level in enumerate(levels)}
    means = {cell.id: sum(effect[str(level)] for level in cell.levels.values()) for cell in cells}
    claim = typed({"less": [{"ffn": side}, {"ffn": "mlp"}]})
    weights, other_weights = weighed(claim, cells)
    assert sum(weights.values()) == pytest.approx(1)
    assert sum(other_weights.values()) == pytest.approx(1)
    difference = sum(weights[cell] * means[cell] for cell in weights)
    difference -= sum(other_weights[cell] * means[cell] for cell in other_weights)
    assert difference == pytest.approx(sum(effect[level] for level in side) / len(side) - effect["mlp"])
    assert applicable({"a": claim}, cells) == ({"a": claim}, [])


UNBALANCED = [cell for cell in design("grid", ffn=["mlp", "gelu", "glu"], norm=["ln", "rms"]) if cell.id != "glu+rms"]


def test_a_side_weighs_every_level_of_the_others_equally_however_many_cells_it_has_there():
    assert weighed(typed({"less": [{"ffn": ["gelu", "glu"]}, {"ffn": "mlp"}]}), UNBALANCED) == [
        {"gelu+ln": 0.25, "glu+ln": 0.25, "gelu+rms": 0.5},
        {"mlp+ln": 0.5, "mlp+rms": 0.5},
    ]


def test_levels_of_the_others_that_one_side_lacks_do_not_count():
    assert weighed(typed({"less": [{"ffn": "glu"}, {"ffn": ["mlp", "gelu"]}]}), UNBALANCED) == [
        {"glu+ln": 1.0},
        {"mlp+ln": 0.5, "gelu+ln": 0.5},
    ]


def test_changes_of_two_factors_are_compared_at_the_reference_of_all_others():
    cells = design("one_at_a_time", ffn=["mlp", "gelu"], norm=["ln", "rms"], init=["a", "b"])
    assert problems({"less": [{"ffn": "gelu"}, {"norm": "rms"}]}, cells) == []


def test_sides_without_a_common_level_of_another_factor_are_refused():
    cells = [
        cell for cell in design("grid", ffn=["mlp", "gelu"], norm=["ln", "rms"]) if cell.id in ("mlp+ln", "gelu+rms")
    ]
    [message] = problems({"less": [{"ffn": "gelu"}, {"ffn": "mlp"}]}, cells)
    assert "no levels of the other factors in common" in message
    assert message.endswith("name them on both sides, or use `at`")


# What cells lack


def test_every_level_of_a_claim_has_a_cell():
    cells = [cell for cell in CELLS if cell.levels["ffn"] != "gelu"]
    assert problems(LESS, cells) == ["ffn=gelu has no configuration in this study"]


@pytest.mark.parametrize(
    "claim",
    [
        {"less": [{"ffn": "swiglu"}, {"norm": "rms"}]},
        {"less": [{"ffn": "swiglu"}, {"ffn": "swiglu"}]},
        {"less": [{"ffn": "swiglu"}, {}]},
        LESS | {"at": {"ffn": "mlp"}},
        LESS | {"at": {"norm": "ln"}, "than_at": {"norm": "ln"}},
        LESS | {"than_at": {"norm": "ln"}},
    ],
    ids=str,
)
def test_no_cell_is_on_both_sides(claim):
    [message] = problems(claim)
    assert message.startswith("both sides hold ")


def test_a_side_without_levels_has_nothing_to_compare():
    [message] = problems({"less": [{"ffn": "mlp"}, {"ffn": []}]})
    assert message.startswith("its sides have no levels of the other factors in common")


@pytest.mark.parametrize("claim", [LESS, NORMS, RANKED], ids=["within", "between", "ranked"])
def test_scores_of_several_tasks_are_not_compared(claim):
    [message] = problems(claim, tasks=TASKS)
    assert message.startswith("its configurations have 2 tasks")
    assert message.endswith("write a claim for each, as in at: {data: copy}")


@pytest.mark.parametrize("claim", [LESS | {"at": {"norm": "ln"}}, {"diverges_more": LESS["less"]}])
def test_scores_of_one_task_and_counts_of_several_are_compared(claim):
    assert problems(claim, tasks=TASKS) == []


def test_with_two_metrics_both_sides_may_be_the_same_cells():
    claim = {"not_greater": [{"ffn": "mlp"}, {"ffn": "mlp"}], "metric": LENGTHS, "margin": 0.02}
    assert problems(claim) == []
    assert list(itertools.chain(*weighed(typed(claim), CELLS)))
