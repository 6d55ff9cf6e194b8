"""Residual styles: a block owns its sublayers, where the norms stand, and how both are wired."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ablate.model.dropout import Dropout
from ablate.model.norm import NoNorm
from ablate.model.position import Places
from ablate.model.shape import Shape

Step = Callable[[Tensor], Tensor]


class Stream(NamedTuple):
    """What goes from block to block.

    x       the residual stream (B, T, C); a style that keeps several of them has one axis more
    values  those of the first layer's attention (B, H, T, D), once it made them, where later ones mix them in
    """

    x: Tensor
    values: Tensor | None = None


class Sublayers(NamedTuple):
    """What a block joins, and what makes the norms around it; `cross_attention` where it attends to a memory."""

    attention: nn.Module
    cross_attention: nn.Module | None
    ffn: nn.Module | None
    norm: Callable[[], nn.Module]


class Block(nn.Module):
    """Attention, where given attention to a memory, and FFN; a subclass says in `wire` how they are joined."""

    final_norm: bool  # whether the stack needs a norm after its last block
    norms_each = 1  # norms per sublayer
    streams = 1  # residual streams that go from block to block

    def __init__(self, shape: Shape, sublayers: Sublayers):
        super().__init__()
        self.attention, self.cross_attention, self.ffn, norm = sublayers
        self.masks_ffn = self.ffn is not None and "mask" in inspect.signature(self.ffn.forward).parameters
        count = sum(sublayer is not None for sublayer in sublayers[:3])
        self.norms = nn.ModuleList(norm() for _ in range(self.norms_each * count))
        self.dropouts = nn.ModuleList(Dropout(shape.dropout) for _ in range(count))

    def enter(self, x: Tensor) -> Stream:
        """What goes into the first block, of embeddings (B, T, C)."""
        return Stream(x)

    def leave(self, stream: Stream) -> Tensor:
        """What comes out of a block, as the stack ends with it: (B, T, C)."""
        return stream.x

    def forward(
        self,
        stream: Stream,
        places: Places,
        causal: bool,
        mask: Tensor | None = None,  # (B, T)
        memory: Tensor | None = None,  # (B, S, C)
        memory_mask: Tensor | None = None,  # (B, S)
    ) -> Stream:
        values = stream.values

        def attend(x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
            nonlocal values
            if not mixes_values(self.attention):
                return self.attention(x, places=places, causal=causal, mask=mask)
            values = self.attention.values(x) if values is None else values
            return self.attention(x, places=places._replace(values=values), causal=causal, mask=mask)

        sublayers: list[Step] = [attend]
        if self.cross_attention is not None:
            seen = {"places": Places(), "causal": False, "mask": memory_mask, "memory": memory}
            sublayers.append(partial(self.cross_attention, **seen))
        if self.ffn is not None:
            sublayers.append(partial(self.ffn, mask=mask) if self.masks_ffn else self.ffn)
        x = self.wire(stream.x, sublayers, [partial(norm, mask=mask) for norm in self.norms])
        return Stream(x, values)

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """Join the sublayers, each a function of x alone."""
        raise NotImplementedError


def mixes_values(attention: nn.Module) -> bool:
    """Whether an attention takes part in a value residual."""
    return getattr(attention, "value_residual", None) is not None


def connect_values(blocks: Sequence[Block]) -> None:
    """Have the attention of later layers mix in the first one's values, where it asks for it.  Raises ValueError."""
    first, *later = (block.attention for block in blocks)
    told = "attention.value_residual mixes in the values of the first layer"
    for attention in later:
        if mixes_values(attention) and not mixes_values(first):
            raise ValueError(f"{told}, whose {type(first).__name__} hands on none; begin with one that does")
        if mixes_values(attention):
            attention.follow()
    if mixes_values(first) and not any(map(mixes_values, later)):
        raise ValueError(f"{told}, and no later one does; write model.layers=2, or a pattern with later ones that do")


class PreNorm(Block):
    """x ← x + f(norm(x)) for each sublayer f, and a norm after the last block (Xiong 2020, arXiv 2002.04745).

    With `first_norm` false the first block's first sublayer reads x as it is (ModernBERT, arXiv 2412.13663).
    """

    final_norm = True

    def __init__(self, shape: Shape, sublayers: Sublayers, layer: int | None = None, first_norm: bool | None = None):
        super().__init__(shape, sublayers)
        if first_norm is False and layer == 0:
            self.norms[0] = NoNorm()

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        for f, norm, dropout in zip(sublayers, norms, self.dropouts, strict=True):
            x = x + dropout(f(norm(x)))
        return x


class PostNorm(Block):
    """x ← norm(x + f(x)) for each sublayer f (Vaswani 2017, arXiv 1706.03762)."""

    final_norm = False

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        for f, norm, dropout in zip(sublayers, norms, self.dropouts, strict=True):
            x = norm(x + dropout(f(x)))
        return x


class Sandwich(Block):
    """x ← x + norm'(f(norm(x))) for each sublayer f, and a final norm (Ding 2021, arXiv 2105.13290; Gemma 2)."""

    final_norm, norms_each = True, 2

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        for f, before, after, dropout in zip(sublayers, norms[::2], norms[1::2], self.dropouts, strict=True):
            x = x + dropout(after(f(before(x))))
        return x


class ResPost(Block):
    """x ← x + norm(f(x)) for each sublayer f, and a final norm (Liu 2021, arXiv 2111.09883; OLMo 2)."""

    final_norm = True

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        for f, norm, dropout in zip(sublayers, norms, self.dropouts, strict=True):
            x = x + dropout(norm(f(x)))
        return x


class Parallel(Block):
    """x ← x + Σ f(norm_f(x)) over all sublayers f, and a final norm (Wang & Komatsuzaki 2021, GPT-J; GPT-NeoX).

    With norms `shared` one norm serves all sublayers, as in GPT-J and PaLM; `separate` is GPT-NeoX.
    """

    final_norm = True

    def __init__(self, shape: Shape, sublayers: Sublayers, norms: Literal["separate", "shared"]):
        super().__init__(shape, sublayers)
        if norms == "shared":
            self.norms = self.norms[:1]

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        normed = [norm(x) for norm in norms] * (len(sublayers) // len(norms))
        steps = zip(sublayers, normed, self.dropouts, strict=True)
        return x + sum((dropout(f(y)) for f, y, dropout in steps), torch.zeros_like(x))


class ReZero(Block):
    """x ← x + α f(x) for each sublayer f, one α per block, at first 0; no norm (Bachlechner 2020, 2003.04887)."""

    final_norm, norms_each = False, 0
    note = "its blocks have no norms, whatever norm= says"

    def __init__(self, shape: Shape, sublayers: Sublayers):
        super().__init__(shape, sublayers)
        self.alpha = nn.Parameter(torch.zeros(()))

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        for f, dropout in zip(sublayers, self.dropouts, strict=True):
            x = x + self.alpha * dropout(f(x))
        return x


class LayerScale(Block):
    """x ← x + λ ⊙ f(norm(x)) for each sublayer f, λ (C,) at first `init`; a final norm (Touvron 2021, 2103.17239)."""

    final_norm = True

    def __init__(self, shape: Shape, sublayers: Sublayers, init: float):
        super().__init__(shape, sublayers)
        self.scales = nn.ParameterList(torch.full((shape.dim,), float(init)) for _ in self.dropouts)

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        for f, norm, scale, dropout in zip(sublayers, norms, self.scales, self.dropouts, strict=True):
            x = x + dropout(scale * f(norm(x)))
        return x


class DeepNorm(Block):
    """x ← norm(α x + f(x)) for each sublayer f; FFN, values and outputs start β times as large (Wang 2022, 2203.00555).

    α = (2N)^¼, β = (8N)^−¼ for one stack of N layers.  Beside another stack, of N encoder and M decoder layers:
    α = .81 (N⁴M)^(1/16), β = .87 (N⁴M)^(−1/16) in the encoder, α = (3M)^¼, β = (12M)^−¼ in the decoder.
    """

    final_norm = False
    note = "its β multiplies what init gives; the paper's is init=xavier"

    def __init__(self, shape: Shape, sublayers: Sublayers):
        super().__init__(shape, sublayers)
        n, m = shape.encoder_layers, shape.decoder_layers
        if not (n and m):
            self.alpha, beta = (2 * (n or m)) ** 0.25, (8 * (n or m)) ** -0.25
        elif self.cross_attention is None:
            self.alpha, beta = 0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16)
        else:
            self.alpha, beta = (3 * m) ** 0.25, (12 * m) ** -0.25
        for matrix in self.scaled():
            matrix.gain = beta  # what initialise multiplies with

    def scaled(self) -> Iterator[nn.Parameter]:
        """The matrices that the paper starts at a fraction: all of the FFN, values and outputs of attention."""
        for name, parameter in self.named_parameters():
            sublayer, _, rest = name.partition(".")
            chosen = sublayer == "ffn" or (sublayer.endswith("attention") and rest.startswith(("value.", "out.")))
            if chosen and parameter.ndim > 1:
                yield parameter

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        for f, norm, dropout in zip(sublayers, norms, self.dropouts, strict=True):
            x = norm(self.alpha * x + dropout(f(x)))
        return x


class NoResidual(Block):
    """x ← f(norm(x)) for each sublayer f, and a final norm: no skip connections (as in Dong 2021, 2103.03404)."""

    final_norm = True

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """See the class."""
        for f, norm, dropout in zip(sublayers, norms, self.dropouts, strict=True):
            x = dropout(f(norm(x)))
        return x
