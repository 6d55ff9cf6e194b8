"""Designs and zipped keys on the command line: which cells there are, what they are called, what is refused."""

import pytest
from composed import composed, composed_cells, composing_problems
from one_run import write_plan

from ablate import evidence
from ablate.cli.preview import preview
from ablate.runs.study import load_study

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
    ],
)
def test_cells_of_a_design_by_what_they_change(plan, overrides, expected):
    planned = plan(*MANY, *overrides, "seeds=1")
    assert labels(planned) == expected and reference(planned) == expected[0]
    assert len(planned.todo) == 4
    for cell in planned.manifest.cells:  # what is composed is what the label says
        assert cell.name.startswith(f"{cell.levels['norm']}-{cell.levels['ffn']}-")
        assert cell.config.norm["_target_"].endswith({"ln": "LayerNorm", "rms": "RMSNorm"}[cell.levels["norm"]])


def test_zipped_keys_are_one_factor(plan):
    planned = plan("norm=ln,rms", *ZIP, "seeds=1")
    assert planned.manifest.factors == {"norm": ["ln", "rms"], "model.layers+model.dim": ["1+16", "2+32"]}
    assert planned.manifest.zip == ["model.layers", "model.dim"]
    assert labels(planned)[1:3] == ["model.layers=1, model.dim=16 + rms", "model.layers=2, model.dim=32 + ln"]
    shapes = [(c.config.model.layers, c.config.model.dim) for c in planned.manifest.cells]
    assert shapes == [(1, 16)] * 2 + [(2, 32)] * 2
    assert planned.manifest.reference == {"norm": "ln"}, "sizes are strata of a grid, zipped or not"
    assert "model.layers, model.dim change together" in preview(planned)
    assert plan(*ZIP, "seeds=1").manifest.reference == {"model.layers+model.dim": "1+16"}
    write_plan(planned)
    effects = evidence.effects(load_study(planned.results, planned.manifest.study))
    assert list(effects["stratum"])[:2] == ["model.layers+model.dim=1+16", "model.layers+model.dim=2+32"]


def test_settings_come_with_a_level_and_are_said(plan):
    """They replace the reference's levels of other factors, which keep the levels that the design gives them."""
    sweep = ["ffn=mlp,swiglu", "norm=ln,rms(init=gpt2,model.scale_embeddings=true)", "init=smallinit,gpt2,xavier"]
    planned = plan(*sweep, "design=one_at_a_time", "seeds=1")
    classes = {"smallinit": "SmallInit", "gpt2": "GPT2", "xavier": "Xavier"}
    for cell in planned.manifest.cells:
        own = cell.levels["norm"] == "rms"
        assert cell.config.model.scale_embeddings == own, cell.label
        assert cell.config.init["_target_"].endswith("GPT2" if own else classes[cell.levels["init"]]), cell.label
        assert cell.levels["init"] == "smallinit" or not own
    factors = {"ffn": ["mlp", "swiglu"], "norm": ["ln", "rms"], "init": ["smallinit", "gpt2", "xavier"]}
    assert planned.manifest.factors == factors and reference(planned) == "mlp + ln + smallinit"
    told = [line for line in preview(planned).splitlines() if "norm: rms − ln also differs in" in line]
    assert told and "init SmallInit → GPT2" in told[0] and "model.scale_embeddings false → true" in told[0]


def rates(folder, *words: str) -> list[float]:
    """The learning rate of each cell; 0 for that of the reference model."""
    usual = composed().config.optim.lr
    cells = [cell.config.optim.lr for cell in composed_cells(*words, folder=str(folder))]
    return [0.0 if rate == usual else rate for rate in cells]


def test_settings_come_with_a_level_in_every_design(tmp_path):
    words = ["norm=ln,rms(optim.lr=0.5)", "ffn=mlp,swiglu"]
    assert rates(tmp_path, *words) == [0, 0, 0.5, 0.5]
    assert rates(tmp_path, *words, "design=one_at_a_time") == [0, 0.5, 0]
    assert rates(tmp_path, *words, "design=leave_one_out") == [0.5, 0, 0.5]
    assert rates(tmp_path, *words, "design=cumulative") == [0, 0.5, 0.5]


def test_settings_of_the_reference_and_of_a_fixed_choice_come_with_all_their_cells(tmp_path):
    assert rates(tmp_path, "norm=ln(optim.lr=0.5),rms", "ffn=mlp,swiglu", "design=one_at_a_time") == [0.5, 0, 0.5]
    assert rates(tmp_path, "norm=ln(optim.lr=0.5)", "ffn=mlp,swiglu") == [0.5, 0.5]


def test_a_setting_of_a_level_counts_more_than_that_of_all_cells(tmp_path):
    assert rates(tmp_path, "norm=ln,rms(optim.lr=0.5)", "optim.lr=0.25") == [0.25, 0.5]


def test_settings_are_in_the_name_of_a_level_only_where_another_has_its_name(plan):
    found = plan("norm=ln,rms(model.norm_embeddings=true)", "seeds=1").manifest
    assert found.factors == {"norm": ["ln", "rms"]} and found.cells[1].label == "rms"
    both = ["ln", "rms", "rms(model.norm_embeddings=true)"]
    found = plan(f"norm={','.join(both)}", "seeds=1").manifest
    assert found.factors == {"norm": both} and [cell.label for cell in found.cells] == both
    assert [cell.config.model.norm_embeddings for cell in found.cells] == [False, False, True]


def test_an_argument_of_the_variant_is_its_own_setting_whatever_its_name(plan):
    (cell,) = plan("residual=layerscale(init=0.1)", "seeds=1").manifest.cells
    assert cell.config.residual["init"] == 0.1 and cell.config.init["_target_"].endswith("SmallInit")


AT_ONCE = "design=one_at_a_time"
FFNS = "ffn=mlp,gelu,swiglu"
ELSEWHERE = "is given, swept or tuned elsewhere, too; leave it out of one"
REFUSED = [
    (["norm=ln,rms(train.steps=9)"], "norm=rms(train.steps=9): train.steps cannot come with a level; only components"),
    (["norm=ln,rms(optim.lr=)"], "optim.lr: must be a number ≥ 1e-12 and ≤ 1000, not nothing"),
    (["norm=ln,rms(optim.lrr=1)"], "optim.lrr: no such key; did you mean optim.lr?"),
    (["norm=ln,rms(ffn=swiglu)", FFNS], f"norm=rms: ffn {ELSEWHERE}"),
    (["norm=ln(ffn=swiglu)", FFNS, AT_ONCE], f"norm=ln: ffn {ELSEWHERE}"),
    (
        ["norm=ln,rms(ffn.hidden=9)", "match=params"],
        "ffn.hidden: match=params chooses it per configuration; leave it out or write match=none",
    ),
    (["norm=ln,rms(optim.lr=1)", "tune.key=optim.lr", "tune.values=[1e-3,3e-3]"], f"norm=rms: optim.lr {ELSEWHERE}"),
    (["norm=rms(optim.lr=1)", "optim.lr=2"], f"norm=rms: optim.lr {ELSEWHERE}"),
    (["norm=rms(eps=1)", "norm.eps=2"], f"norm=rms(eps=1): norm.eps {ELSEWHERE}"),
    (
        ["norm=ln,rms(optim.lr=1)", "ffn=mlp,glu(optim.lr=2)"],
        "norm=rms and ffn=glu: have different values of optim.lr in one configuration",
    ),
    (
        ["attention=mha,window+mha(model.dropout=0.5)", "model.layers=2"],
        "attention=window+mha(model.dropout=0.5): model.dropout cannot change over the layers; leave it out",
    ),
    (["norm=ln,rms(init='normal(model.dropout=0.5)')"], "has settings of other components; write these beside it"),
    (["norm@foo=group(groups=4)"], "norm@foo=group(groups=4): no such key; did you mean norm?"),
    (["zip=[model.layers,model.heads]", *SIZES], "zip: model.heads: not swept; choose from model.dim, model.layers"),
    (["zip=[model.layers]", *SIZES], "zip: [model.layers] must name two different keys or more"),
    (["zip=[norm,ffn]", *MANY], "zip: norm has 2 values, ffn has 3 values; write equally many for each"),
    (["design=triangle", *MANY], "design: must be one of grid, one_at_a_time"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=[" ".join(words)[:60] for words, _ in REFUSED])
def test_what_makes_no_design_is_refused_in_one_line(refused, overrides, message):
    [line] = refused(*overrides)
    assert message in line


def test_a_grid_that_nobody_waits_for_is_refused_and_another_design_is_named():
    keys = ("optim.grad_clip", "ffn.mult", "optim.lr", "norm.eps", "optim.weight_decay")
    swept = [f"{key}={','.join(str(1 + i / 100) for i in range(7))}" for key in keys]
    [problem] = composing_problems(*swept)
    assert problem == "design: grid has 16,807 configurations here; write design=one_at_a_time"
