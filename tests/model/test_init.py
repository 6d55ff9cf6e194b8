"""Draws: keyed by (seed, name) alone, nested, shared by variants; scales against formulas of their own."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from empty_task import Blank
from scipy import stats
from test_variants import CONTEXT, VOCAB, built, configuration, covering, each_cell, read, variants
from torch import Tensor, nn

from ablate.config.components import bind
from ablate.config.schema import Config
from ablate.model.build import build_init, build_model
from ablate.model.init import (
    GPT2,
    Init,
    SmallEmbed,
    SmallInit,
    Torch,
    Xavier,
    draw,
    draw_all,
    drawn_as,
    initialise,
    role_of,
    shared_draws,
    tag,
)

every_init = pytest.mark.parametrize("init", variants("init"))
Shapes = dict[str, tuple[str, tuple[int, ...]]]


def parameters(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
    """Name -> parameter of an initialised model."""
    return dict(built(*args, **kwargs).named_parameters())


def shapes_of(model: nn.Module) -> Shapes:
    """Name -> (role, shape)."""
    return {name: (role_of(p), tuple(p.shape)) for name, p in model.named_parameters()}


def deviations(config: Config, model: nn.Module) -> dict[str, float]:
    """Name -> standard deviation of the draws of each matrix that is drawn."""
    init, gains = (
        build_init(config, Blank(VOCAB, CONTEXT)),
        {name: getattr(p, "gain", 1.0) for name, p in model.named_parameters()},
    )
    drawn = {name: row for name, row in shapes_of(model).items() if row[0] not in ("bias", "constant")}
    # Of many matrices in one parameter each is (in, out).
    fans = {name: shape[1:] if len(shape) == 3 else shape[::-1] for name, (_, shape) in drawn.items()}
    own = {name: p.own_std for name, p in model.named_parameters() if hasattr(p, "own_std")}
    return {name: own.get(name) or init.scale(r, *fans[name]) * gains[name] for name, (r, _) in drawn.items()}


def probability(init: str, role: str, z: np.ndarray) -> np.ndarray:
    """The distribution function of an initialisation's numbers, brought to variance 1."""
    if init == "torch" and role not in ("embedding", "position"):
        return stats.uniform.cdf(z, -math.sqrt(3), 2 * math.sqrt(3))
    return stats.norm.cdf(z)


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


def test_draws_are_what_they_have_always_been() -> None:
    """Published numbers depend on these streams; whoever changes them ends every pairing with older runs."""
    torch.testing.assert_close(
        draw(0, "embed.weight", (2, 3)),
        torch.tensor([[-1.2812974, 0.02144598, -2.1729517], [-0.84505475, 0.40012953, 1.4495935]]),
    )
    torch.testing.assert_close(draw(1, "blocks.0.ffn.up.weight", (2,)), torch.tensor([1.3091302, 0.45373824]))


def test_draws_are_nested() -> None:
    wide, tall = draw(0, "x", (9, 5)), draw(0, "x", (5, 9), by_column=True)
    for n in range(1, 9):
        assert torch.equal(draw(0, "x", (n, 5)), wide[:n])
        assert torch.equal(draw(0, "x", (5, n), by_column=True), tall[:, :n])
    assert torch.equal(draw(0, "x", (4,)), wide[0, :4])


def test_draws_of_other_names_and_seeds_are_independent() -> None:
    drawn = [draw(seed, name, (4000,)).numpy() for seed in (0, 1) for name in ("a", "b", "a.b", "1/a")]
    correlation = np.corrcoef(drawn)
    np.fill_diagonal(correlation, 0)
    assert abs(correlation).max() < 5 / math.sqrt(4000)
    assert len({tuple(row[:3]) for row in drawn}) == len(drawn)


@each_cell
def test_a_variant_leaves_every_other_parameter_alone(cell: dict[str, str]) -> None:
    """Bit for bit, whatever is swapped in, but for the group itself (`init`: up to its scales, below)."""
    if "init" in cell:
        return
    mine, reference = parameters(cell), parameters()
    for name in mine.keys() & reference.keys():
        if mine[name].shape == reference[name].shape and drawn_as(mine[name]) == drawn_as(reference[name]):
            gain = getattr(mine[name], "gain", 1.0)
            assert torch.equal(mine[name], reference[name] * gain), name
    assert len(mine.keys() & reference.keys()) > 10


HIDDEN = [name for name in variants("ffn") if "hidden" in read("ffn", name)]


@pytest.mark.parametrize(("ffn", "init"), zip(HIDDEN, itertools.cycle(variants("init"))))
def test_a_narrower_ffn_is_the_leading_part_of_a_wider_one(ffn: str, init: str) -> None:
    made = []
    for hidden in (24, 40):
        config = configuration({"ffn": ffn, "init": init})
        config.ffn["hidden"] = hidden
        model = build_model(config, Blank(VOCAB, CONTEXT))
        initialise(model, build_init(config, Blank(VOCAB, CONTEXT)), 3)
        made.append((deviations(config, model), dict(model.named_parameters())))
    (small, narrow), (large, wide) = made
    seen = set()
    for name, parameter in narrow.items():
        if ".ffn." not in name or ".router." in name or parameter.ndim < 2:
            continue
        by_column = (".down" in name) != (parameter.ndim == 3)
        leading = wide[name][..., :24] if by_column else wide[name][..., :24, :]
        assert wide[name].shape != parameter.shape
        if small[name] == large[name]:
            assert torch.equal(parameter, leading), name
        torch.testing.assert_close(parameter / small[name], leading / large[name])
        seen |= {"up", "down"} & {*name.split(".")}
    assert len(seen) == 2 and (init == "xavier" or small.items() & large.items())


@every_init
def test_a_deeper_model_begins_with_a_shallower_one_s_draws(init: str) -> None:
    scales, made = [], []
    for layers in (2, 3):
        made.append(built({"init": init}, layers=layers))
        scales.append(deviations(configuration({"init": init}, layers=layers), made[-1]))
    shallow, deep = (dict(model.named_parameters()) for model in made)
    assert shallow.keys() < deep.keys()
    for name, parameter in shallow.items():
        factor = scales[0].get(name, 1.0) / scales[1].get(name, 1.0)
        torch.testing.assert_close(parameter, deep[name] * factor)


@covering
def test_initialisations_scale_the_same_normals(cell: dict[str, str]) -> None:
    """Biases are zero, but for torch's, which draws those of matrices, too; constants stay as they were built."""
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    for init in variants("init"):
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


def test_neither_order_nor_global_state_matter() -> None:
    """Nor the default device's type, nor what was drawn before."""

    class Pair(nn.Module):
        def __init__(self, names: str):
            super().__init__()
            for name in names:
                setattr(self, name, tag(nn.Linear(3, 4), "in"))

    made = []
    for seed, names in ((0, "ab"), (99, "ba"), (5, "cba")):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        pair = Pair(names)
        initialise(pair, GPT2(2, 0.02), 7)
        made.append(dict(pair.named_parameters()))
    assert all(torch.equal(made[0][name], other[name]) for other in made[1:] for name in made[0])


def test_seeds_differ_and_repeat() -> None:
    first, again, other = parameters(seed=0), parameters(seed=0), parameters(seed=1)
    for name, parameter in first.items():
        assert torch.equal(parameter, again[name])
        if parameter.ndim > 1:
            assert not (parameter == other[name]).any()


def test_the_accelerators_seeds_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    build_model(configuration(), Blank(VOCAB, CONTEXT))
    assert not seeded


# ---- what is drawn


@every_init
@pytest.mark.parametrize("ffn", ["mlp", "swiglu"])
def test_scales_are_the_published_ones(ffn: str, init: str) -> None:
    cell = {"ffn": ffn, "init": init, "position": "learned"}
    config = configuration(cell, dim=64, layers=3, tie_embeddings=False)
    model = build_model(config, Blank(VOCAB, CONTEXT))
    for name, scale in deviations(config, model).items():
        role, shape = shapes_of(model)[name]
        assert scale == pytest.approx(published(init, 3, 64, role, shape)), name


def test_roles_are_what_the_parameters_do() -> None:
    roles = {name.split("blocks.0.")[-1]: role for name, (role, _) in shapes_of(built(tie_embeddings=False)).items()}
    assert roles["embed.weight"] == "embedding" and roles["head.weight"] == "head"
    assert {roles[f"attention.{name}.weight"] for name in ("query", "key", "value")} == {"in"}
    assert roles["attention.out.weight"] == roles["ffn.down.weight"] == "out" and roles["ffn.up.weight"] == "in"
    assert roles["ffn.up.bias"] == roles["ffn.down.bias"] == "bias"
    assert roles["norms.0.weight"] == roles["norms.0.bias"] == "constant"
    assert shapes_of(built({"position": "learned"}))["position.table.weight"][0] == "position"


@every_init
def test_numbers_are_normal_and_as_wide_as_they_should_be(init: str) -> None:
    cell, shape = {"init": init, "ffn": "swiglu", "position": "learned"}, {"dim": 64, "tie_embeddings": False}
    model, pooled = built(cell, **shape), []
    made = dict(model.named_parameters())
    for name, scale in deviations(configuration(cell, **shape), model).items():
        z = made[name].detach().double().flatten().numpy() / scale
        n = len(z)
        assert abs(z.mean()) < 4.5 / math.sqrt(n) and abs(z.std() - 1) < 4.5 / math.sqrt(2 * n), name
        u = probability(init, role_of(made[name]), z)
        assert stats.kstest(u, "uniform").pvalue > 1e-4, name
        pooled.append(u)
    u = np.concatenate(pooled)
    assert len(u) > 80_000 and stats.kstest(u, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4.5 / math.sqrt(len(u))


def test_torch_s_numbers_are_those_of_torch_s_own_layers() -> None:
    """Distributions of our draws and of nn.Linear's and nn.Embedding's reset, weights and biases."""
    mine, theirs = nn.Linear(50, 4000), nn.Linear(50, 4000)
    table, their_table = nn.Embedding(400, 50), nn.Embedding(400, 50)
    model = nn.ModuleDict({"linear": tag(mine, "in"), "table": tag(table, "embedding")})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs.reset_parameters()
        their_table.reset_parameters()
    initialise(model, Torch(), 0)
    bound = 50**-0.5
    for ours, other in ((mine.weight, theirs.weight), (mine.bias, theirs.bias)):
        assert 0.99 * bound < float(ours.detach().abs().max()) <= bound * (1 + 1e-6)
        assert float(ours.std()) == pytest.approx(float(other.std()), rel=0.03)
        assert stats.ks_2samp(ours.detach().flatten().numpy(), other.detach().flatten().numpy()).pvalue > 1e-3
        assert not torch.equal(ours, other)
    assert stats.ks_2samp(table.weight.detach().flatten(), their_table.weight.detach().flatten()).pvalue > 1e-3
    assert float(table.weight.std()) == pytest.approx(1, rel=0.03)


def test_torch_s_bias_of_bert_s_head_is_as_small_as_its_matrix() -> None:
    """It stands beside a map from dim features, though it is no part of an nn.Linear."""
    config = configuration({"model": "bert", "init": "torch"})
    model: Any = build_model(config, Blank(VOCAB, CONTEXT, "mlm"))
    initialise(model, build_init(config, Blank(VOCAB, CONTEXT)), 0)
    assert 0 < float(model.head.bias.abs().max()) <= 0.25 and role_of(model.head.bias) == "bias"


@pytest.mark.parametrize("model", ["encoder", "bert", "encoder_decoder"])
@every_init
def test_other_forms_are_drawn_by_the_same_rules(model: str, init: str) -> None:
    config = configuration({"model": model, "init": init})
    made = build_model(config, Blank(VOCAB, CONTEXT, "seq2seq" if model == "encoder_decoder" else "mlm"))
    initialise(made, build_init(config, Blank(VOCAB, CONTEXT)), 0)
    shapes, scales, named = shapes_of(made), deviations(config, made), dict(made.named_parameters())
    for name, scale in scales.items():
        role, shape = shapes[name]
        assert scale == pytest.approx(published(init, 2, 16, role, shape)), name
        expected = expected_numbers(init, role, draw(0, name, shape, role == "out"))
        torch.testing.assert_close(named[name].detach().double() / scale, expected, rtol=1e-5, atol=1e-6)
    assert all(row[0] == "bias" for name, row in shapes.items() if name.endswith("bias") and "norm" not in name)


@every_init
@pytest.mark.parametrize("role", ["embedding", "position", "in", "out", "head"])
def test_a_gain_multiplies_whatever_is_drawn(init: str, role: str) -> None:
    made = []
    for gain in (None, 0.25):
        layer = tag(nn.Linear(5, 7), role)
        if gain:
            layer.weight.gain = gain
        initialise(layer, bind("init", read("init", init), {"layers": 2, "dim": 16})(), 0)
        made.append(layer)
    plain, scaled = made
    assert torch.equal(scaled.weight, 0.25 * plain.weight) and plain.weight.any()
    assert torch.equal(scaled.bias, plain.bias)


def test_an_init_of_ones_own_needs_a_scale_alone() -> None:
    class Ones(Init):
        def scale(self, role: str, fan_in: int, fan_out: int) -> float:
            return 1.0

    layer = tag(nn.Linear(5, 7), "in")
    initialise(layer, Ones(), 0)
    assert torch.equal(layer.weight, draw(0, "weight", (7, 5))) and not layer.bias.any()
    with pytest.raises(NotImplementedError):
        Init().scale("in", 1, 1)


def test_scales_by_number() -> None:
    assert SmallInit(dim=1000, layers=8).scale("in", 5, 7) == pytest.approx(0.02)
    assert SmallInit(dim=1000, layers=8).scale("out", 5, 7) == pytest.approx(0.005)
    assert GPT2(layers=8, std=0.02).scale("out", 5, 7) == pytest.approx(0.005)
    assert GPT2(layers=8, std=0.02).scale("in", 5, 7) == 0.02
    assert Xavier(dim=64, gain=2.0).scale("in", 30, 20) == pytest.approx(0.4)
    assert Xavier(dim=64, gain=2.0).scale("embedding", 64, 256) == 0.125
    assert SmallEmbed(8, 0.02, 1e-4).scale("embedding", 5, 7) == 1e-4
    assert [SmallEmbed(8, 0.02, 1e-4).scale(role, 5, 7) for role in ("position", "head", "in")] == [0.02] * 3
    assert SmallEmbed(8, 0.02, 1e-4).scale("out", 5, 7) == pytest.approx(0.005)
    assert Torch().scale("out", 12, 7) == Torch().bias(12) == pytest.approx(1 / 6)
    assert [Torch().scale(role, 12, 7) for role in ("embedding", "position")] == [1, 1]
    assert {init.bias(12) for init in (SmallInit(5, 2), GPT2(2, 0.1), Xavier(5, 1.0), SmallEmbed(2, 0.1, 0.1))} == {0.0}


@pytest.mark.parametrize(("init", "key"), [("gpt2", "std"), ("xavier", "gain"), ("small_embed", "embedding_std")])
def test_impossible_scales_are_refused(init: str, key: str) -> None:
    make = bind("init", read("init", init) | {key: -1.0}, {"layers": 2, "dim": 16})
    with pytest.raises(ValueError, match=rf"init\.{key}"):
        make()


@every_init
def test_tied_embeddings_are_one_parameter_with_the_embedding_s_draws(init: str) -> None:
    tied: Any = built({"init": init}, tie_embeddings=True)
    untied: Any = built({"init": init}, tie_embeddings=False)
    assert tied.head.weight is tied.embed.weight
    assert "head.weight" not in dict(tied.named_parameters())
    assert torch.equal(tied.embed.weight, untied.embed.weight)
    assert not torch.equal(untied.head.weight, untied.embed.weight)


# ---- shared draws

NOT_DRAWN = ("bias", "constant", "vectors")


def counted(mine: Shapes, theirs: Shapes) -> float:
    """The share, one number after another: drawn by both, and in the same place."""
    common = total = 0
    for name, (role, shape) in mine.items():
        if role in NOT_DRAWN:
            continue
        numbers = draw(0, name, shape, role == "out")
        total += numbers.numel()
        if name in theirs and theirs[name][0] not in NOT_DRAWN:
            other = draw(0, name, theirs[name][1], theirs[name][0] == "out")
            rows, columns = (min(pair) for pair in zip(numbers.shape, other.shape, strict=True))
            common += int((numbers[:rows, :columns] == other[:rows, :columns]).sum())
    return common / total


@each_cell
def test_shared_draws_of_variants_are_those_counted_by_hand(cell: dict[str, str]) -> None:
    tie = cell.get("embedding") != "random"  # what is frozen is no head
    mine, reference = drawn_shapes(built(cell, tie_embeddings=tie)), drawn_shapes(built())
    for one, other in ((mine, reference), (reference, mine)):
        by_chance = row_of_another_length(one, other)
        assert shared_draws(one, other) == pytest.approx(counted(one, other) - by_chance)
    assert shared_draws(mine, mine) == 1


def drawn_shapes(model: nn.Module) -> Shapes:
    """Name -> (role, shape), where what is written over by trained vectors has a role of its own."""
    return {name: (drawn_as(p), tuple(p.shape)) for name, p in model.named_parameters()}


def row_of_another_length(mine: Shapes, theirs: Shapes) -> float:
    """The share that lines up, and counts for nothing, in tables whose rows differ in length: one row's."""
    widths = [shapes["embed.weight"][1][1] for shapes in (mine, theirs)]
    total = sum(math.prod(shape) for role, shape in mine.values() if role not in NOT_DRAWN)
    return min(widths) / total if widths[0] != widths[1] else 0.0


def test_shared_draws_of_depths_widths_and_roles() -> None:
    reference = shapes_of(built())
    for change in ({"layers": 3}, {"layers": 1}, {"share_layers": True}, {"tie_embeddings": False}):
        other = shapes_of(built(**change))
        assert shared_draws(other, reference) == pytest.approx(counted(other, reference)), change
    wider = shapes_of(built(dim=24, heads=2))
    assert shared_draws(wider, reference) <= counted(wider, reference)  # rows of another length line up by chance only
    base: Shapes = {"a": ("in", (4, 6)), "b": ("out", (6, 4)), "c": ("constant", (9,))}
    assert shared_draws(base, {"a": ("in", (2, 6)), "b": ("out", (6, 3))}) == (12 + 18) / 48
    assert shared_draws(base, {"a": ("in", (9, 6)), "b": ("out", (6, 9))}) == 1
    assert shared_draws(base, {"a": ("out", (4, 6)), "b": ("constant", (6, 4))}) == 0
    assert shared_draws(base, {"a": ("head", (4, 6))}) == 24 / 48
    assert shared_draws({"c": ("constant", (9,))}, base) == 0
