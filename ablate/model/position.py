"""Position encodings.  One can act in three places, each a no-op by default: on the embeddings, on queries and keys,
and on the attention scores."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ablate.config.ranges import above, at_least
from ablate.model.init import embedding


class Places(NamedTuple):
    """What self-attention is told of positions, made once for all layers of a forward pass; and the values of the
    first layer, where it mixes them into its own."""

    rotation: tuple[Tensor, Tensor] | None = None  # cosines and signed sines (T, R) for the first R features
    bias: Tensor | None = None  # added to the scores, broadcast to (B, H, T, T)
    slopes: Tensor | None = None  # (H,), where the bias is −slope · |t − s|, for kernels that compute it themselves
    values: Tensor | None = None  # (B, H, T, D)


class Position(nn.Module):
    """No position encoding (NoPE; Kazemnejad 2023, arXiv 2305.19466), and the contract of all others."""

    extrapolates = True  # whether it has an answer for positions beyond those that it was trained on

    def embed(self, x: Tensor) -> Tensor:
        """Change the embeddings (B, T, C)."""
        return x

    def places(self, x: Tensor, causal: bool) -> Places:
        """What the attention over the stream (B, T, C) is told."""
        return Places()


class Sinusoidal(Position):
    """x + p, p(t, 2i) = sin(t / base^(2i/dim)), p(t, 2i+1) = cos(t / base^(2i/dim)) (Vaswani 2017, 1706.03762).

    Positions count from `offset` (XGLM: 2).
    """

    note = "its vectors have RMS 0.71; embeddings are far smaller unless model.scale_embeddings=true"

    def __init__(self, dim: int, base: float, offset: int | None = None):
        super().__init__()
        if dim % 2:
            raise ValueError(f"model.dim={dim} must be even for position=sinusoidal")
        self.dim, self.base = dim, at_least("position.base", base, 1)
        self.offset = at_least("position.offset", offset or 0, 0)

    def embed(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        angle = angles(x.shape[-2], self.dim, self.base, x, self.offset)
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


class RoPE(Position):
    """Turns the pair (x_i, x_{i+D/2}) of queries and keys by the angle t / base^(2i/D) (Su 2021, arXiv 2104.09864).

    `scaling` is for sequences that are s > 1 times as long as the training context; up to that it changes nothing:

    linear  all angles / s (Chen 2023, arXiv 2306.15595)
    ntk     base · s^(D/(D−2)): the slowest pair turns as with `linear`, the fastest as before (Peng 2023, 2309.00071)
    yarn    angles / s of pairs that turn less than once in the training context, as before of those that turn more
            than 32 times, a blend between; queries and keys are 0.1 · ln s + 1 times as long (Peng 2023)
    """

    def __init__(
        self,
        head_dim: int,
        base: float,
        context: int | None = None,
        scaling: Literal["linear", "ntk", "yarn"] | None = None,
    ):
        super().__init__()
        if head_dim % 2:
            raise ValueError(
                f"heads of {head_dim} features (model.head_dim, or model.dim / model.heads) must be even "
                "for position=rope, which turns pairs of features"
            )
        if scaling == "ntk" and head_dim < 4:
            raise ValueError("position.scaling=ntk needs two pairs of features to turn; choose linear or yarn")
        if scaling == "yarn":
            above("position.base", base, 1)
        self.turned, self.base = head_dim, at_least("position.base", base, 1)
        self.context, self.scaling = context, scaling

    def places(self, x: Tensor, causal: bool) -> Places:  # rotation: two of (T, R)
        angle, length = self.scaled(x)
        cos, sin = length * angle.cos(), length * angle.sin()
        return Places(rotation=(torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)))

    def scaled(self, x: Tensor) -> tuple[Tensor, float]:
        """Angles (T, R / 2) at the length of the stream (B, T, C), and what queries and keys are multiplied by."""
        size = x.shape[-2]
        if self.scaling is None or self.context is None or size <= self.context:
            return angles(size, self.turned, self.base, x), 1.0
        longer = size / self.context
        if self.scaling == "ntk":
            return angles(size, self.turned, self.base * longer ** (self.turned / (self.turned - 2)), x), 1.0
        angle = angles(size, self.turned, self.base, x)
        if self.scaling == "linear":
            return angle / longer, 1.0
        slow = self.slow(angle, self.context)
        return angle * (1 - slow) + angle / longer * slow, 0.1 * math.log(longer) + 1

    def slow(self, like: Tensor, context: int) -> Tensor:
        """YaRN's share of interpolation of each pair (R / 2,): 1 from one turn in the training context down, 0 from 32.

        Between these two it is linear in the pair's number, as in the paper's code.
        """

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
        scaling: Literal["linear", "ntk", "yarn"] | None = None,
    ):
        turned = int(head_dim * share)
        if turned % 2 or not 2 <= turned <= head_dim:
            raise ValueError(
                f"position.share={share} of a head of {head_dim} features would turn {turned} of them; "
                f"write a share that gives an even number from 2 to {head_dim}"
            )
        super().__init__(turned, base, context, scaling)


class ALiBi(Position):
    """scores − m_h · |t − s|, slopes m_h = 2^(−8h/H) for heads h = 1 … H (Press 2021, arXiv 2108.12409).

    Where H is no power of two, the paper's code takes the slopes of the next lower one, and the rest of every second
    one of the next higher.  Over both directions the distance counts either way.  `scale` multiplies all slopes:
    Falcon adds the bias before it divides scores by √D, which is a scale of 1 / √D.
    """

    def __init__(self, heads: int, scale: float | None = None):
        super().__init__()
        self.heads, self.scale = heads, above("position.scale", 1.0 if scale is None else scale, 0)

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
        found = torch.cat((2 ** (-8 / power * order[:power]), rest))
        return found if self.scale == 1 else self.scale * found


class T5Bias(Position):
    """scores + b_h[bucket(s − t)], one table for all layers (Raffel 2019, arXiv 1910.10683).

    Half of the buckets hold one distance each, the rest grow with the logarithm up to `max_distance`, beyond which all
    are one.  Over both directions each sign has its half of the buckets; a causal model needs only the past.  Kernels
    are handed the whole bias (H, T, T): FlexAttention would add up the gradient of the table in no fixed order.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int):
        super().__init__()
        if buckets < 4 or buckets % 4 or max_distance <= buckets // 2:
            raise ValueError(
                f"position.buckets={buckets} must be a multiple of 4, "
                f"and position.max_distance={max_distance} must be more than half of it"
            )
        self.buckets, self.max_distance = buckets, max_distance
        self.table = embedding(buckets, heads, "position")

    def places(self, x: Tensor, causal: bool) -> Places:  # bias: (H, T, T)
        t = torch.arange(x.shape[-2], device=x.device)
        bias = self.table(self.bucket(t - t[:, None], causal)).permute(2, 0, 1)
        return Places(bias=bias.contiguous())  # fused kernels take no bias whose last stride is not 1

    def bucket(self, offset: Tensor, causal: bool) -> Tensor:
        """The bucket of key position minus query position, of any shape."""
        count = self.buckets if causal else self.buckets // 2
        exact = count // 2
        distance = (-offset).clamp(min=0) if causal else offset.abs()
        growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
        side = 0 if causal else count * (offset > 0)
        return torch.where(distance < exact, distance, far) + side


def angles(length: int, dim: int, base: float, like: Tensor, first: int = 0) -> Tensor:
    """t / base^(2i/dim) of `length` positions t from `first`, i < dim/2: (length, dim/2).

    In at least float32: bf16 cannot count past 256.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    frequency = base ** (-torch.arange(0, dim, 2, device=like.device, dtype=dtype) / dim)
    return torch.outer(torch.arange(first, first + length, device=like.device, dtype=dtype), frequency)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:  # (B, H, T, D) -> (B, H, T, D)
    """Turn the pairs (x_i, x_{i+R/2}) of the first R features; the others stay."""
    if rotation is None:
        return x
    cos, sin = rotation
    size = cos.shape[-1]
    y = x[..., :size].to(cos.dtype).contiguous()  # or else every product below runs over rows of D numbers
    y = torch.addcmul(y * cos, y.roll(size // 2, -1), sin).to(x.dtype)
    return y if size == x.shape[-1] else torch.cat((y, x[..., size:]), -1)


def thinned(rotation: tuple[Tensor, Tensor], size: int) -> tuple[Tensor, Tensor]:
    """A rotation by the same base of `size` features, every (R / size)-th angle of R's: base^(−2jk/R) where k = R/size.

    Raises ValueError where that gives no pairs.
    """
    turned = rotation[0].shape[-1]
    if size < 2 or size % 2 or turned % size:
        raise ValueError(
            f"position turns {turned} features of a head, attention is to turn {size} by the same base: "
            "that must be an even number which divides the other"
        )
    cos, sin = (part[..., :: turned // size] for part in rotation)
    return cos, sin


def doubled(places: Places) -> Places:
    """What each head is told of positions for two heads in its place."""
    bias, slopes = places.bias, places.slopes
    if bias is not None and bias.ndim > 2 and bias.shape[-3] > 1:
        bias = bias.repeat_interleave(2, -3)
    return places._replace(bias=bias, slopes=None if slopes is None else slopes.repeat_interleave(2))
