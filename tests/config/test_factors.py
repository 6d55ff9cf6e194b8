"""Designs and zipped keys on the command line: which cells there are, what they are called, what is refused."""

import pytest
from one_run import write_plan

from ablate.cli.summary import summary
from ablate.cli.sweep import preview
from ablate.config.command import read_command
from ablate.config.factors import arrange
from ablate.planning.plan import PlanError
from ablate.results.study import load_study

pytestmark = pytest.mark.usefixtures("untried", "uncounted")
MANY = ["norm=ln,rms", "ffn=mlp,gelu,swiglu"]
SIZES = ["model.dim=16,32", "model.layers=1,2"]
ZIP = [*SIZES, "zip=[model.layers,model.dim]"]


def labels(planned) -> list[str]:
    return [cell.label for cell in planned.manifest.cells]


def reference(planned) -> str:
    (found,) = (cell.label for cell in planned.manifest.cells if cell.reference)
    return str(found)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["design=one_at_a_time"], ["ln + mlp", "norm=rms", "ffn=gelu", "ffn=swiglu"]),
        (["design=leave_one_out"], ["rms + swiglu", "norm=ln", "ffn=mlp", "ffn=gelu"]),
        (["design=cumulative"], ["ln + mlp", "+ rms", "+ gelu", "+ swiglu"]),
        (["design=one_at_a_time", "reference={norm: rms}"], ["rms + mlp", "norm=ln", "ffn=gelu", "ffn=swiglu"]),
        (["design=leave_one_out", "reference={ffn: gelu}"], ["rms + gelu", "norm=ln", "ffn=mlp", "ffn=swiglu"]),
    ],
)
def test_cells_of_a_design_by_what_they_change(plan, overrides, expected):
    planned = plan(*MANY, *overrides, "seeds=1")
    assert labels(planned) == expected and reference(planned) == expected[0]
    assert len(planned.todo) == 4
    for cell in planned.manifest.cells:  # what is composed is what the label says
        assert cell.name.startswith(f"{cell.levels['norm']}-{cell.levels['ffn']}-")
        assert cell.config.norm["_target_"].endswith({"ln": "LayerNorm", "rms": "RMSNorm"}[cell.levels["norm"]])


def test_a_fraction_holds_its_reference_and_keeps_its_aliases(plan):
    swept = ["norm=ln,rms", "ffn=mlp,swiglu", "optim.lr=1e-3,2e-3", "residual=pre,post", "design=fractional"]
    for asked in ([], ["reference={ffn: swiglu, optim.lr: 0.002}"]):
        planned = plan(*swept, *asked, "seeds=1")
        assert len(planned.manifest.cells) == 8
        assert ("swiglu" in reference(planned)) == bool(asked)
        assert len(planned.manifest.aliases["together"]) == 3
        shown = preview(planned)
        assert "norm × ffn = optim.lr × residual" in shown and "8 of 16 combinations, resolution IV" in shown


def test_zipped_keys_are_one_factor(plan):
    planned = plan("norm=ln,rms", *ZIP, "seeds=1")
    assert planned.manifest.factors == {"norm": ["ln", "rms"], "model.layers+model.dim": ["1+16", "2+32"]}
    assert planned.manifest.zip == ["model.layers", "model.dim"]
    assert labels(planned)[1:3] == ["model.layers=1, model.dim=16 + rms", "model.layers=2, model.dim=32 + ln"]
    shapes = [(c.config.model.layers, c.config.model.dim) for c in planned.manifest.cells]
    assert shapes == [(1, 16)] * 2 + [(2, 32)] * 2
    assert planned.manifest.reference == {"norm": "ln"}, "sizes are strata of a grid, zipped or not"
    assert "model.layers, model.dim change together" in preview(planned)
    asked = plan(*ZIP, "reference={model.layers+model.dim: 2+32}", "seeds=1").manifest.reference
    assert asked == plan(*ZIP, "reference={model.layers: 2}", "seeds=1").manifest.reference
    assert asked == {"model.layers+model.dim": "2+32"}, "by its name or by any of its keys"
    write_plan(planned)
    assert "rms − ln at model.layers+model.dim=2+32" in summary(load_study(planned.results, planned.manifest.study))


REFUSED = [
    (["zip=[model.layers,model.heads]", *SIZES], "zip: model.heads is not swept; choose from model.dim, model.layers"),
    (["zip=[model.layers]", *SIZES], "zip: [model.layers] must name two different keys or more"),
    (["zip=[norm,ffn]", *MANY], "zip: norm has 2 values, ffn has 3 values; write equally many for each"),
    (["zip=[norm,ffn]"], "zip: norm, ffn are not swept; give each several values"),
    (["design=cumulative", "reference={norm: rms}", *MANY], "starts from the first values; put yours first"),
    (["design=triangle", *MANY], "design: must be one of grid, one_at_a_time"),
    (["design=one_at_a_time", "reference={init: gpt2}", *MANY], "init is not compared here; choose from norm, ffn"),
    (
        ["reference={model.dim: 16}", "model.dim=16,16,32", "model.layers=1,2,2", "zip=[model.dim,model.layers]"],
        "model.dim:16 is in several levels of model.dim+model.layers; name another key",
    ),
    (["norm=ln,rsm", "ffn=mlp,swiglu", "design=cumulative"], "norm=rsm: no such norm"),
]


@pytest.mark.parametrize(
    ("overrides", "message"), REFUSED, ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else ""
)
def test_what_makes_no_design_is_refused_in_one_line(plan, overrides, message):
    with pytest.raises(PlanError) as raised:
        plan(*overrides)
    assert len(raised.value.problems) == 1 and message in str(raised.value), str(raised.value)


def test_a_grid_that_nobody_waits_for_is_refused_and_another_design_is_named():
    keys = ("optim.grad_clip", "ffn.mult", "optim.lr", "norm.eps", "optim.weight_decay")
    swept = [f"{key}={','.join(str(1 + i / 100) for i in range(7))}" for key in keys]
    (problem,) = arrange(read_command(swept, None)).problems
    assert str(problem) == "design: grid has 16,807 cells here; write design=fractional or one_at_a_time"
