"""Position encodings.  One can act in three places, each a no-op by default: on the embeddings, on queries and keys,
and on the attention scores.

Here: those of the first and the last.  Those that turn queries and keys are in `rotary.py`.
"""

import math

import torch
from torch import Tensor

from ablate.config.ranges import above, at_least
from ablate.model.init import embedding
from ablate.model.places import Places, Position, angles
from ablate.model.rotary import PartialRoPE, RoPE, XPos, rotate, thinned

__all__ = ["PartialRoPE", "Places", "Position", "RoPE", "XPos", "rotate", "thinned"]


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


def doubled(places: Places) -> Places:
    """What each head gets of positions, for two heads in its place."""
    bias, slopes = places.bias, places.slopes
    if bias is not None and bias.ndim > 2 and bias.shape[-3] > 1:
        bias = bias.repeat_interleave(2, -3)
    return places._replace(bias=bias, slopes=None if slopes is None else slopes.repeat_interleave(2))
