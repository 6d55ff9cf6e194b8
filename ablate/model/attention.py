"""Attention: (B, T, C) -> (B, T, C), over itself or over a memory (B, S, C)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ablate.config.ranges import at_least
from ablate.model.attend import attend
from ablate.model.dropout import Dropout
from ablate.model.init import tag
from ablate.model.norm import RMSNorm
from ablate.model.position import Places, rotate
from ablate.model.shape import Shape


class GQA(nn.Module):
    """Grouped-query attention: concat_h(softmax(Q_h K_gᵀ · scale) V_g) W_out (Ainslie 2023, arXiv 2305.13245).

    `heads` / `kv_heads` queries h share the keys and values of one group g.  Without `kv_heads` there is one group per
    head, without `scale` it is 1 / √D.
    """

    window: int | None = None  # positions that a query sees of its own sequence; all of them

    def __init__(self, shape: Shape, kv_heads: int | None, bias: bool, scale: float | None):
        super().__init__()
        dim, heads, head_dim = shape.dim, shape.heads, shape.head_dim
        kv_heads = heads if kv_heads is None else kv_heads
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"attention.kv_heads={kv_heads} must divide model.heads={heads}")
        self.head_dim, self.groups = head_dim, heads // kv_heads
        self.scale = 1 / math.sqrt(head_dim) if scale is None else scale
        self.query = tag(nn.Linear(dim, heads * head_dim, bias), "in")
        self.key = tag(nn.Linear(dim, kv_heads * head_dim, bias), "in")
        self.value = tag(nn.Linear(dim, kv_heads * head_dim, bias), "in")
        self.out = tag(nn.Linear(heads * head_dim, dim, bias), "out")
        self.dropout = Dropout(shape.dropout)

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), memory (B, S, C), mask of what is attended to (B, S) -> (B, T, C)
        return self.out(self.find(x, places, causal, mask, memory))

    def find(self, x: Tensor, places: Places, causal: bool, mask: Tensor | None, memory: Tensor | None) -> Tensor:
        """The values that each query finds, heads side by side: (B, T, H · D)."""
        query, key, value = self.project(x, x if memory is None else memory, places)
        found = attend(
            query,
            key,
            value,
            causal,
            bias=places.bias,
            mask=mask,
            dropout=self.dropout,
            scale=self.scale,
            window=self.window if memory is None else None,
            slopes=places.slopes,
        )
        return self.merge_heads(found)

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, D), keys and values (B, H, S, D), as their products are taken."""
        query, key = (rotate(part, places.rotation) for part in (self.queries(x), self.keys(memory)))
        return query, self.repeat_kv(key), self.repeat_kv(self.split_heads(self.value(memory)))

    def queries(self, x: Tensor) -> Tensor:
        """Queries before they are turned: (B, T, C) -> (B, H, T, D)."""
        return self.split_heads(self.query(x))

    def keys(self, memory: Tensor) -> Tensor:
        """Keys of each group before they are turned: (B, S, C) -> (B, G, S, D)."""
        return self.split_heads(self.key(memory))

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H · D) -> (B, H, T, D)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)

    def repeat_kv(self, x: Tensor) -> Tensor:
        """(B, G, S, D) -> (B, H, S, D): each group's keys or values for all of its queries."""
        return x if self.groups == 1 else x.repeat_interleave(self.groups, -3)

    def merge_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, T, H · D)."""
        return x.transpose(-3, -2).flatten(-2)


class MHA(GQA):
    """Multi-head attention: concat_h(softmax(Q_h K_hᵀ · scale) V_h) W_out (Vaswani 2017, arXiv 1706.03762)."""

    def __init__(self, shape: Shape, bias: bool, scale: float | None):
        super().__init__(shape, shape.heads, bias, scale)


class MQA(GQA):
    """Multi-query attention: all heads share one key and one value (Shazeer 2019, arXiv 1911.02150)."""

    def __init__(self, shape: Shape, bias: bool, scale: float | None):
        super().__init__(shape, 1, bias, scale)


class QKNorm(GQA):
    """Queries and keys pass an RMSNorm before their product (Dehghani 2023, arXiv 2302.05442; there a LayerNorm).

    `over` is `head`, each head's features by themselves, or `all`, the whole projection (OLMo 2).
    """

    def __init__(
        self,
        shape: Shape,
        kv_heads: int | None,
        bias: bool,
        scale: float | None,
        over: Literal["head", "all"],
        eps: float,
    ):
        super().__init__(shape, kv_heads, bias, scale)
        self.over = over
        self.query_norm, self.key_norm = (
            RMSNorm(shape.head_dim if over == "head" else layer.out_features, eps) for layer in (self.query, self.key)
        )

    def queries(self, x: Tensor) -> Tensor:
        """See GQA."""
        return self.normed(self.query(x), self.query_norm)

    def keys(self, memory: Tensor) -> Tensor:
        """See GQA."""
        return self.normed(self.key(memory), self.key_norm)

    def normed(self, x: Tensor, norm: nn.Module) -> Tensor:  # (B, T, H · D) -> (B, H, T, D)
        """Normalise, before or after the heads are split."""
        return self.split_heads(norm(x)) if self.over == "all" else norm(self.split_heads(x))


class Window(GQA):
    """Sliding window: a query sees the `window` positions that end in its own (Beltagy 2020, arXiv 2004.05150).

    Over both directions it sees as many on either side.  What is attended to across stacks is seen whole.
    """

    note = "its FLOPs are counted over all pairs, as they are computed here"

    def __init__(self, shape: Shape, kv_heads: int | None, bias: bool, scale: float | None, window: int):
        super().__init__(shape, kv_heads, bias, scale)
        self.window = at_least("attention.window", window, 1)


class Gated(GQA):
    """W_out(σ(W_gate x) ⊙ concat_h(softmax(Q_h K_gᵀ · scale) V_g)) (Qiu 2025, arXiv 2505.06708)."""

    def __init__(self, shape: Shape, kv_heads: int | None, bias: bool, scale: float | None):
        super().__init__(shape, kv_heads, bias, scale)
        self.gate = tag(nn.Linear(shape.dim, shape.heads * shape.head_dim, bias), "in")

    def find(self, x: Tensor, places: Places, causal: bool, mask: Tensor | None, memory: Tensor | None) -> Tensor:
        """See GQA."""
        return torch.sigmoid(self.gate(x)) * super().find(x, places, causal, mask, memory)
