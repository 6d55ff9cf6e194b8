"""Position encodings.  They can act in three places, each by default without effect: on embeddings, on queries and
keys, and on attention scores.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ablate.config.errors import BadComponent
from ablate.config.ranges import above, at_least
from ablate.model.init import embedding

Scaling = Literal["linear", "ntk", "yarn"]
Rotation = tuple[Tensor, Tensor]  # cosines and signed sines (T, R) for the first R features of a head


class Places(NamedTuple):
    """Position information for self-attention, computed once per forward pass for all layers with the same encoding."""

    rotation: Rotation | None = None  # of queries, and of keys unless one of the next two applies
    bias: Tensor | None = None  # added to the scores, broadcast to (B, H, T, T)
    slopes: Tensor | None = None  # (H,), for the bias −slope · |t − s|, for kernels that compute it themselves
    key_rotation: Rotation | None = None  # of keys, if it differs
    local: Rotation | None = None  # of queries and keys in layers with a window, if it differs
    factor: float | None = None  # multiplies scores without `local`, before caps and biases; None is 1
    values: Tensor | None = None  # (B, H, S, D) of the first layer, for layers that mix them into their own
    temperature: Tensor | None = None  # (T,), multiplies the scores of each query, before caps and biases; None is 1

    def rotations(self, window: int | None = None) -> tuple[Rotation | None, Rotation | None]:
        """The rotations of queries and of keys in a layer with this window."""
        if window is not None and self.local is not None:
            return self.local, self.local
        return self.rotation, self.rotation if self.key_rotation is None else self.key_rotation

    def heated(self, query: Tensor) -> Tensor:  # (B, H, T, D) -> (B, H, T, D)
        """Queries times their temperature."""
        return query if self.temperature is None else query * self.temperature[:, None].to(query.dtype)

    def scale(self, scale: float, window: int | None = None) -> float:
        """The scale of scores in a layer with this window, given the layer's own scale."""
        if self.factor is None or (window is not None and self.local is not None):
            return scale
        return scale * self.factor


class Position(nn.Module):
    """No position encoding (NoPE; Kazemnejad 2023, arXiv 2305.19466), and the base class of all others."""

    extrapolates = True  # whether it supports positions beyond the training length

    def embed(self, x: Tensor) -> Tensor:
        """Modify the embeddings (B, T, C)."""
        return x

    def places(self, x: Tensor, causal: bool) -> Places:
        """The position information for attention over the stream (B, T, C)."""
        return Places()


def angles(length: int, dim: int, base: float, like: Tensor) -> Tensor:
    """t / base^(2i/dim) of the positions t < `length`, i < dim/2: (length, dim/2).  In at least float32: bf16 cannot
    count past 256."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    frequency = base ** (-torch.arange(0, dim, 2, device=like.device, dtype=dtype) / dim)
    return torch.outer(torch.arange(length, device=like.device, dtype=dtype), frequency)


class OverLayers(Position):
    """Another position encoding in each layer: `of` is the number of each layer's encoding among `parts`."""

    def __init__(self, parts: Sequence[nn.Module], of: Sequence[int]):
        super().__init__()
        for part in parts:
            if getattr(type(part), "embed", None) is not Position.embed:
                problem = f"{type(part).__name__} acts on the embeddings, before all layers"
                raise BadComponent("position", f"{problem}; in a pattern write encodings that act in attention")
            for name, child in part.named_children():  # the first table has the name, and so the draws, of one alone
                self._modules.setdefault(name, child)
        self.parts, self.of = nn.ModuleList(parts), list(of)

    def each(self, x: Tensor, causal: bool) -> list[Places]:
        """The position information for each layer's attention over the stream (B, T, C)."""
        found = [part.places(x, causal) for part in self.parts]
        return [found[i] for i in self.of]


class Temperature(Position):
    """No position encoding, but query t's scores × 1 + `share` · ln(1 + ⌊(t + 1) / `span`⌋) (Llama 4 2025; after
    Nakanishi 2025, arXiv 2501.19399): over many keys a softmax would become flat."""

    def __init__(self, share: float, span: int):
        super().__init__()
        self.share, self.span = at_least("position.share", share, 0), at_least("position.span", span, 1)

    def places(self, x: Tensor, causal: bool) -> Places:  # temperature: (T,)
        dtype = torch.promote_types(x.dtype, torch.float32)
        t = torch.arange(1, x.shape[-2] + 1, device=x.device, dtype=dtype)
        return Places(temperature=1 + self.share * (t / self.span).floor().log1p())


class Sinusoidal(Position):
    """x + p, p(t, 2i) = sin(t / base^(2i/dim)), p(t, 2i+1) = cos(t / base^(2i/dim)) (Vaswani 2017, 1706.03762)."""

    note = "its vectors have RMS 0.71; embeddings are far smaller unless model.scale_embeddings=true"

    def __init__(self, dim: int, base: float):
        super().__init__()
        if dim % 2:
            raise ValueError(f"model.dim={dim} must be even for position=sinusoidal")
        self.dim, self.base = dim, at_least("position.base", base, 1)

    def embed(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        angle = angles(x.shape[-2], self.dim, self.base, x)
        return x + torch.stack((angle.sin(), angle.cos()), -1).flatten(-2).to(x.dtype)


class Learned(Position):
    """x + P[t], a trained table of one vector per position (Gehring 2017, arXiv 1705.03122; GPT-2)."""

    extrapolates = False

    def __init__(self, dim: int, context: int):
        super().__init__()
        self.table = embedding(context, dim, "position")

    def embed(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        if x.shape[-2] > self.table.num_embeddings:
            raise ValueError(f"position=learned has {self.table.num_embeddings} positions, not {x.shape[-2]}")
        return x + self.table.weight[: x.shape[-2]]


class ALiBi(Position):
    """scores − m_h · |t − s|, slopes m_h = 2^(−8h/H) for heads h = 1 … H (Press 2021, arXiv 2108.12409).

    If H is not a power of two, the slopes are those of the next lower one, followed by every second one of the next
    higher, as in the paper's code.  Without causality the distance counts in both directions.
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def places(self, x: Tensor, causal: bool) -> Places:  # bias: (H, T, T), slopes: (H,)
        dtype = torch.promote_types(x.dtype, torch.float32)
        t = torch.arange(x.shape[-2], device=x.device, dtype=dtype)
        slopes = self.slopes(t)
        return Places(bias=-slopes[:, None, None] * (t[:, None] - t).abs(), slopes=slopes)

    def slopes(self, like: Tensor) -> Tensor:
        """One slope per head (H,)."""
        power = 2 ** int(math.log2(self.heads))
        order = torch.arange(1, 2 * power, device=like.device, dtype=like.dtype)
        rest = 2 ** (-4 / power * order[::2])[: self.heads - power]
        return torch.cat((2 ** (-8 / power * order[:power]), rest))


class T5Bias(Position):
    """scores + b_h[bucket(s − t)], one table for all layers (Raffel 2019, arXiv 1910.10683).

    Half of the buckets hold one distance each, the rest grow logarithmically up to `max_distance`, beyond which all
    distances share one.  Without causality each sign has half of the buckets; causal models need only the past.
    Kernels receive the whole bias (H, T, T): FlexAttention would add up the gradient of the table in random order.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int):
        super().__init__()
        if buckets < 4 or buckets % 4 or max_distance <= buckets // 2:
            problem = f"position.buckets={buckets} must be a multiple of 4"
            raise ValueError(f"{problem}, and position.max_distance={max_distance} must be more than half of it")
        self.buckets, self.max_distance = buckets, max_distance
        self.table = embedding(buckets, heads, "position")

    def places(self, x: Tensor, causal: bool) -> Places:  # bias: (H, T, T)
        t = torch.arange(x.shape[-2], device=x.device)
        bias = self.table(self.bucket(t - t[:, None], causal)).permute(2, 0, 1)
        return Places(bias=bias.contiguous())  # fused kernels need a last stride of 1

    def bucket(self, offset: Tensor, causal: bool) -> Tensor:
        """The bucket of key position minus query position, of any shape."""
        count = self.buckets if causal else self.buckets // 2
        exact = count // 2
        distance = (-offset).clamp(min=0) if causal else offset.abs()
        growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
        side = 0 if causal else count * (offset > 0)
        return torch.where(distance < exact, distance, far) + side


class RoPE(Position):
    """Rotates the pair (x_i, x_{i+D/2}) of queries and keys by the angle t / base^(2i/D) (Su 2021, arXiv 2104.09864).

    `scaling` is for sequences s > 1 times as long as the training context; it does not affect shorter ones:

    linear  all angles / s (Chen 2023, arXiv 2306.15595)
    ntk     base · s^(D/(D−2)): the slowest pair turns as with `linear`, the fastest as before (Peng 2023, 2309.00071)
    yarn    angles / s of pairs that turn less than once in the training context, unchanged angles of those that turn
            more than 32 times, interpolated between; all scores × (0.1 · ln s + 1)² (Peng 2023)

    With `local_base`, layers with a window use that base, which scaling does not change (Gemma 3, arXiv 2503.19786).
    """

    beyond_context = ("scaling",)  # settings that affect only sequences longer than the training context

    def __init__(
        self,
        head_dim: int,
        base: float,
        context: int | None = None,
        scaling: Scaling | None = None,
        local_base: float | None = None,
    ):
        super().__init__()
        if head_dim % 2:
            problem = f"heads of {head_dim} features (model.head_dim, or model.dim / model.heads) must be even"
            raise ValueError(f"{problem} for position=rope, which turns pairs of features")
        if scaling == "ntk" and head_dim < 4:
            raise ValueError("position.scaling=ntk needs two pairs of features to turn; choose linear or yarn")
        if scaling == "yarn":
            above("position.base", base, 1)
        self.turned, self.base = head_dim, at_least("position.base", base, 1)
        self.context, self.scaling = context, scaling
        self.local_base = None if local_base is None else at_least("position.local_base", local_base, 1)

    def places(self, x: Tensor, causal: bool) -> Places:  # rotations: two of (T, R)
        angle, factor = self.scaled(x)
        local = None
        if self.local_base is not None:
            local = rotation_of(angles(x.shape[-2], self.turned, self.local_base, x))
        return Places(rotation=rotation_of(angle), local=local, factor=factor)

    def scaled(self, x: Tensor) -> tuple[Tensor, float | None]:
        """Angles (T, R / 2) for a stream (B, T, C), and the factor for the scores."""
        size = x.shape[-2]
        if self.scaling is None or self.context is None or size <= self.context:
            return angles(size, self.turned, self.base, x), None
        longer = size / self.context
        if self.scaling == "ntk":
            return angles(size, self.turned, self.base * longer ** (self.turned / (self.turned - 2)), x), None
        angle = angles(size, self.turned, self.base, x)
        if self.scaling == "linear":
            return angle / longer, None
        slow = self.slow(angle, self.context)
        return angle * (1 - slow) + angle / longer * slow, (0.1 * math.log(longer) + 1) ** 2

    def slow(self, like: Tensor, context: int) -> Tensor:
        """YaRN's weight of interpolation per pair (R / 2,): 1 up to one turn in the training context, 0 from 32 turns.
        In between it is linear in the pair's index, as in the paper's code."""

        def pair(turns: int) -> float:
            return self.turned * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(self.base))

        first, last = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), self.turned - 1)
        numbers = torch.arange(self.turned // 2, device=like.device, dtype=like.dtype)
        return ((numbers - first) / max(last - first, 1e-3)).clamp(0, 1)


class PartialRoPE(RoPE):
    """RoPE on the first `share` of each head's features; the others carry no position (GPT-NeoX; Black 2022)."""

    def __init__(
        self,
        head_dim: int,
        base: float,
        share: float,
        context: int | None = None,
        scaling: Scaling | None = None,
        local_base: float | None = None,
    ):
        turned = int(head_dim * share)
        if turned % 2 or not 2 <= turned <= head_dim:
            problem = f"position.share={share} of a head of {head_dim} features would turn {turned} of them"
            raise ValueError(f"{problem}; write a share that gives an even number from 2 to {head_dim}")
        super().__init__(turned, base, context, scaling, local_base)


class XPos(RoPE):
    """RoPE with pair i of queries × ζ_i^(t / span) and of keys × ζ_i^(−t / span) (Sun 2022, arXiv 2212.10554).

    ζ_i = (2i/D + γ) / (1 + γ), so that a pair's part of a score decays with the distance, fastest for fast pairs.  For
    later positions it would grow, so it is for causal models only.
    """

    causal_only = True

    def __init__(self, head_dim: int, base: float, span: float, gamma: float):
        super().__init__(head_dim, base)
        self.span, self.gamma = above("position.span", span, 0), above("position.gamma", gamma, 0)

    def places(self, x: Tensor, causal: bool) -> Places:  # rotations: two of (T, R)
        angle, _ = self.scaled(x)
        pairs, t = (torch.arange(n, device=angle.device, dtype=angle.dtype) for n in reversed(angle.shape))
        length = ((2 * pairs / self.turned + self.gamma) / (1 + self.gamma)) ** (t / self.span)[:, None]
        return Places(rotation=rotation_of(angle, length), key_rotation=rotation_of(angle, 1 / length))


def rotation_of(angle: Tensor, length: Tensor | None = None) -> Rotation:
    """The rotation by these angles (T, R / 2), with pairs scaled by `length`: two tensors (T, R)."""
    cos, sin = angle.cos(), angle.sin()
    if length is not None:
        cos, sin = length * cos, length * sin
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(x: Tensor, rotation: Rotation | None) -> Tensor:  # (B, H, T, D) -> (B, H, T, D)
    """Rotate the pairs (x_i, x_{i+R/2}) of the first R features; the others do not change."""
    if rotation is None:
        return x
    cos, sin = rotation
    size = cos.shape[-1]
    y = x[..., :size].to(cos.dtype).contiguous()  # otherwise the products below run over rows of D
    y = torch.addcmul(y * cos, y.roll(size // 2, -1), sin).to(x.dtype)
    return y if size == x.shape[-1] else torch.cat((y, x[..., size:]), -1)


def thinned(rotation: Rotation, size: int) -> Rotation:
    """A rotation of `size` features with the same base: every k-th angle of R's, base^(−2jk/R), with k = R / size.
    Raises ValueError if that is not possible."""
    turned = rotation[0].shape[-1]
    if size < 2 or size % 2 or turned % size:
        problem = f"position rotates {turned} features of a head, but this attention needs {size} with the same base"
        raise ValueError(f"{problem}: that must be an even divisor of the former")
    cos, sin = (part[..., :: turned // size] for part in rotation)
    return cos, sin


def doubled(places: Places) -> Places:
    """Position information for attention that has two heads for each of the original ones."""
    bias, slopes = places.bias, places.slopes
    if bias is not None and bias.ndim > 2 and bias.shape[-3] > 1:
        bias = bias.repeat_interleave(2, -3)
    return places._replace(bias=bias, slopes=None if slopes is None else slopes.repeat_interleave(2))
