"""What all attention by scores of queries and keys has in common: (B, T, C) -> (B, T, C)."""

from __future__ import annotations

from torch import Tensor, nn

from ablate.model.attend import attend
from ablate.model.dropout import Dropout
from ablate.model.position import Places
from ablate.model.shape import Shape


class Attention(nn.Module):
    """W_out · concat_h(softmax(Q_h K_hᵀ · scale) V_h); a subclass says in `project` what Q, K and V are.

    It sets `out`, the output matrix, and `scale`, and calls this constructor first.
    """

    out: nn.Module
    scale: float
    window: int | None = None  # positions that a query sees of its own sequence; all of them
    soft_cap: float | None = None  # c of c · tanh(scores / c)
    sink: Tensor | None  # (H,), the score of one more key, which all queries see and whose value is 0

    def __init__(self, shape: Shape):
        super().__init__()
        self.head_dim, self.dropout = shape.head_dim, Dropout(shape.dropout)
        self.register_buffer("sink", None)

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), memory (B, S, C), mask of what is attended to (B, S) -> (B, T, C)
        return self.out(self.find(x, places, causal, mask, memory))

    def find(self, x: Tensor, places: Places, causal: bool, mask: Tensor | None, memory: Tensor | None) -> Tensor:
        """The values that each query finds, heads side by side: (B, T, H · D)."""
        return self.merge_heads(self.attend(x, places, causal, mask, memory))

    def attend(self, x: Tensor, places: Places, causal: bool, mask: Tensor | None, memory: Tensor | None) -> Tensor:
        """The values that each query finds: (B, H, T, D)."""
        query, key, value = self.project(x, x if memory is None else memory, places)
        return attend(
            query,
            key,
            value,
            causal,
            bias=places.bias,
            mask=mask,
            dropout=self.dropout,
            scale=places.scale(self.scale, self.window),
            window=self.window if memory is None else None,
            slopes=places.slopes,
            soft_cap=self.soft_cap,
            sink=self.sink,
        )

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, D), keys and values (B, H, S, D), as their products are taken."""
        raise NotImplementedError

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H · D) -> (B, H, T, D)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)

    def merge_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, T, H · D)."""
        return x.transpose(-3, -2).flatten(-2)
