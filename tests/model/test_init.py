"""Draws: keyed by (seed, name) alone, nested, shared by variants; scales against formulas of their own."""

import math
import random

import numpy as np
import pytest
import torch
from empty_task import Blank
from model_variants import CELLS, CONTEXT, COVER, VOCAB, built, configuration, name_of, variants
from reference_config import component
from scipy import stats
from torch import Tensor, nn

from ablate.config.components import bind
from ablate.config.errors import BadComponent
from ablate.config.schema import Config
from ablate.model.build import build_init, build_model
from ablate.model.init import Init, Xavier, draw, draw_all, drawn_as, initialise, role_of, shared_draws, tag

every_init = pytest.mark.parametrize("init", variants("init"))
Shapes = dict[str, tuple[str, tuple[int, ...]]]


def parameters(cell: dict[str, str] | None = None, seed: int = 0) -> dict[str, Tensor]:
    """Name -> parameter of an initialised model."""
    return dict(built(cell, seed).named_parameters())


@pytest.fixture(scope="module")
def reference() -> dict[str, Tensor]:
    """Those of the reference."""
    return parameters()


def shapes_of(model: nn.Module) -> Shapes:
    """Name -> (role, shape)."""
    return {name: (role_of(p), tuple(p.shape)) for name, p in model.named_parameters()}


def deviations(config: Config, model: nn.Module) -> dict[str, float]:
    """Name -> standard deviation of the draws of each matrix that is drawn."""
    init = build_init(config, Blank(VOCAB, CONTEXT))
    gains = {name: getattr(p, "gain", 1.0) for name, p in model.named_parameters()}
    drawn = {name: row for name, row in shapes_of(model).items() if row[0] not in ("bias", "constant")}
    # Of many matrices in one parameter each is (in, out).
    fans = {name: shape[1:] if len(shape) == 3 else shape[::-1] for name, (_, shape) in drawn.items()}
    own = {name: p.own_std for name, p in model.named_parameters() if hasattr(p, "own_std")}
    return {name: own.get(name) or init.scale(r, *fans[name]) * gains[name] for name, (r, _) in drawn.items()}


def expected_numbers(init: str, role: str, normals: Tensor) -> Tensor:
    """The same quantile of the initialisation's distribution, for each of the normals."""
    if init == "torch" and role not in ("embedding", "position"):
        quantiles = stats.norm.cdf(normals.double().numpy())
        return torch.from_numpy(stats.uniform.ppf(quantiles, -math.sqrt(3), 2 * math.sqrt(3)))
    return normals.double()


def published(init: str, layers: int, dim: int, role: str, shape: tuple[int, ...]) -> float:
    """Standard deviation of a matrix's draws, from the papers."""
    depth = math.sqrt(2 * layers) if role == "out" else 1
    by_dim, tables = ("embedding", "position", "head"), ("embedding", "position")
    return {
        "gpt2": 0.02 / depth,
        "smallinit": math.sqrt(2 / (dim + 4 * dim)) / depth,
        "normal": 0.02,
        "small_embed": 1e-4 if role == "embedding" else 0.02 / depth,
        "torch": 1.0 if role in tables else 1 / math.sqrt(shape[1]) / math.sqrt(3),  # of U(-b, b): b / √3
        "xavier": dim**-0.5 if role in by_dim else math.sqrt(2 / sum(shape)),
    }[init]


# ---- what a draw depends on


def test_draws_are_what_they_have_always_been():
    """Published numbers depend on these streams; whoever changes them ends every pairing with older runs."""
    torch.testing.assert_close(
        draw(0, "embed.weight", (2, 3)),
        torch.tensor([[-1.2812974, 0.02144598, -2.1729517], [-0.84505475, 0.40012953, 1.4495935]]),
    )
    torch.testing.assert_close(draw(1, "blocks.0.ffn.up.weight", (2,)), torch.tensor([1.3091302, 0.45373824]))


def test_draws_are_nested():
    wide, tall = draw(0, "x", (9, 5)), draw(0, "x", (5, 9), by_column=True)
    for n in range(1, 9):
        assert torch.equal(draw(0, "x", (n, 5)), wide[:n])
        assert torch.equal(draw(0, "x", (5, n), by_column=True), tall[:, :n])
    assert torch.equal(draw(0, "x", (4,)), wide[0, :4])


def test_draws_are_normal_and_independent():
    drawn = [draw(seed, name, (4000,)).numpy() for seed in (0, 1) for name in ("a", "b", "a.b", "1/a")]
    correlation = np.corrcoef(drawn)
    np.fill_diagonal(correlation, 0)
    assert abs(correlation).max() < 5 / math.sqrt(4000)
    assert stats.kstest(np.concatenate(drawn), "norm").pvalue > 0.001
    assert all(abs(np.corrcoef(row[1:], row[:-1])[0, 1]) < 4.5 / math.sqrt(4000) for row in drawn)


@pytest.mark.parametrize("cell", [cell for cell in CELLS if "init" not in cell], ids=name_of)
def test_a_variant_leaves_every_other_parameter_alone(cell, reference):
    """Bit for bit, whatever is swapped in, but for the group itself (`init`: up to its scales, below)."""
    mine = parameters(cell)
    for name in mine.keys() & reference.keys():
        if mine[name].shape == reference[name].shape and drawn_as(mine[name]) == drawn_as(reference[name]):
            gain = getattr(mine[name], "gain", 1.0)
            assert torch.equal(mine[name], reference[name] * gain), name
    assert len(mine.keys() & reference.keys()) > 10


@pytest.mark.parametrize("cell", COVER, ids=name_of)
def test_initialisations_scale_the_same_normals(cell):
    """Biases are zero, but for torch's, which draws those of matrices, too; constants stay as they were built.

    Each variant's parameters by torch's and by another, to which they are no more than a role and a shape.
    """
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    for init in {cell["init"], "torch"}:
        config = configuration(cell | {"init": init})
        model = build_model(config, Blank(VOCAB, CONTEXT))
        raw = {name: p.detach().clone() for name, p in model.named_parameters()}
        initialise(model, build_init(config, Blank(VOCAB, CONTEXT)), 0)
        made, shapes, scales = dict(model.named_parameters()), shapes_of(model), deviations(config, model)
        assert len(scales) > 8
        for name, scale in scales.items():
            role, shape = shapes[name]
            expected = expected_numbers(init, role, draw_all(0, name, shape, role))
            torch.testing.assert_close(made[name].detach().double() / scale, expected, rtol=1e-5, atol=1e-6)
        for name, (role, shape) in shapes.items():
            if role == "bias" and init == "torch":
                bound = made[name.removesuffix("bias") + "weight"].shape[1] ** -0.5
                expected = expected_numbers("torch", "bias", draw(0, name, shape)) * bound / math.sqrt(3)
                torch.testing.assert_close(made[name].detach().double(), expected, rtol=1e-5, atol=1e-6)
            elif role in ("bias", "constant"):
                assert torch.equal(made[name], raw[name] if role == "constant" else 0 * raw[name]), name
    assert torch.equal(before[0], torch.get_rng_state()), "global random state is left alone"
    assert (before[1] == np.random.get_state()[1]).all() and before[2] == random.getstate()  # type: ignore[index]


# ---- what is drawn


@every_init
def test_scales_are_the_published_ones(init):
    cell = {"ffn": "swiglu", "init": init, "position": "learned"}
    config = configuration(cell, dim=64, layers=3, tie_embeddings=False)
    model = build_model(config, Blank(VOCAB, CONTEXT))
    for name, scale in deviations(config, model).items():
        role, shape = shapes_of(model)[name]
        assert scale == pytest.approx(published(init, 3, 64, role, shape)), name


def test_roles_are_what_the_parameters_do():
    roles = {name.split("blocks.0.")[-1]: role for name, (role, _) in shapes_of(built(tie_embeddings=False)).items()}
    assert roles["embed.weight"] == "embedding" and roles["head.weight"] == "head"
    assert {roles[f"attention.{name}.weight"] for name in ("query", "key", "value")} == {"in"}
    assert roles["attention.out.weight"] == roles["ffn.down.weight"] == "out" and roles["ffn.up.weight"] == "in"
    assert roles["ffn.up.bias"] == roles["ffn.down.bias"] == "bias"
    assert roles["norms.0.weight"] == roles["norms.0.bias"] == "constant"
    assert shapes_of(built({"position": "learned"}))["position.table.weight"][0] == "position"
    across = shapes_of(built(form=("encoder_decoder", "seq2seq")))
    roles = {name: across[f"decoder.blocks.0.cross_attention.{name}.weight"][0] for name in ("query", "value", "out")}
    assert roles == {"query": "in", "value": "in", "out": "out"}


def test_bert_s_head_has_a_bias_from_torch_s_initialisation_alone():
    for init, is_drawn in (("torch", True), ("gpt2", False)):
        bias = built({"init": init}, form=("bert", "mlm")).get_parameter("head.bias").detach()
        assert bool(bias.any()) == is_drawn and bias.abs().max() <= 16**-0.5


def test_an_init_of_ones_own_needs_a_scale_alone():
    class Ones(Init):
        def scale(self, role: str, fan_in: int, fan_out: int) -> float:
            return 1.0

    layer = tag(nn.Linear(5, 7), "in")
    initialise(layer, Ones(), 0)
    assert torch.equal(layer.weight, draw(0, "weight", (7, 5))) and not layer.bias.any()
    with pytest.raises(NotImplementedError):
        Init().scale("in", 1, 1)
    assert Xavier(64, 2.0).scale("in", 30, 20) == pytest.approx(0.4) and Xavier(64, 2.0).scale("head", 64, 9) == 1 / 8


@pytest.mark.parametrize(("init", "key"), [("gpt2", "std"), ("xavier", "gain"), ("small_embed", "embedding_std")])
def test_impossible_scales_are_refused(init, key):
    make = bind("init", component("init", init) | {key: -1.0}, {"layers": 2, "dim": 16})
    with pytest.raises(BadComponent, match="must be ≥ 0") as caught:
        make()
    assert caught.value.key == f"init.{key}"


# ---- shared draws


def test_shared_draws_of_depths_widths_and_roles():
    reference, deeper = shapes_of(built()), shapes_of(built(layers=3))
    drawn = {name: math.prod(shape) for name, (role, shape) in deeper.items() if role not in ("bias", "constant")}
    assert shared_draws(reference, deeper) == 1 == shared_draws(shapes_of(built(share_layers=True)), reference)
    expected = sum(n for name, n in drawn.items() if name in reference) / sum(drawn.values())
    assert shared_draws(deeper, reference) == pytest.approx(expected)
    base: Shapes = {"a": ("in", (4, 6)), "b": ("out", (6, 4)), "c": ("constant", (9,))}
    assert shared_draws(base, {"a": ("in", (2, 6)), "b": ("out", (6, 3))}) == (12 + 18) / 48
    assert shared_draws(base, {"a": ("in", (9, 6)), "b": ("out", (6, 9))}) == 1
    assert shared_draws(base, {"a": ("out", (4, 6)), "b": ("constant", (6, 4))}) == 0
    assert shared_draws(base, {"a": ("head", (4, 6))}) == 24 / 48
    assert shared_draws({"c": ("constant", (9,))}, base) == 0
