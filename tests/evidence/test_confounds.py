"""More than the variant changes: what else differs is named wherever an effect is, and one switch holds it equal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_studies import study_of, with_cells

from ablate import evidence
from ablate.cli.summary import summary
from ablate.cli.sweep import preview
from ablate.config.groups import CONF
from ablate.planning.plan import PlanError
from ablate.results.records import Cell
from ablate.results.study import Study
from analysis.case import case_of
from analysis.cli.main import _lines as printed
from analysis.writing import tables
from analysis.writing.methods import markdown
from analysis.writing.sentences import sentences

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
            [f"ffn: swiglu − mlp also changes {BIAS}", "norm: ln_std − ln also changes eps 1e-5 → 1e-6"],
        ),
        (["ffn=mlp,swiglu", "ffn.bias=false"], []),
        (["ffn=mlp,swiglu", "match=flops_total", "train.steps=60"], [f"ffn: swiglu − mlp also changes {BIAS}"]),
        (["attention=window+mha+...", "attention.window=3,5", "model.layers=2"], []),
        (["norm=ln,rms", "ffn=mlp,swiglu", "design=cumulative"], [f"+ swiglu (after rms) also changes {BIAS}"]),
    ],
)
def test_arguments_that_both_sides_have_and_nothing_else(plan: Any, overrides: list[str], expected: list[str]) -> None:
    assert lines(plan(*overrides)) == expected


def test_what_a_constructor_fills_in_counts() -> None:
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


def test_summary_tables_methods_and_sentences_say_it() -> None:
    nodes = {
        "mlp": {"_target_": "a.MLP", "bias": True, "hidden": 8},
        "swiglu": {"_target_": "a.SwiGLU", "bias": False, "hidden": 9},
    }
    study = with_ffn(study_of({"norm": ["ln", "rms"], "ffn": [*nodes]}), nodes)
    table = evidence.effects(study).set_index("label")["also"]
    assert table["ffn: swiglu − mlp"] == table["ln + swiglu against ln + mlp"] == BIAS
    assert table["norm: rms − ln"] == table["norm × ffn"] == table["rms + mlp against ln + mlp"] == ""
    said = [line for line in summary(study).splitlines() if "also changes" in line]
    assert len(said) == 1 and said[0].startswith("  ffn: swiglu − mlp") and said[0].endswith(f"; also changes {BIAS}")
    case = case_of(study, Path())
    named = f"FFN {BIAS}"
    assert sum(line.endswith(f"; also changes {named}") for line in printed(case)) == 1
    sheet = tables.effects_sheet(case)
    assert [row[sheet.head.index("also")] for row in sheet.rows][:2] in (["", named], [named, ""])
    assert f"With FFN: SwiGLU − ReLU MLP, the two sides differ in more than that: {named}." in markdown(case)
    assert sum(f"also changes {named}" in sentence for sentence in sentences(case)) == 1


def test_one_switch_holds_it_equal_before_runs_have_their_keys(plan: Any) -> None:
    loose = plan("ffn=mlp,swiglu")
    assert lines(loose) == [f"ffn: swiglu − mlp also changes {BIAS}"]
    assert f"\nffn: swiglu − mlp also changes {BIAS}\n" in preview(loose)
    for hold in ("hold=[bias]", "hold=[ffn.bias]", "hold=all"):
        held = plan("ffn=mlp,swiglu", hold)
        assert [cell.config.ffn["bias"] for cell in held.manifest.cells] == [True] * 2
        assert lines(held) == [] and held.manifest.remarks == ["held equal: ffn.bias true, as in mlp"]
    assert "held equal: ffn.bias true, as in mlp" in preview(held)
    paths = [{(run.cell, run.path) for run in each.manifest.runs} for each in (loose, held)]
    by_hand = plan("ffn=swiglu", "ffn.bias=true", "seeds=3")
    shared = {(run.cell, run.path) for run in by_hand.manifest.runs}
    assert shared < paths[1] and not shared & paths[0], "the runs are those of the argument, however it was set"
    assert loose.manifest.study != held.manifest.study


def test_the_reference_decides_what_is_held(plan: Any) -> None:
    held = plan("ffn=swiglu,mlp", "hold=[bias]")
    assert [cell.config.ffn["bias"] for cell in held.manifest.cells] == [False, False]
    own = plan("ffn=mlp(bias=false),gelu", "norm=ln,rms", "hold=[bias]")
    assert not any(cell.config.ffn["bias"] for cell in own.manifest.cells), "the reference may set it in parentheses"


def test_tuning_and_matching_train_what_is_held(plan: Any) -> None:
    tuned = plan("ffn=mlp,swiglu", "hold=all", "tune.key=optim.lr", "tune.values=[1e-3,3e-3]", "match=params")
    assert {cell.config.ffn["bias"] for cell in tuned.manifest.cells} == {True}
    assert tuned.manifest.tunes


def test_all_that_is_held_leaves_out_what_match_or_tuning_chooses(plan: Any, tmp_path: Path) -> None:
    (tmp_path / "ffn").mkdir()
    text = (CONF / "ffn" / "swiglu.yaml").read_text(encoding="utf-8").replace("mult: 4.0", "mult: 2.0")
    (tmp_path / "ffn" / "narrow.yaml").write_text(text, encoding="utf-8")
    found = plan("ffn=mlp,narrow", "hold=all", "match=params", config_dir=str(tmp_path))
    assert found.manifest.remarks == ["held equal: ffn.bias true, as in mlp"]
    found = plan("ffn=mlp,swiglu", "hold=all", "tune.key=ffn.bias", "tune.values=[true,false]")
    assert found.manifest.remarks == [] and found.manifest.cells[0].label == "mlp + ffn.bias=true"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["ffn=mlp,none", "hold=[bias]"], "hold: ffn=none has no bias to hold equal; leave it out"),
        (["ffn=mlp,swiglu", "hold=[multiple_of]"], "hold: ffn=mlp has no multiple_of to hold equal; leave it out"),
        (["norm=ln,rms", "hold=[bias]"], "hold: bias is not an argument of norm here; there are eps"),
        (["ffn=mlp,swiglu", "hold=bias"], "hold: must be all or a list of arguments, not 'bias'; write hold=[bias]"),
        (["optim.lr=1e-3,3e-3", "hold=[bias]"], "hold: holds arguments of variants equal; sweep a component"),
        (["ffn=mlp,swiglu", "ffn.bias=true,false", "hold=[bias]"], "hold: ffn.bias is swept, so it cannot be held"),
        (
            ["ffn=mlp,swiglu", "hold=[bias]", "tune.key=ffn.bias", "tune.values=[true,false]"],
            "hold: ffn.bias is chosen by tuning, so it cannot be held",
        ),
        (["ffn=mlp,swiglu", "match=params", "hold=[mult]"], "hold: ffn.mult is chosen by match, so it cannot be held"),
    ],
)
def test_what_cannot_be_held_is_refused_in_a_line(plan: Any, overrides: list[str], said: str) -> None:
    with pytest.raises(PlanError) as error:
        plan(*overrides)
    assert len(error.value.problems) == 1 and said in str(error.value)
