"""Formulas of residual styles, and stand-ins for the sublayers that they join."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.norm import LayerNorm
from ablate.model.position import Places
from ablate.model.residual import Sublayers

DIM = 6


Map = Callable[[Tensor], Tensor]


class Mix(nn.Module):
    """A stand-in for attention: mixes positions of what it attends to, and notes what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.given: list[tuple[Any, bool, Any, Any]] = []

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:
        self.given.append((places, causal, mask, memory))
        source = self.inner(x if memory is None else memory)
        return self.outer(x).tanh() + (source.cumsum(-2) if causal else source.sum(-2, keepdim=True))


class Noted(LayerNorm):
    """A norm that notes its mask."""

    mask: Any = "none given"

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.mask = mask
        return super().forward(x, mask)


def passed(block: Any, x: Tensor, *given: Any) -> Tensor:
    """What a stack of one block makes of embeddings."""
    left: Tensor = block.leave(block(block.enter(x), *given))
    return left


def sublayers(cross: nn.Module | None = None, ffn: nn.Module | None = None) -> Sublayers:
    """Stand-ins for what a block joins."""
    return Sublayers(Mix(), cross, ffn, lambda: Noted(DIM, 1e-5))


# What sublayer f of place i makes of the stream x, where sublayers follow one another; d is its dropout.
STEPS: dict[str, Callable[[Any, Tensor, Map, Map, int], Tensor]] = {
    "pre": lambda block, x, f, d, i: x + d(f(block.norms[i](x))),
    "post": lambda block, x, f, d, i: block.norms[i](x + d(f(x))),
    "sandwich": lambda block, x, f, d, i: x + d(block.norms[2 * i + 1](f(block.norms[2 * i](x)))),
    "res_post": lambda block, x, f, d, i: x + d(block.norms[i](f(x))),
    "rezero": lambda block, x, f, d, i: x + block.alpha.item() * d(f(x)),
    "layerscale": lambda block, x, f, d, i: x + d(f(block.norms[i](x)) @ torch.diag(block.scales[i])),
    # for 2 layers of a decoder, or of the decoder beside an encoder
    "deepnorm": lambda block, x, f, d, i: block.norms[i]((6 if block.cross_attention else 4) ** 0.25 * x + d(f(x))),
    "none": lambda block, x, f, d, i: d(f(block.norms[i](x))),
}


def by_steps(name: str) -> Any:
    """A style of which STEPS holds the step."""

    def formula(block: Any, x: Tensor, f: list[Map]) -> Tensor:
        for i in range(len(f)):
            x = STEPS[name](block, x, f[i], block.dropouts[i], i)
        return x

    return formula


def parallel(block: Any, x: Tensor, f: list[Map]) -> Tensor:
    """x + Σ f(norm(x)), all of the same x."""
    return x + torch.stack([block.dropouts[i](f[i](block.norms[i](x))) for i in range(len(f))]).sum(0)


def hyper_connections(block: Any, x: Tensor, f: list[Map]) -> Tensor:
    """Streams one by one: s_j ← Σ_i A_ij s_i + b_j f(norm(Σ_i m_i s_i)), weights w + scale · tanh(norm(s_i) · W)."""
    streams = [x] * 4
    for i in range(len(f)):
        own, weights = block.connections[i], []
        for stream, static in zip(streams, own.static.view(4, 6), strict=True):
            normed = F.layer_norm(stream, x.shape[-1:], eps=1e-5)
            found = torch.tanh(torch.stack([(normed * row).sum(-1, keepdim=True) for row in own.dynamic]))
            weights.append([static[k] + own.scales[min(k, 1)] * found[k] for k in range(6)])
        mixed = [torch.stack([w[k] * s for w, s in zip(weights, streams, strict=True)]).sum(0) for k in range(1, 6)]
        added = block.dropouts[i](f[i](block.norms[i](mixed[0])))
        streams = [kept + w[0] * added for kept, w in zip(mixed[1:], weights, strict=True)]
    return torch.stack(streams).mean(0)


FORMULAS = (parallel, hyper_connections)


WIRED: dict[str, Any] = {name: by_steps(name) for name in STEPS} | {formula.__name__: formula for formula in FORMULAS}
