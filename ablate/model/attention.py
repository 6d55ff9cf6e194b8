"""Attention modules, (B, T, C) -> (B, T, C), over the sequence itself or a memory (B, S, C)."""

import inspect
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ablate.config.ranges import BadValue, above, at_least
from ablate.config.targets import chosen_class
from ablate.model.attend import Attention
from ablate.model.init import tag, with_role
from ablate.model.norm import RMSNorm
from ablate.model.position import Places, Rotation, doubled, rotate, thinned
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
        dim = shape.dim
        heads = shape.heads
        head_dim = shape.head_dim
        if kv_heads is None:
            kv_heads = heads
        if kv_heads < 1 or heads % kv_heads:
            raise BadValue("kv_heads", f"must divide the {heads} heads, not {kv_heads}")
        if window is not None:
            at_least("window", window, 1)
        if chunk is not None:
            at_least("chunk", chunk, 1)
        if soft_cap is not None:
            above("soft_cap", soft_cap, 0)
        self.groups = heads // kv_heads  # query heads per key and value
        self.scale = 1 / math.sqrt(head_dim) if scale is None else scale
        self.window = window
        self.chunk = chunk
        self.soft_cap = soft_cap
        self.value_residual = value_residual
        self.shares = None
        self.query = tag(nn.Linear(dim, heads * head_dim, bias), "in")
        self.key = tag(nn.Linear(dim, kv_heads * head_dim, bias), "in")
        self.value = tag(nn.Linear(dim, kv_heads * head_dim, bias), "in")
        self.out = tag(nn.Linear(heads * head_dim, dim, bias), "out")
        self.over = over or "head"
        norm = self.normed_by if qk_norm is None else chosen_class("attention", "qk_norm", qk_norm)
        if norm is None and (over is not None or eps is not None or gain is not None):
            problem = "over, eps and gain need a norm of queries and keys"
            raise ValueError(f"{problem}; write qk_norm=rms, or ln")
        self.query_norm = None
        self.key_norm = None
        if norm is not None:
            eps = 1e-6 if eps is None else eps
            over_all = self.over == "all"
            self.query_norm = norm(heads * head_dim if over_all else head_dim, eps, gain)
            self.key_norm = norm(kv_heads * head_dim if over_all else head_dim, eps, gain)
        gate = gate or self.gated
        self.gate = None
        if gate is not None:
            self.gate = tag(nn.Linear(dim, heads * head_dim if gate == "feature" else heads, bias), "in")
        if sink == "learned":
            self.sink = nn.Parameter(torch.zeros(heads))
        elif sink == "zero":
            self.register_buffer("sink", torch.zeros(heads), persistent=False)
        if window or chunk:
            self.note = "its FLOPs are counted over all pairs, as they are computed here"

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), memory (B, S, C), mask of what is attended to (B, S) -> (B, T, C)
        # Before the projections: the order in which gradients of x are added changes rounding.
        gate = None if self.gate is None else torch.sigmoid(self.gate(x))
        heads = self.merge_heads(self.attend(x, places, causal, mask, memory))
        if gate is not None:
            if gate.shape != heads.shape:  # one number per head
                gate = gate.repeat_interleave(self.head_dim, -1)
            heads = gate * heads
        return self.out(heads)

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, D), keys and values (B, H, S, D), each group's repeated for all of its query heads."""
        query_rotation, key_rotation = places.rotations(self.window)
        query = rotate(self.normed_heads(self.query(x), self.query_norm), query_rotation)
        key = rotate(self.normed_heads(self.key(memory), self.key_norm), key_rotation)
        key = self.repeat_kv(key)
        if places.values is None:
            value = self.values(memory)
        elif self.shares is None:  # this is the first layer, whose values they are
            value = places.values
        else:
            first_share, share = self.shares
            value = first_share * places.values + share * self.values(memory)
        return query, key, value

    def normed_heads(self, x: Tensor, norm: nn.Module | None) -> Tensor:  # (B, T, H · D) -> (B, H, T, D)
        """Split into heads and normalise, in the order that `over` needs."""
        if norm is None:
            return self.split_heads(x)
        if self.over == "all":
            return self.split_heads(norm(x))
        return norm(self.split_heads(x))

    def values(self, x: Tensor) -> Tensor:
        """This layer's values, before a value residual: (B, S, C) -> (B, H, S, D)."""
        return self.repeat_kv(self.split_heads(self.value(x)))

    def repeat_kv(self, x: Tensor) -> Tensor:
        """Repeat each group's keys or values for all of its query heads: (B, G, S, D) -> (B, H, S, D)."""
        return x if self.groups == 1 else x.repeat_interleave(self.groups, -3)

    def follow(self) -> None:
        """Mix in the values of the first layer from now on."""
        self.shares = (0.5, 0.5) if self.value_residual == "identity" else nn.Parameter(torch.full((2,), 0.5))


def with_options(init: Callable[..., None]) -> Callable[..., None]:
    """Extend a constructor's signature, which is its schema, by the options of GQA, to which it passes `**options`."""
    parameters = []
    for parameter in inspect.signature(init).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            parameters.append(parameter)
    annotations = {}
    for parameter in inspect.signature(GQA).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            parameters.append(parameter)
            annotations[parameter.name] = parameter.annotation
    extended: Any = init
    extended.__signature__ = inspect.Signature(parameters)
    extended.__annotations__ |= annotations
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
    """Attention within chunks: query t sees the positions s with ⌊s / chunk⌋ = ⌊t / chunk⌋, causal ones up to its
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
            raise ValueError(f"a head of {shape.head_dim} features must be even, for two halves")
        half = shape.head_dim // 2
        super().__init__(shape, kv_heads, bias, half**-0.5 if scale is None else scale)
        self.half = half
        self.start = 0.8 - 0.6 * math.exp(-0.3 * layer)  # λ₀
        self.lambdas = nn.ParameterList(with_role(torch.zeros(half), "own", own_std=0.1) for _ in range(4))
        self.norm = RMSNorm(shape.head_dim, eps)

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), memory (B, S, C), mask of what is attended to (B, S) -> (B, T, C)
        halves = self.attend(x, doubled(places), causal, mask, memory)  # (B, 2 · H, T, D)
        first, second = halves.unflatten(-3, (-1, 2)).unbind(-3)
        a, b, c, d = self.lambdas
        share = torch.exp((a * b).sum()) - torch.exp((c * d).sum()) + self.start
        heads = (1 - self.start) * self.norm(first - share * second)
        return self.out(self.merge_heads(heads))

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, 2 · H, T, D / 2), with the halves of a head adjacent, and values (B, 2 · H, T, D)."""
        query_rotation, key_rotation = places.rotations()
        query = self.query(x).unflatten(-1, (-1, self.half)).transpose(-3, -2)
        key = self.key(memory).unflatten(-1, (-1, self.half)).transpose(-3, -2)
        query = rotate(query, half_rotation(query_rotation))
        key = rotate(key, half_rotation(key_rotation))
        key = key.unflatten(-3, (-1, 2)).repeat_interleave(self.groups, -4).flatten(-4, -3)
        value = self.split_heads(self.value(memory)).repeat_interleave(2 * self.groups, -3)
        return query, key, value


def half_rotation(rotation: Rotation | None) -> Rotation | None:
    """A rotation of half as many features."""
    return rotation and thinned(rotation, rotation[0].shape[-1] // 2)


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
        heads = shape.heads
        dim = shape.dim
        size = shape.head_dim
        if kv_rank is None:
            kv_rank = 2 * size
        if rope_dim is None:
            rope_dim = size // 2
        at_least("kv_rank", kv_rank, 1)
        at_least("rope_dim", rope_dim, 1)
        self.heads = heads
        self.rope_dim = rope_dim
        self.scale = (size + rope_dim) ** -0.5 if scale is None else scale
        self.query_down = None
        self.query_norm = None
        if query_rank is not None:
            at_least("query_rank", query_rank, 1)
            self.query_down = tag(nn.Linear(dim, query_rank, bias), "in")
            self.query_norm = RMSNorm(query_rank, eps)
        self.query = tag(nn.Linear(query_rank or dim, heads * (size + rope_dim), bias), "in")
        self.latent = tag(nn.Linear(dim, kv_rank, bias), "in")
        self.latent_norm = RMSNorm(kv_rank, eps)
        self.turned_key = tag(nn.Linear(dim, rope_dim, bias), "in")
        self.key = tag(nn.Linear(kv_rank, heads * size, bias), "in")
        self.value = tag(nn.Linear(kv_rank, heads * size, bias), "in")
        self.out = tag(nn.Linear(heads * size, dim, bias), "out")

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, H, T, D + rope_dim), values (B, H, S, D)."""
        query_rotation, key_rotation = places.rotations()
        if self.query_down is not None and self.query_norm is not None:
            x = self.query_norm(self.query_down(x))
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        plain_query, turned_query = query.split((self.head_dim, self.rope_dim), -1)
        latent = self.latent_norm(self.latent(memory))
        plain_key = self.split_heads(self.key(latent))
        value = self.split_heads(self.value(latent))
        turned_key = rotate(self.turned_key(memory)[..., None, :, :], thinned(key_rotation, self.rope_dim))
        turned_key = turned_key.expand(*plain_key.shape[:-1], -1)
        turned_query = rotate(turned_query, thinned(query_rotation, self.rope_dim))
        query = torch.cat((plain_query, turned_query), -1)
        key = torch.cat((plain_key, turned_key), -1)
        return query, key, value
