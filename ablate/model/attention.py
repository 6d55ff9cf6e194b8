"""Attention: (B, T, C) -> (B, T, C)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.dropout import Dropout
from ablate.model.init import tag
from ablate.model.position import Position


class MHA(nn.Module):
    """Multi-head attention: concat_h(softmax(Q_h K_hᵀ / √D) V_h) W_out (Vaswani 2017, arXiv 1706.03762)."""

    def __init__(self, dim: int, heads: int, dropout: float, bias: bool):
        super().__init__()
        if dim % heads:
            raise ValueError(f"model.dim={dim} is not divisible by model.heads={heads}")
        self.heads = heads
        self.query = tag(nn.Linear(dim, dim, bias), "in")
        self.key = tag(nn.Linear(dim, dim, bias), "in")
        self.value = tag(nn.Linear(dim, dim, bias), "in")
        self.out = tag(nn.Linear(dim, dim, bias), "out")
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, position: Position, causal: bool, mask: Tensor | None = None) -> Tensor:
        query, key, value = (self.split(f(x)) for f in (self.query, self.key, self.value))  # (B, H, T, D)
        query, key = position.rotate(query), position.rotate(key)
        bias = position.bias(query.shape[-2], key.shape[-2])
        return self.out(self.merge(attend(query, key, value, causal, bias, mask, self.dropout)))

    def split(self, x: Tensor) -> Tensor:
        """(B, T, H · D) -> (B, H, T, D)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def merge(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, T, H · D)."""
        return x.transpose(-3, -2).flatten(-2)


def attend(
    query: Tensor,  # (B, H, T, D)
    key: Tensor,  # (B, H, S, D)
    value: Tensor,  # (B, H, S, D)
    causal: bool,
    bias: Tensor | None = None,  # broadcasts to (B, H, T, S)
    mask: Tensor | None = None,  # (B, S), 1 at real positions
    dropout: Dropout | None = None,
) -> Tensor:  # (B, H, T, D)
    """softmax(Q Kᵀ / √D + bias) V over the keys that a query may see; a causal query t sees the keys ≤ t.

    Fused, but for training with dropout on the shares: the fused kernel draws from a global generator.
    """
    if dropout is not None and dropout.training and dropout.p > 0:
        return attend_explicit(query, key, value, causal, bias, mask, dropout)
    return attend_fused(query, key, value, causal, bias, mask)


def attend_explicit(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool,
    bias: Tensor | None,
    mask: Tensor | None,
    dropout: Dropout | None = None,
) -> Tensor:
    """`attend` as products, softmax in at least float32."""
    scores = (query * (1 / math.sqrt(query.shape[-1]))) @ key.transpose(-2, -1)  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    seen = visible(query, key, causal, mask)
    if seen is not None:
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    shares = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    return (shares if dropout is None else dropout(shares)) @ value


def attend_fused(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """`attend` through scaled_dot_product_attention."""
    if bias is None and mask is None:
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    seen = visible(query, key, causal, mask)
    if bias is not None and seen is not None:
        bias = bias.masked_fill(~seen, torch.finfo(bias.dtype).min)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=seen if bias is None else bias.to(query.dtype))


def visible(query: Tensor, key: Tensor, causal: bool, mask: Tensor | None) -> Tensor | None:
    """True where a query may see a key, broadcasting to (B, H, T, S), or None where every query sees every key."""
    seen = None if mask is None else mask[:, None, None, :].bool()
    if not causal:
        return seen
    past = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    return past if seen is None else past & seen
