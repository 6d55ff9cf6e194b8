"""Attention's options beside one another, each pair at least once, against loops over queries in float64."""

import itertools
import random
from typing import Any

import pytest
import torch
from attentions import DIM, HEADS, SHAPE, from_disk, randomised, turned
from empty_task import Blank, some_shape
from model_variants import SCORING, configuration
from tensors import some, some_mask
from torch import Tensor

from ablate.model.attention import GQA
from ablate.model.build import initialised_model
from ablate.model.cost import count
from ablate.model.position import Places, RoPE

B, T, D = 3, 6, 4
EPS = 1e-3  # large enough to be seen
OPTIONS: dict[str, list[Any]] = {
    "kv_heads": [None, 2, 1],
    "qk_norm": [None, *((kind, over) for kind in ("rms", "ln") for over in ("head", "all"))],
    "window": [None, 1, 3],
    "chunk": [None, 2, 4],
    "gate": [None, "feature", "head"],
    "sink": [None, "learned", "zero"],
    "soft_cap": [None, 0.5],
    "bias": [False, True],
    "scale": [None, 0.7],
    "where": ["causal", "both ways", "across"],
    "places": ["none", "turned", "biased heated", "turned biased", "turned heated"],
    "mask": ["none", "right", "holes"],
}


def every_pair() -> list[dict[str, Any]]:
    """Rows of options that hold each pair of values of each two of them."""
    draw, rows = random.Random(0), list[dict[str, Any]]()
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(OPTIONS, 2)
        for i, j in itertools.product(range(len(OPTIONS[a])), range(len(OPTIONS[b])))
    }
    while missing:
        tries = [{name: draw.randrange(len(values)) for name, values in OPTIONS.items()} for _ in range(30)]
        best = max(tries, key=lambda row: len(missing & {*itertools.combinations(row.items(), 2)}))
        missing -= {*itertools.combinations(best.items(), 2)}
        rows.append({name: OPTIONS[name][i] for name, i in best.items()})
    return rows


def made(row: dict[str, Any]) -> GQA:
    """Attention with a row's options, all of its numbers drawn."""
    kind, over = row["qk_norm"] or (None, None)
    more = {name: row[name] for name in ("window", "chunk", "gate", "sink", "soft_cap")}
    more |= {"qk_norm": kind, "over": over, "eps": EPS if kind else None}
    attention: GQA = randomised(GQA(SHAPE, row["kv_heads"], row["bias"], row["scale"], **more))
    return attention


def normed(x: Tensor, norm: Any, row: dict[str, Any]) -> Tensor:
    """(T, H · D) of one projection, by the formulas of the norms."""
    if row["qk_norm"] is None:
        return x
    kind, over = row["qk_norm"]
    pieces = x.split(D, -1) if over == "head" else [x]
    shift = 1.0 if kind == "ln" else 0.0
    centred = [piece - shift * piece.mean(-1, keepdim=True) for piece in pieces]
    found = [piece / (piece.square().mean(-1, keepdim=True) + EPS).sqrt() * norm.weight for piece in centred]
    return torch.cat([piece + norm.bias if kind == "ln" else piece for piece in found], -1)


def projected(layer: Any, x: Tensor, has_bias: bool) -> Tensor:
    """W x + b."""
    assert (layer.bias is not None) == has_bias
    return x @ layer.weight.T + (layer.bias if has_bias else 0)


def by_loops(a: Any, row: dict[str, Any], x: Tensor, source: Tensor, seen: Tensor, bias: Tensor | None) -> Tensor:
    """One example: x (T, C), source (S, C), what each query sees (T, S), a bias (H, T, S) -> (T, C)."""
    has, turns = row["bias"], "turned" in row["places"] and row["where"] != "across"
    query = normed(projected(a.query, x, has), a.query_norm, row)
    key = normed(projected(a.key, source, has), a.key_norm, row)
    value, rows = projected(a.value, source, has), []
    for t in range(len(x)):
        found = []
        for h in range(HEADS):
            g = h * (row["kv_heads"] or HEADS) // HEADS
            q, k, v = query[t, h * D : h * D + D], key[:, g * D : g * D + D], value[:, g * D : g * D + D]
            q, k = (turned(q, t), torch.stack([turned(each, s) for s, each in enumerate(k)])) if turns else (q, k)
            scores = k @ q * (row["scale"] or 0.5) * (1 + t if "heated" in row["places"] else 1)
            scores = scores if row["soft_cap"] is None else row["soft_cap"] * torch.tanh(scores / row["soft_cap"])
            weights = (scores + (0 if bias is None else bias[h, t])).exp() * seen[t]
            extra = {None: 0.0, "zero": 1.0, "learned": a.sink[h].exp() if row["sink"] else 0}[row["sink"]]
            found.append((weights[:, None] * v).sum(0) / (weights.sum() + extra))
        if row["gate"]:
            gates = 1 / (1 + (-projected(a.gate, x[t], has)).exp())
            per_head = gates.split(D) if row["gate"] == "feature" else gates.split(1)
            found = [gate * each for gate, each in zip(per_head, found, strict=True)]
        rows.append(projected(a.out, torch.cat(found), has))
    return torch.stack(rows)


@pytest.mark.parametrize("row", every_pair(), ids=lambda row: "-".join(str(value) for value in row.values()))
def test_options_do_beside_any_other_what_they_do_alone(row):
    attention, x, across, causal = made(row), some(B, T, DIM), row["where"] == "across", row["where"] == "causal"
    memory = some(B, T, DIM, seed=5) if across else None
    mask, t = some_mask(row["mask"]), torch.arange(T)
    bias = some(HEADS, T, T, seed=8) if "biased" in row["places"] else None
    rotation = RoPE(D, 100.0).places(x, True).rotation if "turned" in row["places"] and not across else None
    with torch.no_grad():
        heat = 1 + t if "heated" in row["places"] else None
        got = attention(x, Places(rotation, bias, temperature=heat), causal, mask, memory)
    near = torch.ones(T, T, dtype=torch.bool).tril(0 if causal else T)
    if row["window"] is not None and not across:
        near = near & ((t[:, None] - t).abs() < row["window"])
    if row["chunk"] is not None and not across:
        near = near & (t[:, None] // row["chunk"] == t // row["chunk"])
    for b in range(1, B):  # of masks the first row has none padded
        seen = near if mask is None else near & mask[b].bool()
        source, anything = x[b] if memory is None else memory[b], seen.any(-1)
        expected = by_loops(attention, row, x[b], source, seen, bias).detach()
        assert float((got[b] - expected)[anything].abs().max()) < 1e-10
    assert got.isfinite().all(), "a query that sees no key finds numbers nevertheless"


@pytest.mark.parametrize("variant", ["mha", "gated", "qk_norm"])
def test_every_variant_takes_every_option(variant):
    attention = from_disk(variant, window=3, sink="learned", soft_cap=20.0, qk_norm="ln", gate="head")
    names = {name.rpartition(".")[0] or name for name, _ in attention.named_parameters()}
    assert names == {"query", "key", "value", "out", "query_norm", "key_norm", "gate", "sink"}
    assert attention.gate.out_features == HEADS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_heads": 3}, "^kv_heads must divide the 4 heads, not 3$"),
        ({"kv_heads": -1}, "^kv_heads must divide the 4 heads, not -1$"),
        ({"soft_cap": 0.0}, "^soft_cap must be > 0"),
        ({"window": 0}, "^window must be ≥ 1"),
        ({"chunk": 0}, "^chunk must be ≥ 1"),
        ({"over": "all"}, "write qk_norm"),
        ({"eps": 1e-6}, "write qk_norm"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        GQA(**{"shape": SHAPE, "kv_heads": None, "bias": False, "scale": None} | options)


@pytest.mark.parametrize("variant", SCORING)  # of mixers: test_mixers.py
def test_a_position_s_bias_reaches_the_scores(variant):
    """With a bias against all others every position attends to itself alone."""
    attention, x, t = from_disk(variant), some(3, 5, DIM), torch.arange(5)
    alone = Places(None, -1e4 * (t[:, None] - t).abs().double().expand(HEADS, 5, 5))
    for causal in (False, True):
        one_by_one = torch.cat([attention(x[:, i : i + 1], Places(), causal) for i in range(5)], 1)
        torch.testing.assert_close(attention(x, alone, causal), one_by_one)


def test_a_sink_starts_as_softmax_off_by_one():
    learned, zero = (GQA(some_shape(8), None, False, None, sink=sink) for sink in ("learned", "zero"))  # type: ignore[arg-type]
    assert zero.load_state_dict({name: x for name, x in learned.state_dict().items() if name != "sink"})
    x = some(2, 5, 8).float()
    assert torch.equal(learned(x, Places(), True), zero(x, Places(), True))


def test_heads_may_be_of_any_size():
    """Projections, rotations and counts go by model.head_dim; without it heads must divide the dim."""
    config = configuration({}, heads=3, head_dim=10)
    attention = initialised_model(config, Blank(13, 12), 0).blocks[0].attention  # type: ignore[union-attr, index]
    assert attention.query.weight.shape == attention.value.weight.shape == (30, 16)  # type: ignore[union-attr]
    assert attention.out.weight.shape == (16, 30) and attention.scale == 10**-0.5  # type: ignore[union-attr]
    plain, wide = (count(configuration({}, head_dim=size), Blank(13, 12)) for size in (None, 10))
    assert wide.params - plain.params == 2 * 4 * 16 * 2 * 2, "layers × matrices × dim × heads × features more"
    with pytest.raises(ValueError, match="must be divisible"):
        initialised_model(configuration({}, heads=3), Blank(13, 12), 0)
