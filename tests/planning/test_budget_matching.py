"""Matching: the chosen width against all widths tried one by one, steps against sums by hand."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import count_no_flops

from ablate.data.task import build_task
from ablate.model.build import build_model
from ablate.model.ffn import MoE
from ablate.model.init import role_of
from ablate.planning.checks import child
from ablate.planning.matching import nearest_width
from ablate.planning.plan import Plan
from ablate.runs.records import Cell, Matched

pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture
def sized(monkeypatch, tmp_path) -> None:
    """Plans that count no FLOPs, where widths are matched by parameters alone."""
    count_no_flops(monkeypatch)


def by_label(planned: Plan) -> dict[str, Cell]:
    return {cell.label: cell for cell in planned.manifest.cells}


def amount(cell: Cell, how: str, hidden: int | None = None) -> float:
    """A cell's parameters without embedding and head, or its FLOPs, summed over the layers of a model that is built."""
    config = cell.config.with_value("ffn.hidden", hidden) if hidden else cell.config
    task = build_task(config)
    with torch.device("meta"):
        model = build_model(config, task)
    if how == "params":
        return sum(p.numel() for p in model.parameters() if role_of(p) not in ("embedding", "head"))
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    dim, layers = config.model.dim, config.model.layers
    mixtures = [module for module in model.modules() if isinstance(module, MoE)]
    passed = sum(m.top_k * p.numel() // len(p) for m in mixtures for p in m.experts.parameters())
    passed += sum(p.numel() for m in mixtures if m.shared for p in m.shared.parameters())
    return 2 * (sum(m.weight.numel() for m in linear) + passed) + 4 * layers * dim * task.context


@pytest.mark.parametrize(
    ("how", "ffn", "dim"),
    # A cost equal to the reference's, a learnable number more, three matrices, experts, and FLOPs.
    [*(("params", name, 16) for name in ("gelu", "swish", "swiglu", "moe")), ("flops", "swiglu", 24)],
)
def test_the_width_is_the_nearest_by_an_independent_count(plan, how, ffn, dim, request):
    if how == "params":
        request.getfixturevalue("sized")
    planned = plan(f"match={how}", f"ffn=mlp,{ffn}", f"model.dim={dim}", "data.context=7")
    cells = by_label(planned)
    reference, cell = cells["mlp"], cells[ffn]
    assert reference.config.ffn["hidden"] == 4 * dim, "the reference stays as it is"
    target = amount(reference, how)
    same = amount(cell, how, 4 * dim) == target
    expected = 4 * dim if same else nearest_width(lambda width: amount(cell, how, width), target, 4 * dim)
    assert cell.config.ffn["hidden"] == expected
    value = amount(cell, how)
    quantity = reference.matched.quantity
    assert cell.matched == Matched(quantity=quantity, value=value, reference=target, difference=value / target - 1)
    assert reference.matched.difference == 0


def test_position_tables_count_and_embeddings_do_not(plan, sized):
    cell = by_label(plan("match=params", "position=learned,rope"))["rope"]
    assert cell.config.ffn["hidden"] > 64, "the table's parameters went into the FFN"
    tied = plan("match=params", "ffn=mlp,swiglu", "model.tie_embeddings=false")
    assert by_label(tied)["swiglu"].matched == by_label(plan("match=params", "ffn=mlp,swiglu"))["swiglu"].matched


def test_shared_layers_count_once_in_parameters_and_each_in_flops(plan):
    shared = ["ffn=mlp,swiglu", "model.layers=2", "model.share_layers=true"]
    cell = by_label(plan("match=params", *shared))["swiglu"]
    assert cell.matched.value < 2 * (4 * 16**2 + 3 * 16 * cell.config.ffn["hidden"])
    two_layers = by_label(plan("match=flops", *shared))["mlp"].matched.value
    one_layer = by_label(plan("match=flops", "ffn=mlp,swiglu"))["mlp"].matched.value
    head = 2 * 16 * build_task(cell.config).vocab
    assert two_layers - head == pytest.approx(2 * (one_layer - head))


def test_every_stratum_has_its_own_reference(plan, sized):
    planned = plan("match=params", "ffn=mlp,swiglu", "model.dim=16,32", "optim.lr=1e-3,3e-3", "seeds=1")
    cells = planned.manifest.cells
    assert sum(cell.reference for cell in cells) == 4
    for cell in cells:
        plain = replace(cell, config=cell.config.with_value("ffn", cells[0].config.ffn))
        target = amount(plain, "params", 4 * cell.levels["model.dim"])
        assert cell.matched.reference == target
        assert abs(cell.matched.difference) < 0.02
    gated = [cell for cell in cells if cell.levels["ffn"] == "swiglu"]
    assert len({cell.config.ffn["hidden"] for cell in gated}) == 2, "one for each size"


@pytest.mark.parametrize("rule", [lambda w: w, lambda w: w * w, lambda w: -(-w // 24) * 24, lambda w: 3 * w + 7])
@pytest.mark.parametrize("target", [1, 12.5, 500, 10_000])
@pytest.mark.parametrize("guess", [1, 171])
def test_any_cost_that_rises_with_the_width_is_searched_exactly(rule, target, guess):
    counted: list[int] = []
    found = nearest_width(lambda width: counted.append(width) or rule(width), target, guess)
    left = {width: round(abs(rule(width) / target - 1), 12) for width in range(1, 11_000)}
    eights = [width for width in left if width % 8 == 0 and left[width] <= 0.01]
    best = min(left[width] for width in eights or left)
    assert left[found] == best and (not eights or found % 8 == 0)
    if rule(2) != 4 and rule(1) != 24:
        assert len(set(counted) - {guess}) <= 5, "an affine cost needs few counts"


def test_a_cost_that_does_not_rise_ends_the_search():
    assert nearest_width(lambda width: 5, 6, 8) >= 8


def test_steps_make_the_flops_of_training_equal_and_the_warm_up_goes_with_them(plan):
    planned = plan("match=flops_total", "ffn=mlp,swiglu", "train.steps=300", "optim.warmup=33")
    mlp, swiglu = planned.manifest.cells
    total = 300 * 4 * 16 * mlp.flops_per_token
    per_step = 4 * 16 * swiglu.flops_per_token
    steps = swiglu.config.train.steps
    assert steps == min(range(1, 1000), key=lambda n: abs(n * per_step - total)) != 300
    assert swiglu.config.optim.warmup == math.floor(33 * steps / 300 + 0.5) and mlp.config.optim.warmup == 33
    assert swiglu.config.train.eval_every == mlp.config.train.eval_every == 3
    assert swiglu.matched.difference == pytest.approx(steps * per_step / total - 1)
    assert mlp.batches == swiglu.batches, "seeds pair all the same"


REFUSED = {
    "match=params ffn.hidden=32 norm=ln,rms": ["ffn.hidden", "match=params chooses it", "write match=none"],
    "match=flops_total train.steps=10,20": ["train.steps", "match=flops_total chooses it", "write match=none"],
    "match=flops_total model.dim=16,32 train.steps=4": ["match: model.dim=32: −30.0 %", "at best, with train.steps=1"],
    "match=params ffn=mlp,swiglu+mlp model.layers=2": ["match: the FFN of swiglu+mlp has no single width"],
    "match=flops_total data.tokenizer=byte,char": ["match: data.tokenizer=char", "its data are not its reference's"],
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_a_match_that_cannot_be_is_refused_in_one_line(refused, overrides):
    [line] = refused(*overrides.split())
    assert all(word in line for word in REFUSED[overrides])


def test_an_ffn_without_a_width_is_refused_where_a_width_is_chosen(plan, refused, faulty, checks_here):
    asked = ("user=[mistakes_of_mine]", "ffn=mlp,square")
    [line] = refused(*asked, "match=params", config_dir=faulty)
    assert "square has no single width" in line and "write match=none" in line
    assert plan(*asked, "match=flops_total", config_dir=faulty).manifest.cells[1].matched


def test_an_ffn_that_rounds_its_width_gets_the_nearest_that_it_has(plan, faulty, sized, monkeypatch):
    monkeypatch.setattr(child, "loads_user_code", True)
    found = plan("user=[mistakes_of_mine]", "ffn=mlp,rounded", "match=params", config_dir=faulty)
    cell = by_label(found)["rounded"]
    assert cell.config.ffn["hidden"] == 72, "of 48 and 72, for 64"
    assert any("rounded: +" in note and "nothing comes nearer" in note for note in cell.notes)


def test_the_reference_is_the_same_run_with_and_without_a_match(plan):
    def paths(*match):
        planned = plan("ffn=mlp,swiglu", "seeds=[0]", "train.steps=300", *match)
        labels = {cell.id: cell.label for cell in planned.manifest.cells}
        return {labels[run.cell]: run.path for run in planned.manifest.runs}

    free, params, total = paths(), paths("match=params"), paths("match=flops_total")
    assert free["mlp"] == params["mlp"] == total["mlp"]
    assert len({free["swiglu"], params["swiglu"], total["swiglu"]}) == 3
    names = {plan("ffn=mlp,gelu", f"match={how}").manifest.study for how in ("none", "params", "flops")}
    assert len(names) == 3, "equal cells, other questions"


def test_of_two_that_are_as_near_the_smaller_is_taken(plan):
    assert nearest_width(lambda width: width, 1004, 1000) == 1000
    # 9 steps of 4 rows are 4.5 of 8: four are half a step too few, five half a step too many.
    cells = by_label(plan("match=flops_total", "train.steps=9", "train.batch_size=4,8"))
    assert cells["train.batch_size=8"].config.train.steps == 4
