"""More than the variant changes: what else differs is named wherever an effect is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_studies import study_of, with_cells

from ablate import evidence
from ablate.cli.preview import preview
from ablate.cli.summary import summary
from ablate.runs.records import Cell
from ablate.runs.study import Study
from analysis.case import case_of
from analysis.writing.methods import markdown

BIAS = "bias true → false"
pytestmark = pytest.mark.usefixtures("untried")


def lines(planned: Any) -> list[str]:
    return evidence.also_lines(planned.manifest)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # Of attention one class: the argument is the variant.
        (
            ["ffn=mlp,gelu,swiglu", "norm=ln,ln_std", "attention=mha,mqa", "design=one_at_a_time"],
            [f"ffn: swiglu − mlp also differs in {BIAS}", "norm: ln_std − ln also differs in eps 1e-5 → 1e-6"],
        ),
        (["ffn=mlp,swiglu", "ffn.bias=false"], []),
        (["ffn=mlp,swiglu", "match=flops_total", "train.steps=60"], [f"ffn: swiglu − mlp also differs in {BIAS}"]),
        (["attention=window+mha+...", "attention.window=3,5", "model.layers=2"], []),
        (["norm=ln,rms", "ffn=mlp,swiglu", "design=cumulative"], [f"+ swiglu (after rms) also differs in {BIAS}"]),
    ],
)
def test_arguments_that_both_sides_have_and_nothing_else(plan, overrides, expected):
    assert lines(plan(*overrides)) == expected


def test_what_a_constructor_fills_in_counts():
    nodes = {"mlp": {"_target_": "a.MLP", "bias": True}, "mine": {"_target_": "b.Mine"}}
    filled: dict[str, Any] = {"mlp": {}, "mine": {"ffn.bias": False}}
    study = with_ffn(study_of({"ffn": ["mlp", "mine"]}), nodes, filled)
    assert evidence.effects(study)["also"].tolist() == [BIAS]


def with_ffn(study: Study, nodes: dict[str, Any], filled: Any = None) -> Study:
    """The study with these settings of its feed-forward layers, and what their constructors filled in."""

    def change(_: int, cell: Cell) -> dict[str, Any]:
        ffn = cell.levels["ffn"]
        return {"config": replace(cell.config, ffn=nodes[ffn]), "defaults": filled[ffn] if filled else {}}

    return with_cells(study, change)


def test_effects_summary_and_methods_say_it():
    nodes = {
        "mlp": {"_target_": "a.MLP", "bias": True, "hidden": 8},
        "swiglu": {"_target_": "a.SwiGLU", "bias": False, "hidden": 9},
    }
    study = with_ffn(study_of({"norm": ["ln", "rms"], "ffn": [*nodes]}), nodes)
    table = evidence.effects(study).set_index("label")["also"]
    assert table["ffn: swiglu − mlp"] == table["ln + swiglu against ln + mlp"] == BIAS
    assert table["norm: rms − ln"] == table["norm × ffn"] == table["rms + mlp against ln + mlp"] == ""
    [said] = [line for line in summary(study).splitlines() if "also differs in" in line]
    assert "swiglu" in said and BIAS in said
    assert f"also differ in FFN {BIAS}." in markdown(case_of(study, Path()))


def test_the_key_fixed_for_all_gives_both_sides_the_same(plan):
    loose, same = plan("ffn=mlp,swiglu"), plan("ffn=mlp,swiglu", "ffn.bias=true")
    assert lines(loose) == [f"ffn: swiglu − mlp also differs in {BIAS}"] and lines(same) == []
    hint = "to give all the same bias write ffn.bias=true"
    assert f"\nffn: swiglu − mlp also differs in {BIAS}\n{hint}" in preview(loose)
    assert "to give all" not in preview(same)
    assert [cell.config.ffn["bias"] for cell in same.manifest.cells] == [True] * 2


@pytest.mark.parametrize("more", [[], ["norm=ln,rms", "design=one_at_a_time"]])
def test_a_variant_without_the_key_is_refused_by_name(refused, more):
    (line,) = refused("ffn=mlp,none", "ffn.bias=true", *more)
    assert "ffn=none has no such key" in line and "ffn=mlp(bias=true)" in line


def test_no_key_is_named_that_a_variant_lacks(plan):
    assert evidence.same_setting_line(plan("ffn=mlp,swiglu,none").manifest) == []
