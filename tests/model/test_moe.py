"""The mixture of experts against a loop over tokens and experts in plain numbers; its balance, cost and draws."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from activations import gelu, relu, silu
from empty_task import Blank
from model_variants import CONTEXT, VOCAB, configuration, jitter, some_tokens
from parts_of_batches import by_parts
from reference_config import component
from tensors import some
from torch import nn

from ablate.config.components import bind
from ablate.config.errors import BadComponent
from ablate.config.schema import Config
from ablate.model.build import initialised_model
from ablate.model.cost import count
from ablate.model.ffn import MoE
from ablate.model.init import Torch, Xavier, initialise, shared_draws
from ablate.model.objective import auxiliary

DIM = 6
ACTIVATIONS = {"relu": relu, "gelu": gelu, "silu": silu, "reglu": relu, "geglu": gelu, "swiglu": silu}
SMALL = {"hidden": 3, "experts": 4}
CPU = torch.device("cpu")
CROSS_ENTROPY: Any = bind("objective", component("objective", "cross_entropy"), {})()


def made(**changed: Any) -> Any:
    """A mixture in float64, as its YAML describes it, in small."""
    ffn = bind("ffn", component("ffn", "moe") | SMALL | changed, {"dim": DIM})().double()
    for i, parameter in enumerate(ffn.parameters()):
        parameter.data = 0.7 * some(*parameter.shape, seed=i)
    return ffn


def through(matrix: list[list[float]], x: list[float]) -> list[float]:
    """x · W of a matrix (in, out)."""
    return [sum(a * row[j] for a, row in zip(x, matrix, strict=True)) for j in range(len(matrix[0]))]


def passed(experts: Any, i: int, form: str, x: list[float]) -> list[float]:
    """What one expert makes of a token."""
    up, f = through(experts.up[i].tolist(), x), ACTIVATIONS[form]
    gate = through(experts.gate[i].tolist(), x) if form.endswith("glu") else None
    inner = [f(a) for a in up] if gate is None else [f(g) * a for g, a in zip(gate, up, strict=True)]
    return through(experts.down[i].tolist(), inner)


def routed(ffn: Any, x: list[float]) -> tuple[list[float], list[int]]:
    """The router's probabilities, and the experts that it picks."""
    powers = [math.exp(sum(w * a for w, a in zip(row, x, strict=True))) for row in ffn.router.weight.tolist()]
    p = [power / sum(powers) for power in powers]
    return p, sorted(range(len(p)), key=lambda i: -p[i])[: ffn.top_k]


@pytest.mark.parametrize(
    ("form", "changed"),
    [
        *(("silu", {}), ("reglu", {}), ("geglu", {}), ("gelu", {"shared": 2})),
        *(("swiglu", {"top_k": 1, "gates": "plain"}), ("relu", {"top_k": 3, "gates": "plain"})),
    ],
)
def test_against_a_loop_over_tokens_and_experts(form, changed):
    ffn, x = made(expert=form, **changed), some(2, 7, DIM, seed=9)
    expected = []
    for token in x.flatten(0, 1).tolist():
        p, top = routed(ffn, token)
        whole = sum(p[i] for i in top) if ffn.gates == "renormalised" else 1.0
        parts = [(p[i] / whole, passed(ffn.experts, i, form, token)) for i in top]
        if ffn.shared is not None:
            parts.append((1.0, passed(ffn.shared, 0, form, token)))
        expected.append([sum(gate * y[j] for gate, y in parts) for j in range(DIM)])
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(ffn(x).flatten(0, 1), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("padded", [False, True])
def test_the_balance_counts_real_tokens_alone(padded):
    ffn, x = made(balance=0.5), some(2, 7, DIM, seed=9)
    mask = torch.ones(2, 7)
    mask[0, 4:], mask[1, :2] = (0, 0) if padded else (1, 1)
    ffn(x, mask if padded else None)
    tokens = [token for token, real in zip(x.flatten(0, 1).tolist(), mask.flatten().tolist(), strict=True) if real]
    found = [routed(ffn, token) for token in tokens]
    share = [sum(i in top for _, top in found) / (2 * len(tokens)) for i in range(4)]
    mean = [sum(p[i] for p, _ in found) / len(tokens) for i in range(4)]
    expected = 0.5 * 4 * sum(f * p for f, p in zip(share, mean, strict=True))
    assert ffn.balance.item() == pytest.approx(expected, rel=1e-12)


def configured(**changed: Any) -> Config:
    return configuration({"ffn": "moe"}).with_value("ffn", component("ffn", "moe") | changed)


def test_the_correction_is_trained_by_the_loads_of_real_tokens_alone_and_moves_the_selection():
    ffn, x, mask = made(correction="load", scores="sigmoid", balance=0.0), some(2, 7, DIM, seed=9), torch.ones(2, 7)
    mask[0, 4:] = 0
    scores = (ffn.router_logits(x).sigmoid() + ffn.correction).detach()
    share = F.one_hot(scores.topk(2)[1], 4)[mask.bool()].sum((0, 1)) / (2 * 11)
    y = ffn(x, mask)
    assert ffn.balance.item() == 0
    (y.sum() + ffn.balance).backward()
    torch.testing.assert_close(ffn.correction.grad, share.double() - 0.25)
    with torch.no_grad():
        ffn.correction += torch.tensor([9.0, 0, 0, 9])
    assert {*ffn.selection_scores(ffn.router_logits(x).sigmoid()).topk(2)[1].unique().tolist()} == {0, 3}


def test_padding_reaches_no_balance_of_a_model():
    """Through the residual style, which hands the mask to an FFN that asks for it."""
    config = configuration({"ffn": "moe", "model": "encoder"})
    model = jitter(initialised_model(config, Blank(VOCAB, CONTEXT, "mlm"), 0), 0.3).double()
    mask = torch.ones(3, CONTEXT)
    mask[:, 8:] = 0
    found = []
    for tokens in (some_tokens(), torch.where(mask.bool(), some_tokens(), (some_tokens() + 3) % VOCAB)):
        model(tokens, mask=mask)
        found.append([loss.item() for _, loss in auxiliary(model)])
    assert len(found[0]) == 2 and found[0] == pytest.approx(found[1], abs=1e-12)


def test_the_balance_trains_and_is_no_part_of_what_is_measured():
    model = initialised_model(configured(), Blank(VOCAB, CONTEXT), 0)
    batch = type("Batch", (), {"inputs": {"tokens": some_tokens()}, "targets": some_tokens(seed=1)})
    losses, _ = by_parts(model, CROSS_ENTROPY, batch, 1)
    assert losses["balance"].item() == pytest.approx(0.02, rel=0.4), "two layers, 0.01 each where all are picked alike"
    assert losses["objective"].item() == pytest.approx(losses["loss"].item() + losses["balance"].item())
    trained = model.blocks[0].ffn.router.weight.grad.clone()
    plain, _ = by_parts(model.eval(), CROSS_ENTROPY, batch, 1)
    assert plain.keys() == {"loss"} and plain["loss"] == losses["loss"]
    assert not torch.allclose(model.blocks[0].ffn.router.weight.grad, trained)


def test_flops_are_those_of_the_experts_that_a_token_passes():
    task, dim = Blank(VOCAB, CONTEXT), 16
    few, many = (count(configured(hidden=8, experts=n), task) for n in (4, 16))
    assert many.flops_per_token - few.flops_per_token == 2 * 2 * dim * 12, "of two layers the routers' alone"
    assert many.params - few.params == 2 * 12 * (dim + 3 * dim * 8)
    none = count(configuration({"ffn": "none"}), task)
    assert few.flops_per_token - none.flops_per_token == 2 * (2 * dim * 4 + 2 * 3 * 2 * dim * 8)
    passed = [{active for _, active in each.widths} for each in (few, many, none)]
    assert passed == [{0.5}, {0.125}, set()] and few.hidden == 8


def test_each_expert_is_drawn_by_its_own_fans_and_a_convolution_by_what_it_reads():
    ffn, kernel = (
        bind("ffn", component("ffn", "moe") | {"hidden": 50, "experts": 5}, {"dim": 200})(),
        nn.Conv1d(40, 50, 4),
    )
    initialise(ffn, Torch(), 0)
    assert ffn.experts.up.std().item() == pytest.approx((3 * 200) ** -0.5, rel=0.02)
    assert ffn.experts.down.std().item() == pytest.approx((3 * 50) ** -0.5, rel=0.02)
    initialise(ffn, Xavier(200, 1.0), 0)
    assert ffn.experts.up.std().item() == pytest.approx((2 / 250) ** 0.5, rel=0.02)
    initialise(kernel, Torch(), 0)
    assert kernel.weight.std().item() == pytest.approx((3 * 160) ** -0.5, rel=0.03)


def test_narrower_and_fewer_experts_are_parts_of_wider_and_more():
    def drawn(**changed: int) -> Any:
        ffn = bind("ffn", component("ffn", "moe") | changed, {"dim": DIM})()
        initialise(ffn, Torch(), 0)
        return ffn.experts

    few, many = drawn(hidden=8, experts=2), drawn(hidden=12, experts=5)
    assert torch.equal(few.up, many.up[:2, :, :8])
    assert torch.allclose(few.down * (8 / 12) ** 0.5, many.down[:2, :8])  # a wider one starts smaller
    shapes = [{"up": ("in", tuple(one.up.shape)), "down": ("out", tuple(one.down.shape))} for one in (few, many)]
    assert shared_draws(*shapes) == 1 and shared_draws(*shapes[::-1]) == pytest.approx(2 * 8 / (5 * 12))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        *(({"top_k": 5}, "ffn.top_k: "), ({"top_k": 0}, "ffn.top_k: "), ({"top_k": 1}, "ffn: gates=renormalised")),
        *(({"shared": -1}, "ffn.shared: "), ({"balance": -1.0}, "ffn.balance: "), ({"expert": "tanh"}, "ffn.expert: ")),
        *(
            ({"groups": 3, "top_groups": 1}, "ffn.groups: must divide the number of experts, 4"),
            ({"groups": 2}, "ffn: groups and top_groups need each other"),
        ),
        *(({"groups": 4, "top_groups": 1}, "ffn.top_groups: must be ≥ 2"),),
    ],
)
def test_what_cannot_be_is_refused(changed, says):
    with pytest.raises(BadComponent) as caught:
        made(**changed)
    assert f"{caught.value.key}: {caught.value}".startswith(says)


def test_routing_and_the_balance_are_in_float32_whatever_products_are_in():
    """Each step of it: rounded to bf16 these scores would tie, and other experts would be picked."""
    x = torch.ones(1, 1, 16)
    moe = MoE(16, "relu", 8, 4.0, 8, 4, 2, 0, "renormalised", 0.5).train()
    with torch.no_grad():
        moe.router.weight.copy_((1 + torch.tensor([0, 1, 3, 2]) * 2.0**-12)[:, None].expand(4, 16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores, y = moe.router_logits(x), moe(x)
    assert torch.equal(scores, x @ moe.router.weight.T) and scores.argmax() == 2
    assert scores.unique().numel() == 4 and scores.bfloat16().unique().numel() == 1
    assert (moe.balance.dtype, y.dtype) == (torch.float32, torch.bfloat16)
