"""Dot-product attention: its base class, and three backends that differ by rounding only.

`attend` chooses between explicit products, torch's scaled_dot_product_attention and FlexAttention.
"""

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ablate.model.dropout import Dropout
from ablate.model.position import Places
from ablate.model.products import as_given
from ablate.model.shape import Shape

# With cuDNN's, which `configure_torch` disables because its gradients have been wrong with masks.  At 1,024 keys on an
# H200 it takes 0.7 times as long as flash attention.
KERNELS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
LONG = 512  # keys from which it is worth preparing its kernels
FEW = 256**2  # scores per head up to which explicit products are used: the backward pass has to store them


class Rules(NamedTuple):
    """What attention does besides softmax(Q Kᵀ / √D) V; see `attend`."""

    bias: Tensor | None = None  # broadcasts to (B, H, T, S)
    mask: Tensor | None = None  # (B, S), 1 at real positions
    dropout: Dropout | None = None
    scale: float | None = None
    slopes: Tensor | None = None  # (H,), for the bias −slope · |t − s|
    soft_cap: float | None = None
    sink: Tensor | None = None  # (H,)
    window: int | None = None
    chunk: int | None = None


PLAIN = Rules()


class Attention(nn.Module):
    """W_out · concat_h(softmax(Q_h K_hᵀ · scale) V_h); a subclass defines Q, K and V in `project`.  Its constructor
    calls this one first, and sets the output matrix `out` and `scale`."""

    out: nn.Module
    scale: float
    window: int | None = None  # number of positions of its own sequence that a query sees; None: all
    chunk: int | None = None  # a query sees its own chunk of so many positions of its sequence; None: all
    soft_cap: float | None = None  # c in c · tanh(scores / c)
    sink: Tensor | None  # (H,), the score of an additional key with value 0 that all queries see

    def __init__(self, shape: Shape):
        super().__init__()
        self.head_dim = shape.head_dim
        self.dropout = Dropout(shape.dropout)
        self.register_buffer("sink", None)

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), memory (B, S, C), mask of what is attended to (B, S) -> (B, T, C)
        heads = self.attend(x, places, causal, mask, memory)
        return self.out(self.merge_heads(heads))

    def attend(self, x: Tensor, places: Places, causal: bool, mask: Tensor | None, memory: Tensor | None) -> Tensor:
        """The attention output per head: (B, H, T, D)."""
        query, key, value = self.project(x, x if memory is None else memory, places)
        rules = Rules(
            bias=places.bias,
            mask=mask,
            dropout=self.dropout,
            scale=places.scale(self.scale, self.window),
            slopes=places.slopes,
            soft_cap=self.soft_cap,
            sink=self.sink,
            window=self.window if memory is None else None,
            chunk=self.chunk if memory is None else None,
        )
        return attend(places.apply_temperature(query), key, value, causal, rules)

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, D), keys and values (B, H, S, D), with positions applied."""
        raise NotImplementedError

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H · D) -> (B, H, T, D)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)

    def merge_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, D) -> (B, T, H · D)."""
        return x.transpose(-3, -2).flatten(-2)


def attend(query: Tensor, key: Tensor, value: Tensor, causal: bool, rules: Rules = PLAIN) -> Tensor:
    # (B, H, T, D), (B, H, S, D), (B, H, S, D) -> (B, H, T, D)
    """softmax(Q Kᵀ · scale + bias) V over the keys that a query may see; a causal query t sees the keys ≤ t.

    `scale` is 1 / √D by default.  With a window a query sees the keys less than `window` positions away, with a chunk
    those with the same ⌊position / `chunk`⌋.  With a soft cap c the scores before any bias are c · tanh(Q Kᵀ · scale /
    c).  A sink is the score, after caps and biases, of an additional key with value 0 that all queries see.
    The fused kernel is not used for training with dropout, since it accepts no dropout mask from outside.  Nor is it
    with a bias on the CPU: that kernel has no gradient for the bias, and under vmap torch uses it silently.  Nor for
    short sequences on the CPU, in bf16 or compiled: see `few_scores`.

    On a GPU, windows, chunks, slopes, caps and sinks go to FlexAttention if it has a kernel: see `takes_rules`.  The
    rest uses scaled_dot_product_attention with a (T, S) mask or an (H, T, S) bias: eager and padded inputs, and trained
    biases such as T5's, whose gradients FlexAttention would add in random order.  That function supports neither caps
    nor sinks, which then use explicit products.
    """
    dropout = rules.dropout
    drops = dropout is not None and dropout.p > 0 and dropout.training
    caps_or_sinks = rules.soft_cap is not None or rules.sink is not None
    is_local = rules.window is not None or rules.chunk is not None
    has_rule = rules.slopes is not None or ((is_local or caps_or_sinks) and rules.bias is None)
    if has_rule and not drops and rules.mask is None and takes_rules(query):
        return attend_flex(query, key, value, causal, rules)
    if drops or caps_or_sinks:
        return attend_explicit(query, key, value, causal, rules)
    if query.device.type == "cpu" and (rules.bias is not None or few_scores(query, key)):
        return attend_explicit(query, key, value, causal, rules)
    return attend_fused(query, key, value, causal, rules)


def few_scores(query: Tensor, key: Tensor) -> bool:
    """Whether explicit products are faster than the fused kernel on a CPU.  At scale=small a step in bf16 takes 0.7
    times as long; compiled, where the softmax is fused with its surroundings, it takes as long, and less on CPUs with
    slower fused kernels (docs/measurements.md)."""
    fast = query.dtype is torch.bfloat16 or torch.compiler.is_compiling()
    return fast and query.shape[-2] * key.shape[-2] <= FEW


def takes_rules(query: Tensor) -> bool:
    """Whether FlexAttention has a kernel for these queries: on a GPU, compiled, with at least 16 features per head."""
    return query.device.type == "cuda" and torch.compiler.is_compiling() and query.shape[-1] >= 16


def attend_explicit(query: Tensor, key: Tensor, value: Tensor, causal: bool, rules: Rules = PLAIN) -> Tensor:
    """`attend` with explicit products and a softmax in at least float32."""
    scale = 1 / math.sqrt(query.shape[-1]) if rules.scale is None else rules.scale
    scores = scores_of(query, key, scale)
    if rules.soft_cap is not None:
        scores = rules.soft_cap * torch.tanh(scores / rules.soft_cap)
    if rules.bias is not None:
        scores = scores + rules.bias
    seen = visible(query, key, causal, rules.mask, rules.window, rules.chunk)
    if seen is not None:
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    weights = weights_of(scores, rules.sink).to(value.dtype)
    if rules.dropout is not None:
        weights = rules.dropout(weights)
    return weights @ value


def weights_of(scores: Tensor, sink: Tensor | None) -> Tensor:
    """Attention weights exp(score) / (exp(sink) + Σ exp(score)): (B, H, T, S) -> (B, H, T, S)."""
    dtype = torch.promote_types(scores.dtype, torch.float32)
    if sink is None:
        return scores.softmax(-1, dtype=dtype)
    sink_scores = sink.to(dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores.to(dtype), sink_scores), -1).softmax(-1)[..., :-1]


def scores_of(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Q Kᵀ · scale, before any bias: (B, H, T, D), (B, H, S, D) -> (B, H, T, S).  In bf16 a CPU rounds them, which
    changes the mean test loss by less than 12 seeds can detect (docs/measurements.md)."""
    if query.device.type == "cuda":
        return in_float32(query, key) * scale
    return (query * scale) @ key.transpose(-2, -1)


def in_float32(query: Tensor, key: Tensor) -> Tensor:
    """Q Kᵀ in at least float32, even under autocast: (B, H, T, D), (B, H, S, D) -> (B, H, T, S).  The fused kernels of
    a GPU do the same, so dropout does not change the precision."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    with as_given(query):
        return query.to(dtype) @ key.to(dtype).transpose(-2, -1)


def attend_fused(query: Tensor, key: Tensor, value: Tensor, causal: bool, rules: Rules = PLAIN) -> Tensor:
    """`attend` through scaled_dot_product_attention, which accepts no dropout mask."""
    if rules.bias is None and rules.mask is None and rules.window is None and rules.chunk is None:
        with sdpa_kernel(KERNELS) if query.is_cuda and key.shape[-2] >= LONG else nullcontext():
            return F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=rules.scale)
    seen = visible(query, key, causal, rules.mask, rules.window, rules.chunk)
    # Kernels need a bias of the same dtype.  In bf16 ALiBi's is rounded, by less than queries and keys themselves are.
    bias = None if rules.bias is None else rules.bias.to(query.dtype)
    if bias is not None and seen is not None:
        bias = bias.masked_fill(~seen, torch.finfo(bias.dtype).min)
    attn_mask = seen if bias is None else bias
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, scale=rules.scale)


def attend_flex(query: Tensor, key: Tensor, value: Tensor, causal: bool, rules: Rules = PLAIN) -> Tensor:
    """`attend` through FlexAttention (Dong 2024, arXiv 2412.05496), which skips blocks that no query sees.

    Compiled, it is one kernel that stores neither scores nor bias; in eager mode, as in tests, it computes all of them.
    A sink scales each query's output by 1 / (1 + exp(sink) / Σ exp(score)) = σ(log Σ exp(score) − sink).
    """
    slopes = rules.slopes
    window = rules.window
    chunk = rules.chunk
    soft_cap = rules.soft_cap

    def is_seen(batch: Tensor, head: Tensor, t: Tensor, s: Tensor) -> Tensor:
        distance = t - s if causal else (t - s).abs()
        seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        return seen if chunk is None else seen & (t // chunk == s // chunk)

    def change_score(score: Tensor, batch: Tensor, head: Tensor, t: Tensor, s: Tensor) -> Tensor:
        score = score if soft_cap is None else soft_cap * torch.tanh(score / soft_cap)
        return score if slopes is None else score - slopes[head] * (t - s).abs()

    blocks = None
    if causal or window or chunk:
        blocks = create_block_mask(is_seen, None, None, query.shape[-2], key.shape[-2], device=query.device)
    query = query.to(value.dtype)  # autocast does not cast normalised queries and keys
    key = key.to(value.dtype)
    score_mod = None if slopes is None and soft_cap is None else change_score
    if rules.sink is None:
        return flex_attention(query, key, value, score_mod, blocks, rules.scale)
    output, log_sum = flex_attention(query, key, value, score_mod, blocks, rules.scale, return_lse=True)
    return output * torch.sigmoid(log_sum - rules.sink[:, None])[..., None].to(output.dtype)


def visible(
    query: Tensor, key: Tensor, causal: bool, mask: Tensor | None, window: int | None, chunk: int | None = None
) -> Tensor | None:
    """True where a query may see a key, broadcastable to (B, H, T, S); None if every query sees every key."""
    real = None if mask is None else mask[:, None, None, :].bool()
    if not causal and window is None and chunk is None:
        return real
    seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
    if causal:
        seen = seen.tril()
    elif window is not None:
        seen = seen.tril(window - 1)
    if window is not None:
        seen = seen.triu(1 - window)
    if chunk is not None:
        query_chunk = torch.arange(query.shape[-2], device=query.device) // chunk
        key_chunk = torch.arange(key.shape[-2], device=key.device) // chunk
        seen = seen & (query_chunk[:, None] == key_chunk)
    return seen if real is None else seen & real
