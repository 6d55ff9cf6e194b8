"""Residual styles: a block owns its sublayers, where the norms stand, and how both are wired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from ablate.model.dropout import Dropout
from ablate.model.position import Position

Step = Callable[[Tensor], Tensor]


class Block(nn.Module):
    """Attention and FFN with one norm each; a subclass says in `wire` how they are joined."""

    final_norm: bool  # whether the stack needs a norm after its last block

    def __init__(self, attention: nn.Module, ffn: nn.Module, norm: Callable[[], nn.Module], dropout: float):
        super().__init__()
        self.attention, self.ffn = attention, ffn
        self.norms = nn.ModuleList(norm() for _ in range(2))
        self.dropouts = nn.ModuleList(Dropout(dropout) for _ in range(2))

    def forward(self, x: Tensor, position: Position, causal: bool, mask: Tensor | None = None) -> Tensor:
        attention = partial(self.attention, position=position, causal=causal, mask=mask)
        return self.wire(x, [attention, self.ffn], [partial(norm, mask=mask) for norm in self.norms])

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """Join the sublayers, each a function of x alone."""
        raise NotImplementedError


class PreNorm(Block):
    """x ← x + f(norm(x)) for each sublayer f, and a norm after the last block (Xiong 2020, arXiv 2002.04745)."""

    final_norm = True

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
