"""How blocks and the whole Decoder are wired, against the same formulas composed by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from test_variants import CONTEXT, VOCAB, built, read, some_tokens, variants
from torch import Tensor, nn

from ablate.build import WIRING, bind
from ablate.model.dropout import Dropout, rekey
from ablate.model.norm import LayerNorm
from ablate.model.position import Position
from ablate.model.residual import PostNorm, PreNorm

DIM = 6
every = pytest.mark.parametrize("variant", variants("residual"))


class Mix(nn.Module):
    """A stand-in for attention: mixes positions, and notes what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(DIM, DIM)
        self.given: list[tuple[Any, bool, Any]] = []

    def forward(self, x: Tensor, position: Position, causal: bool, mask: Tensor | None = None) -> Tensor:
        self.given.append((position, causal, mask))
        return self.inner(x).cumsum(-2)


class Noted(LayerNorm):
    """A norm that notes its mask."""

    mask: Any = "none given"

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.mask = mask
        return super().forward(x, mask)


def block(make: Any, **more: Any) -> Any:
    """A block in float64 whose norms differ."""
    ffn = nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh())
    made = make(attention=Mix(), ffn=ffn, norm=lambda: Noted(DIM, 1e-5), **more)
    for norm in made.norms:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return made.double()


def some(*shape: int) -> Tensor:
    """Numbers in float64."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_pre_norm_formula(dropout: float) -> None:
    made, x, position = block(PreNorm, dropout=dropout), some(2, 4, DIM), Position()
    rekey(made, 0, 0)
    mid = x + made.dropouts[0](made.attention(made.norms[0](x), position, True))
    expected = mid + made.dropouts[1](made.ffn(made.norms[1](mid)))
    torch.testing.assert_close(made(x, position, True), expected)
    assert made.final_norm


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_post_norm_formula(dropout: float) -> None:
    made, x, position = block(PostNorm, dropout=dropout), some(2, 4, DIM), Position()
    rekey(made, 0, 0)
    mid = made.norms[0](x + made.dropouts[0](made.attention(x, position, True)))
    expected = made.norms[1](mid + made.dropouts[1](made.ffn(mid)))
    torch.testing.assert_close(made(x, position, True), expected)
    assert not made.final_norm


def from_disk(variant: str) -> Any:
    """A residual style as its YAML describes it, around stand-ins."""
    offered = {"dim": DIM, "heads": 2, "head_dim": 3, "layers": 2, "dropout": 0.0, "context": 12}
    return block(bind("residual", read("residual", variant), offered | dict.fromkeys(WIRING)))


@every
def test_hands_position_causality_and_mask_on(variant: str) -> None:
    for mask in (None, torch.ones(2, 4)):
        for causal in (False, True):
            made, position = from_disk(variant), Position()
            made(some(2, 4, DIM), position, causal, mask)
            assert all(p is position and c is causal and m is mask for p, c, m in made.attention.given)
            assert made.attention.given and all(norm.mask is mask for norm in made.norms)


@every
def test_what_the_sublayers_add_is_dropped_at_sites_of_their_own(variant: str) -> None:
    made = built({"residual": variant}, dropout=0.3)
    sites = [name for name, module in made.named_modules() if isinstance(module, Dropout)]
    assert len(sites) >= 1 + 2 * (1 + 2)  # embeddings; shares and two sublayers of two blocks
    rekey(made, 0, 0)
    assert len({int(module.key) for module in made.modules() if isinstance(module, Dropout)}) == len(sites)


@every
@pytest.mark.parametrize("share", [False, True], ids=["own layers", "shared layers"])
@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("scale", [False, True], ids=["plain", "scaled"])
def test_decoder_formula(variant: str, share: bool, tie: bool, scale: bool) -> None:
    cell = {"residual": variant, "position": "learned"}
    model: Any = built(cell, share_layers=share, tie_embeddings=tie, scale_embeddings=scale).double()
    tokens = some_tokens()
    x = model.embed.weight[tokens] * (4.0 if scale else 1.0) + model.position.table.weight[:CONTEXT]
    assert len(model.blocks) == 2
    assert (model.blocks[0].attention.query.weight is model.blocks[1].attention.query.weight) == share
    for layer in model.blocks:
        x = layer(x, model.position, True)
    if model.blocks[0].final_norm:
        x = model.final_norm(x)
    else:
        assert model.final_norm is None
    torch.testing.assert_close(model(tokens), x @ (model.embed if tie else model.head).weight.T)
    assert model(tokens).shape == (3, CONTEXT, VOCAB)


@every
def test_dropout_falls_on_the_embeddings_too(variant: str) -> None:
    model: Any = built({"residual": variant, "position": "learned"}, dropout=0.3).double()
    rekey(model, 0, 0)
    tokens = some_tokens()
    x = model.dropout(model.position.embed(model.embed(tokens)))
    assert (x == 0).double().mean() > 0.2
    for layer in model.blocks:
        x = layer(x, model.position, True)
    torch.testing.assert_close(model(tokens), model.head(x if model.final_norm is None else model.final_norm(x)))


@pytest.mark.parametrize("variant", ["pre", "post"])
def test_a_stack_ends_in_a_normed_stream(variant: str) -> None:
    """Whoever owns the last norm, what the head reads has unit scale for any scale of the embeddings."""
    model: Any = built({"residual": variant, "norm": "ln"}).double()
    read_by_head: list[Tensor] = []
    model.head.register_forward_pre_hook(lambda module, given: read_by_head.append(given[0]))
    with torch.no_grad():
        model.embed.weight.mul_(50)
        model(some_tokens())
    variance = read_by_head[0].var(-1, correction=0)
    torch.testing.assert_close(variance, torch.ones_like(variance), rtol=0.01, atol=0)


def test_partial_norms_get_the_mask_by_name() -> None:
    """A norm of the user's own may take more than a mask: it is passed by keyword."""

    class Odd(LayerNorm):
        def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
            return super().forward(x, mask)

    made = PreNorm(Mix(), nn.Linear(DIM, DIM), partial(Odd, DIM, 1e-5), 0.0)
    assert made(torch.ones(1, 2, DIM), Position(), True, torch.ones(1, 2)).isfinite().all()
