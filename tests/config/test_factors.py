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
    assert "rms − ln at model.layers+model.dim=2+32" in summary(load_study(planned.results, planned.manifest.study))


WITH = "companions={norm: {rms: {init: gpt2, model.scale_embeddings: true}}}"


@pytest.mark.parametrize(
    "asked", [WITH, """companions='{"norm": {"rms": {"init": "gpt2", "model": {"scale_embeddings": true}}}}'"""]
)
def test_settings_come_with_a_level_and_are_said(plan, asked):
    """They replace the reference's levels of other factors, which keep the levels that the design gives them."""
    sweep = ["ffn=mlp,swiglu", "norm=ln,rms", "init=smallinit,gpt2,xavier"]
    planned = plan(*sweep, asked, "design=one_at_a_time", "seeds=1")
    classes = {"smallinit": "SmallInit", "gpt2": "GPT2", "xavier": "Xavier"}
    for cell in planned.manifest.cells:
        own = cell.levels["norm"] == "rms"
        assert cell.config.model.scale_embeddings == own, cell.label
        assert cell.config.init["_target_"].endswith("GPT2" if own else classes[cell.levels["init"]]), cell.label
        assert cell.levels["init"] == "smallinit" or not own
    factors = {"ffn": ["mlp", "swiglu"], "norm": ["ln", "rms"], "init": ["smallinit", "gpt2", "xavier"]}
    assert planned.manifest.factors == factors and reference(planned) == "mlp + ln + smallinit"
    told = [line for line in preview(planned).splitlines() if "norm: rms − ln also changes" in line]
    assert told and "init SmallInit → GPT2" in told[0] and "model.scale_embeddings false → true" in told[0]


def test_fewer_levels_than_a_study_file_has_leave_their_companions_out(tmp_path):
    folder = tmp_path / "experiment"
    folder.mkdir()
    whole = "design: one_at_a_time\nfactors: {norm: [ln, rms, dyt]}\ncompanions: {norm: {dyt: {init: gpt2}}}\n"
    (folder / "mine.yaml").write_text(whole)
    made = arrange(read_command(["+experiment=mine", "norm=ln,rms"], str(tmp_path)))
    assert not made.problems and not made.companions
    [problem] = arrange(read_command(["+experiment=mine", "norm=dyt"], str(tmp_path))).problems
    assert problem.message == "is the level of all cells here; write what comes with it for all cells"
    (folder / "mine.yaml").write_text(whole.replace("{dyt:", "{dty:"))
    command = read_command(["+experiment=mine"], str(tmp_path))
    [problem] = arrange(command).problems
    assert problem.key == "companions.norm.dty" and "did you mean dyt" in problem.message
    assert command.request.placed(problem).key.endswith("mine.yaml: companions.norm.dty")


def test_a_level_with_settings_in_a_study_file_has_companions(tmp_path):
    """Names that the grammar of the command line does not have as keys."""
    folder = tmp_path / "experiment"
    folder.mkdir()
    own = "companions: {norm: {group(groups=4): {optim.lr: 0.5}}, model.dim: {32: {optim.lr: 0.25}}}"
    factors = "factors: {norm: [ln, group(groups=4)], model.dim: [16, 32]}"
    (folder / "mine.yaml").write_text(f"design: one_at_a_time\n{own}\n{factors}\n")
    made = arrange(read_command(["+experiment=mine"], str(tmp_path)))
    rates = [[word for word in words if word.startswith("optim.lr")] for words in made.overrides()]
    assert not made.problems and rates == [[], ["optim.lr=0.5"], ["optim.lr=0.25"]]


AT_ONCE = "design=one_at_a_time"
BOTH = "norm: {rms: {optim.lr: 0.5}}, init: {xavier: {optim.lr: 0.25}}"
REFUSED = [
    (["companions=3", AT_ONCE, *MANY], "companions: write all of them, by level, as in companions={norm:{dyt:"),
    ([WITH, *MANY], "companions: go with design=one_at_a_time, where cells change one level, not with grid"),
    (["companions={norm: {rms: {ffn.bias: false}}}", "hold=all", AT_ONCE, *MANY], "ffn.bias cannot come with it"),
    (["companions={norm: {rms: {ffn.bias: false}}}", "hold=[ffn.bias]", AT_ONCE, *MANY], "ffn.bias cannot come"),
    (["companions={norm: {rms: {ffn.bias: false}}}", "hold=[bias]", AT_ONCE, *MANY], "ffn.bias cannot come with it"),
    ([WITH, "hold=3", AT_ONCE, *MANY], "hold: must be all or a list of arguments, not 3"),
    (["companions='{norm'", AT_ONCE, *MANY], "companions: write all of them, by level"),
    (
        ["norm=ln,rms", "init=gpt2,xavier", "zip=[norm,init]", AT_ONCE, f"companions={{{BOTH}}}"],
        "optim.lr comes with two keys of norm+init, which go together; write it with one",
    ),
    (["tune.key=[a]", "tune.values=[1,2]", *MANY], "tune.key=[a]: takes one value"),
    (["norm@foo=group(groups=4)"], "norm@foo=group(groups=4): no such key; did you mean norm?"),
    (["design=ladder", "modl.dim=3"], "modl.dim=3: no such key; did you mean model.dim?"),
    (
        ["companions={residual: {pre: {init: gpt2}}}", AT_ONCE, *MANY],
        "companions.residual.pre: residual is not swept; there",
    ),
    (
        ["companions={norm: {rsm: {init: gpt2}}}", AT_ONCE, *MANY],
        "companions.norm.rsm: is not a level of norm; did you mean rms",
    ),
    (["companions={1: {rms: {init: gpt2}}}", AT_ONCE, *MANY], "companions.1.rms: 1 is not swept; there"),
    (["companions={norm: {ln: {init: gpt2}}}", AT_ONCE, *MANY], "companions.norm.ln: is the reference's level"),
    (["companions={norm: {rms: gpt2}}", AT_ONCE, *MANY], "companions.norm.rms: takes settings, as in"),
    (["companions={norm: {rms: {norm: dyt}}}", AT_ONCE, *MANY], "companions.norm.rms: norm cannot come with it"),
    (["companions={norm: {rms: {user: [x]}}}", AT_ONCE, *MANY], "companions.norm.rms: user cannot come with it"),
    (["companions={norm: {rms: {train.steps: 9}}}", AT_ONCE, *MANY], "train.steps cannot come with it"),
    (
        ["companions={norm: {rms: {ffn.hidden: 9}}}", "match=params", AT_ONCE, *MANY],
        "companions.norm.rms: ffn.hidden cannot come with it",
    ),
    (
        ["companions={norm: {rms: {init: gpt3}}}", AT_ONCE, *MANY],
        "companions.init=gpt3: no such init; did you mean gpt2?",
    ),
    (["companions={norm: {rms: {optim.lrr: 1}}}", AT_ONCE, *MANY], "optim.lrr=1: no such key; did you mean optim.lr?"),
    (["zip=[model.layers,model.heads]", *SIZES], "zip: model.heads is not swept; choose from model.dim, model.layers"),
    (["zip=[model.layers]", *SIZES], "zip: [model.layers] must name two different keys or more"),
    (["zip=[norm,ffn]", *MANY], "zip: norm has 2 values, ffn has 3 values; write equally many for each"),
    (["zip=[norm,ffn]"], "zip: norm, ffn are not swept; give each several values"),
    (["design=triangle", *MANY], "design: must be one of grid, one_at_a_time"),
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
    assert str(problem) == "design: grid has 16,807 cells here; write design=one_at_a_time"
