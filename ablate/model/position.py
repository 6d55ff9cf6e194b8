"""Position encodings.  They can act in three places, each by default without effect: on embeddings, on queries and
keys, and on attention scores.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ablate.config.errors import BadComponent
from ablate.config.ranges import BadValue, above, at_least
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
        if self.key_rotation is not None:
            return self.rotation, self.key_rotation
        return self.rotation, self.rotation

    def apply_temperature(self, query: Tensor) -> Tensor:  # (B, H, T, D) -> (B, H, T, D)
        """Queries times their temperature."""
        if self.temperature is None:
            return query
        return query * self.temperature[:, None].to(query.dtype)

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
    """Another position encoding in each layer: layer l has encoding `part_of_layer[l]` of `parts`."""

    def __init__(self, parts: Sequence[nn.Module], part_of_layer: Sequence[int]):
        super().__init__()
        for part in parts:
            if getattr(type(part), "embed", None) is not Position.embed:
                problem = f"{type(part).__name__} acts on the embeddings, before all layers"
                raise BadComponent("position", f"{problem}; in a pattern write encodings that act in attention")
            for name, child in part.named_children():  # the first table has the name, and so the draws, of one alone
                self._modules.setdefault(name, child)
        self.parts = nn.ModuleList(parts)
        self.part_of_layer = list(part_of_layer)

    def places_of_layers(self, x: Tensor, causal: bool) -> list[Places]:
        """The position information for each layer's attention over the stream (B, T, C)."""
        places = [part.places(x, causal) for part in self.parts]
        return [places[i] for i in self.part_of_layer]


class Temperature(Position):
    """No position encoding, but query t's scores × 1 + share · ln(1 + ⌊(t + 1) / span⌋) (Llama 4 2025; after
    Nakanishi 2025, arXiv 2501.19399): over many keys a softmax would become flat."""

    def __init__(self, share: float, span: int):
        super().__init__()
        self.share = at_least("share", share, 0)
        self.span = at_least("span", span, 1)

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
            raise ValueError(f"the width of an embedding must be even for pairs of sine and cosine, not {dim}")
        self.dim = dim
        self.base = at_least("base", base, 1)

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
            raise ValueError(f"the table has {self.table.num_embeddings} positions, not {x.shape[-2]}")
        return x + self.table.weight[: x.shape[-2]]


class ALiBi(Position):
    """scores − m_h · abs(t − s), slopes m_h = 2^(−8h/H) for heads h = 1 … H (Press 2021, arXiv 2108.12409).

    If H is not a power of two, the slopes are those of the next lower one, followed by every second one of the next
    higher, as in the paper's code.  Without causality the distance counts in both directions.
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def places(self, x: Tensor, causal: bool) -> Places:  # bias: (H, T, T), slopes: (H,)
        dtype = torch.promote_types(x.dtype, torch.float32)
        t = torch.arange(x.shape[-2], device=x.device, dtype=dtype)
        distance = (t[:, None] - t).abs()
        slopes = self.slopes(t)
        return Places(bias=-slopes[:, None, None] * distance, slopes=slopes)

    def slopes(self, like: Tensor) -> Tensor:
        """One slope per head (H,)."""
        power = 2 ** int(math.log2(self.heads))
        numbers = torch.arange(1, 2 * power, device=like.device, dtype=like.dtype)
        slopes = 2 ** (-8 / power * numbers[:power])
        between = 2 ** (-4 / power * numbers[::2])[: self.heads - power]
        return torch.cat((slopes, between))


class T5Bias(Position):
    """scores + b_h[bucket(s − t)], one table for all layers (Raffel 2019, arXiv 1910.10683).

    Half of the buckets hold one distance each, the rest grow logarithmically up to `max_distance`, beyond which all
    distances share one.  Without causality each sign has half of the buckets; causal models need only the past.
    Kernels receive the whole bias (H, T, T): FlexAttention would add up the gradient of the table in random order.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int):
        super().__init__()
        if buckets < 4 or buckets % 4:
            raise BadValue("buckets", f"must be a positive multiple of 4, not {buckets}")
        if max_distance <= buckets // 2:
            raise BadValue("max_distance", f"must be more than half of the {buckets} buckets, not {max_distance}")
        self.buckets = buckets
        self.max_distance = max_distance
        self.table = embedding(buckets, heads, "position")

    def places(self, x: Tensor, causal: bool) -> Places:  # bias: (H, T, T)
        t = torch.arange(x.shape[-2], device=x.device)
        bias = self.table(self.bucket(t - t[:, None], causal))  # (T, T, H)
        return Places(bias=bias.permute(2, 0, 1).contiguous())  # fused kernels need a last stride of 1

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

    - `linear`: all angles / s (Chen 2023, arXiv 2306.15595)
    - `ntk`: base · s^(D/(D−2)): the slowest pair turns as with `linear`, the fastest as before (Peng 2023, 2309.00071)
    - `yarn`: angles / s of pairs that turn less than once in the training context, unchanged angles of those that turn
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
            raise ValueError(f"a head of {head_dim} features must be even, for pairs of features to turn")
        if scaling == "ntk" and head_dim < 4:
            raise BadValue("scaling", "ntk needs two pairs of features to turn; choose linear or yarn")
        at_least("base", base, 1)
        if scaling == "yarn":
            above("base", base, 1)
        if local_base is not None:
            at_least("local_base", local_base, 1)
        self.turned = head_dim  # number of features
        self.base = base
        self.context = context
        self.scaling = scaling
        self.local_base = local_base

    def places(self, x: Tensor, causal: bool) -> Places:  # rotations: two of (T, R)
        angle, factor = self.scaled_angles(x)
        local = None
        if self.local_base is not None:
            local = rotation_of(angles(x.shape[-2], self.turned, self.local_base, x))
        return Places(rotation=rotation_of(angle), local=local, factor=factor)

    def scaled_angles(self, x: Tensor) -> tuple[Tensor, float | None]:
        """Angles (T, R / 2) for a stream (B, T, C), and the factor for the scores."""
        length = x.shape[-2]
        if self.scaling is None or self.context is None or length <= self.context:
            return angles(length, self.turned, self.base, x), None
        ratio = length / self.context
        if self.scaling == "ntk":
            base = self.base * ratio ** (self.turned / (self.turned - 2))
            return angles(length, self.turned, base, x), None
        angle = angles(length, self.turned, self.base, x)
        if self.scaling == "linear":
            return angle / ratio, None
        weight = self.interpolation_weight(angle, self.context)
        interpolated = angle * (1 - weight) + angle / ratio * weight
        return interpolated, (0.1 * math.log(ratio) + 1) ** 2

    def interpolation_weight(self, like: Tensor, context: int) -> Tensor:
        """YaRN's weight of interpolation per pair (R / 2,): 1 up to one turn in the training context, 0 from 32 turns.
        In between it is linear in the pair's index, as in the paper's code."""
        first = max(math.floor(self.pair_that_turns(32, context)), 0)
        last = min(math.ceil(self.pair_that_turns(1, context)), self.turned - 1)
        index = torch.arange(self.turned // 2, device=like.device, dtype=like.dtype)
        return ((index - first) / max(last - first, 1e-3)).clamp(0, 1)

    def pair_that_turns(self, times: int, context: int) -> float:
        """The index of the pair that turns so many times within the context, between two pairs a fraction."""
        return self.turned * math.log(context / (times * 2 * math.pi)) / (2 * math.log(self.base))


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
            problem = f"{share} of a head of {head_dim} features would turn {turned} of them"
            raise BadValue("share", f"{problem}; write a share that gives an even number from 2 to {head_dim}")
        super().__init__(turned, base, context, scaling, local_base)


class XPos(RoPE):
    """RoPE with pair i of queries × ζ_i^(t / span) and of keys × ζ_i^(−t / span) (Sun 2022, arXiv 2212.10554).

    ζ_i = (2i/D + γ) / (1 + γ), so that a pair's part of a score decays with the distance, fastest for fast pairs.  For
    later positions it would grow, so it is for causal models only.
    """

    causal_only = True

    def __init__(self, head_dim: int, base: float, span: float, gamma: float):
        super().__init__(head_dim, base)
        self.span = above("span", span, 0)
        self.gamma = above("gamma", gamma, 0)

    def places(self, x: Tensor, causal: bool) -> Places:  # rotations: two of (T, R)
        angle, _ = self.scaled_angles(x)
        t = torch.arange(angle.shape[0], device=angle.device, dtype=angle.dtype)
        pair = torch.arange(angle.shape[1], device=angle.device, dtype=angle.dtype)
        zeta = (2 * pair / self.turned + self.gamma) / (1 + self.gamma)
        scale = zeta ** (t / self.span)[:, None]
        return Places(rotation=rotation_of(angle, scale), key_rotation=rotation_of(angle, 1 / scale))


def rotation_of(angle: Tensor, scale: Tensor | None = None) -> Rotation:
    """The rotation by these angles (T, R / 2), with pairs times `scale`: two tensors (T, R)."""
    cos = angle.cos()
    sin = angle.sin()
    if scale is not None:
        cos = scale * cos
        sin = scale * sin
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(x: Tensor, rotation: Rotation | None) -> Tensor:  # (B, H, T, D) -> (B, H, T, D)
    """Rotate the pairs (x_i, x_{i+R/2}) of the first R features; the others do not change."""
    if rotation is None:
        return x
    cos, sin = rotation
    size = cos.shape[-1]
    y = x[..., :size].to(cos.dtype).contiguous()  # otherwise the products below run over rows of D
    y = torch.addcmul(y * cos, y.roll(size // 2, -1), sin).to(x.dtype)
    if size == x.shape[-1]:
        return y
    return torch.cat((y, x[..., size:]), -1)


def thinned(rotation: Rotation | None, size: int) -> Rotation | None:
    """A rotation of `size` features with the same base: every k-th angle of R's, base^(−2jk/R), with k = R / size.
    Raises ValueError if that is not possible."""
    if rotation is None:
        return None
    cos, sin = rotation
    turned = cos.shape[-1]
    if size < 2 or size % 2 or turned % size:
        problem = f"position rotates {turned} features of a head, but this attention needs {size} with the same base"
        raise ValueError(f"{problem}: that must be an even divisor of the former")
    step = turned // size
    return cos[..., ::step], sin[..., ::step]


def doubled(places: Places) -> Places:
    """Position information for attention that has two heads for each of the original ones."""
    bias = places.bias
    slopes = places.slopes
    if bias is not None and bias.ndim > 2 and bias.shape[-3] > 1:
        bias = bias.repeat_interleave(2, -3)
    if slopes is not None:
        slopes = slopes.repeat_interleave(2)
    return places._replace(bias=bias, slopes=slopes)
