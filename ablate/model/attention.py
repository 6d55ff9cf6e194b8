"""Attention modules, (B, T, C) -> (B, T, C), over the sequence itself or a memory (B, S, C)."""

import inspect
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ablate.config.ranges import above, at_least
from ablate.config.targets import chosen_class
from ablate.model.attend import Attention
from ablate.model.init import tag, with_role
from ablate.model.norm import RMSNorm
from ablate.model.position import Places, doubled, rotate, thinned
from ablate.model.shape import Shape


class GQA(Attention):
    """Grouped-query attention: concat_h(softmax(Q_h K_gᵀ · scale) V_g) W_out (Ainslie 2023, arXiv 2305.13245).

    `heads` / `kv_heads` query heads h share the keys and values of a group g; by default each head is its own group.
    `scale` is 1 / √D by default.  Other options can be combined freely; None stands for the variant's own choice.
    """

    normed_by: type[nn.Module] | None = None  # default norm of queries and keys
    gated: Literal["feature", "head"] | None = None
    shares: nn.Parameter | tuple[float, float] | None  # λ₁ and λ₂ of a layer after the first

    def __init__(
        self,
        shape: Shape,
        kv_heads: int | None,
        bias: bool,
        scale: float | None,
        *,
        qk_norm: Literal["rms", "ln"] | None = None,  # of queries and keys (Dehghani 2023, arXiv 2302.05442)
        over: Literal["head", "all"] | None = None,  # that norm is over the features of each head, or of all (OLMo 2)
        eps: float | None = None,  # of that norm: 1e-6
        gain: bool | None = None,  # whether that norm has a gain (nanochat: no)
        window: int | None = None,  # a query sees positions less than so many away (Beltagy 2020, arXiv 2004.05150)
        chunk: int | None = None,  # a query sees its own chunk of so many positions (Llama 4 2025)
        gate: Literal["feature", "head"] | None = None,  # σ(W_gate x) ⊙ what W_out reads (Qiu 2025, arXiv 2505.06708)
        # An additional key with value 0; its score is one number per head, initially 0 (gpt-oss 2025), or zero: softmax
        # off by one (Miller 2023).
        sink: Literal["learned", "zero"] | None = None,
        soft_cap: float | None = None,  # c: scores are c · tanh(Q Kᵀ · scale / c) (Gemma 2, arXiv 2408.00118)
        # Layer l > 1 uses the values λ₁ V₁ + λ₂ V_l, λ₁ = λ₂ = 1/2, or two parameters per layer that start there (Zhou
        # 2024, arXiv 2410.17897); cross-attention values do not change.
        value_residual: Literal["identity", "learned"] | None = None,
    ):
        super().__init__(shape)
        dim, heads, head_dim = shape.dim, shape.heads, shape.head_dim
        kv_heads = heads if kv_heads is None else kv_heads
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"attention.kv_heads={kv_heads} must divide model.heads={heads}")
        self.groups = heads // kv_heads
        self.scale = 1 / math.sqrt(head_dim) if scale is None else scale
        self.query = tag(nn.Linear(dim, heads * head_dim, bias), "in")
        self.key = tag(nn.Linear(dim, kv_heads * head_dim, bias), "in")
        self.value = tag(nn.Linear(dim, kv_heads * head_dim, bias), "in")
        self.out = tag(nn.Linear(heads * head_dim, dim, bias), "out")
        self.query_norm, self.key_norm = self.norms(qk_norm, over, eps, gain)
        gate = gate or self.gated
        gates = heads * (head_dim if gate == "feature" else 1)
        self.gate = None if gate is None else tag(nn.Linear(dim, gates, bias), "in")
        self.window = None if window is None else at_least("attention.window", window, 1)
        self.chunk = None if chunk is None else at_least("attention.chunk", chunk, 1)
        if window or chunk:
            self.note = "its FLOPs are counted over all pairs, as they are computed here"
        self.soft_cap = None if soft_cap is None else above("attention.soft_cap", soft_cap, 0)
        self.value_residual, self.shares = value_residual, None
        if sink == "learned":
            self.sink = nn.Parameter(torch.zeros(heads))
        elif sink == "zero":
            self.register_buffer("sink", torch.zeros(heads), persistent=False)

    def norms(
        self, kind: str | None, over: str | None, eps: float | None, gain: bool | None
    ) -> tuple[nn.Module | None, nn.Module | None]:
        """The norms of queries and keys, if any."""
        made = self.normed_by if kind is None else chosen_class("attention", "qk_norm", kind)
        if made is None and (over, eps, gain) != (None, None, None):
            problem = "attention.over, attention.eps and attention.gain need a norm of queries and keys"
            raise ValueError(f"{problem}; write attention.qk_norm=rms, or ln")
        self.over = over or "head"
        if made is None:
            return None, None
        sizes = (self.head_dim if self.over == "head" else layer.out_features for layer in (self.query, self.key))
        query, key = (made(int(size), 1e-6 if eps is None else eps, gain) for size in sizes)
        return query, key

    def find(self, x: Tensor, places: Places, causal: bool, mask: Tensor | None, memory: Tensor | None) -> Tensor:
        if self.gate is None:
            return super().find(x, places, causal, mask, memory)
        # Computed first: the order in which gradients of x are added changes rounding.
        gate = torch.sigmoid(self.gate(x))
        found = super().find(x, places, causal, mask, memory)
        return (gate if gate.shape == found.shape else gate.repeat_interleave(self.head_dim, -1)) * found

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        of_query, of_key = places.rotations(self.window)
        query = rotate(self.normed(self.query(x), self.query_norm), of_query)
        key = rotate(self.normed(self.key(memory), self.key_norm), of_key)
        return query, self.repeat_kv(key), self.mixed(memory, places)

    def values(self, x: Tensor) -> Tensor:
        """This layer's values: (B, S, C) -> (B, H, S, D)."""
        return self.repeat_kv(self.split_heads(self.value(x)))

    def mixed(self, memory: Tensor, places: Places) -> Tensor:
        """This layer's values, mixed with those of the first layer if given: (B, S, C) -> (B, H, S, D)."""
        if places.values is None:
            return self.values(memory)
        if self.shares is None:
            return places.values  # this is the first layer, and they are its own
        first, own = self.shares
        return first * places.values + own * self.values(memory)

    def follow(self) -> None:
        """Mix in the values of the first layer from now on."""
        self.shares = (0.5, 0.5) if self.value_residual == "identity" else nn.Parameter(torch.full((2,), 0.5))

    def normed(self, x: Tensor, norm: nn.Module | None) -> Tensor:  # (B, T, H · D) -> (B, H, T, D)
        """Split into heads and normalise, in the order that `over` needs."""
        if norm is None:
            return self.split_heads(x)
        return self.split_heads(norm(x)) if self.over == "all" else norm(self.split_heads(x))

    def repeat_kv(self, x: Tensor) -> Tensor:
        """Repeat each group's keys or values for all of its query heads: (B, G, S, D) -> (B, H, S, D)."""
        return x if self.groups == 1 else x.repeat_interleave(self.groups, -3)


def with_options(init: Callable[..., None]) -> Callable[..., None]:
    """Extend a constructor's signature, which is its schema, by the options of GQA, to which it passes `**options`."""
    signature = inspect.signature(init)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [each for each in inspect.signature(GQA).parameters.values() if each.kind is each.KEYWORD_ONLY]
    named: Any = init
    named.__signature__ = signature.replace(parameters=[*own, *more])
    named.__annotations__ |= {each.name: each.annotation for each in more}
    return init


class MHA(GQA):
    """Multi-head attention: concat_h(softmax(Q_h K_hᵀ · scale) V_h) W_out (Vaswani 2017, arXiv 1706.03762)."""

    @with_options
    def __init__(self, shape: Shape, bias: bool, scale: float | None, **options: Any):
        super().__init__(shape, shape.heads, bias, scale, **options)


class MQA(GQA):
    """Multi-query attention: all heads share one key and one value (Shazeer 2019, arXiv 1911.02150)."""

    @with_options
    def __init__(self, shape: Shape, bias: bool, scale: float | None, **options: Any):
        super().__init__(shape, 1, bias, scale, **options)


class QKNorm(GQA):
    """Queries and keys are normalised before their product (Dehghani 2023, arXiv 2302.05442, with a LayerNorm)."""

    normed_by = RMSNorm


class Window(GQA):
    """Sliding window: a query sees the last `window` positions, its own included (Beltagy 2020, arXiv 2004.05150).
    Without causality it sees as many on either side.  Cross-attention has no window."""


class Chunked(GQA):
    """Attention within chunks: query t sees the positions s with ⌊s / `chunk`⌋ = ⌊t / `chunk`⌋, causal ones up to its
    own (Llama 4 2025).  Cross-attention has no chunks."""


class Gated(GQA):
    """W_out(σ(W_gate x) ⊙ concat_h(softmax(Q_h K_gᵀ · scale) V_g)) (Qiu 2025, arXiv 2505.06708)."""

    gated = "feature"


class Differential(GQA):
    """W_out · concat_h((1 − λ₀) · norm((softmax(Q₁K₁ᵀ · scale) − λ softmax(Q₂K₂ᵀ · scale)) V)) (Ye 2024, 2410.05258).

    Each head's queries and keys consist of two halves of D / 2 features, its values of D; `scale` is 1 / √(D / 2) by
    default.  λ = exp(a · b) − exp(c · d) + λ₀ with four trained vectors of size D / 2, initially N(0, 0.1²), and
    λ₀ = 0.8 − 0.6 exp(−0.3 l) in layer l = 0, 1, …; the norm is an RMSNorm of each head.
    """

    def __init__(self, shape: Shape, layer: int, kv_heads: int | None, bias: bool, scale: float | None, eps: float):
        if shape.head_dim % 2:
            raise ValueError(f"heads of {shape.head_dim} features must be even for attention=differential")
        half = shape.head_dim // 2
        super().__init__(shape, kv_heads, bias, half**-0.5 if scale is None else scale)
        self.half, self.start = half, 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.lambdas = nn.ParameterList(with_role(torch.zeros(half), "own", own_std=0.1) for _ in range(4))
        self.norm = RMSNorm(shape.head_dim, eps)

    def find(self, x: Tensor, places: Places, causal: bool, mask: Tensor | None, memory: Tensor | None) -> Tensor:
        found = self.attend(x, doubled(places), causal, mask, memory)
        first, second = found.unflatten(-3, (-1, 2)).unbind(-3)  # (B, H, T, D) each
        a, b, c, d = self.lambdas
        share = torch.exp((a * b).sum()) - torch.exp((c * d).sum()) + self.start
        return self.merge_heads((1 - self.start) * self.norm(first - share * second))

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, 2 · H, T, D / 2), with the halves of a head adjacent, and values (B, 2 · H, T, D)."""
        halves = (y.unflatten(-1, (-1, self.half)).transpose(-3, -2) for y in (self.query(x), self.key(memory)))
        turns = (turn and thinned(turn, turn[0].shape[-1] // 2) for turn in places.rotations())
        query, key = map(rotate, halves, turns)
        key = key.unflatten(-3, (-1, 2)).repeat_interleave(self.groups, -4).flatten(-4, -3)
        return query, key, self.split_heads(self.value(memory)).repeat_interleave(2 * self.groups, -3)


class MLA(Attention):
    """Multi-head latent attention: K_h and V_h from one latent per position (DeepSeek-AI 2024, arXiv 2405.04434).

    c = norm(W_c x) of `kv_rank` features (None: 2 D); K_h = [W_h c; turned(W_r x)], V_h = W'_h c.  The `rope_dim`
    features that position turns (None: D / 2) are one key for all heads.  Q_h has D + rope_dim features, of x itself or
    of norm(W_q x) of `query_rank` features; without `scale` it is 1 / √(D + rope_dim).  Norms are RMSNorms.
    """

    def __init__(
        self,
        shape: Shape,
        kv_rank: int | None,
        query_rank: int | None,
        rope_dim: int | None,
        bias: bool,
        scale: float | None,
        eps: float,
    ):
        super().__init__(shape)
        heads, size, dim = shape.heads, shape.head_dim, shape.dim
        rank = 2 * size if kv_rank is None else at_least("attention.kv_rank", kv_rank, 1)
        turned = size // 2 if rope_dim is None else at_least("attention.rope_dim", rope_dim, 1)
        read = dim if query_rank is None else at_least("attention.query_rank", query_rank, 1)
        self.heads, self.rope_dim = heads, turned
        self.scale = (size + turned) ** -0.5 if scale is None else scale
        self.query_down = None if query_rank is None else tag(nn.Linear(dim, read, bias), "in")
        self.query_norm = None if query_rank is None else RMSNorm(read, eps)
        self.query = tag(nn.Linear(read, heads * (size + turned), bias), "in")
        self.latent, self.latent_norm = tag(nn.Linear(dim, rank, bias), "in"), RMSNorm(rank, eps)
        self.turned_key = tag(nn.Linear(dim, turned, bias), "in")
        self.key = tag(nn.Linear(rank, heads * size, bias), "in")
        self.value = tag(nn.Linear(rank, heads * size, bias), "in")
        self.out = tag(nn.Linear(heads * size, dim, bias), "out")

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, H, T, D + rope_dim), values (B, H, S, D)."""
        of_query, of_key = (thinned(turn, self.rope_dim) for turn in places.rotations())
        if self.query_down is not None and self.query_norm is not None:
            x = self.query_norm(self.query_down(x))
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        plain, turned = query.split((self.head_dim, self.rope_dim), -1)
        latent = self.latent_norm(self.latent(memory))
        key, value = self.split_heads(self.key(latent)), self.split_heads(self.value(latent))
        shared = rotate(self.turned_key(memory)[..., None, :, :], of_key).expand(*key.shape[:-1], -1)
        return torch.cat((plain, rotate(turned, of_query)), -1), torch.cat((key, shared), -1), value
