"""Position encodings that turn queries and keys."""

import math
from typing import Literal

import torch
from torch import Tensor

from ablate.config.ranges import above, at_least
from ablate.model.places import Places, Position, Rotation, angles

Scaling = Literal["linear", "ntk", "yarn"]


class RoPE(Position):
    """Turns the pair (x_i, x_{i+D/2}) of queries and keys by the angle t / base^(2i/D) (Su 2021, arXiv 2104.09864).

    `scaling` is for sequences that are s > 1 times as long as the training context; up to that it changes nothing:

    linear  all angles / s (Chen 2023, arXiv 2306.15595)
    ntk     base · s^(D/(D−2)): the slowest pair turns as with `linear`, the fastest as before (Peng 2023, 2309.00071)
    yarn    angles / s of pairs that turn less than once in the training context, as before of those that turn more
            than 32 times, a blend between; all scores are (0.1 · ln s + 1)² times as large (Peng 2023)

    With `local_base` layers that have a window turn by that base, which no scaling changes: their distances stay as
    they were (Gemma 3, arXiv 2503.19786; ModernBERT, 2412.13663).  With `cut` pairs that turn less than once in the
    training context do not turn at all, at any length (Hua 2024, FoPE, arXiv 2412.17739, without its Fourier series).
    """

    beyond_context = ("scaling",)  # settings that act on sequences longer than the training context alone

    def __init__(
        self,
        head_dim: int,
        base: float,
        context: int | None = None,
        scaling: Scaling | None = None,
        local_base: float | None = None,
        cut: bool | None = None,
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
        if cut and context is not None and context < 2 * math.pi:
            raise ValueError(f"position.cut=true leaves no pair that turns in a context of {context}; leave it out")
        self.turned, self.base = head_dim, at_least("position.base", base, 1)
        self.context, self.scaling, self.cut = context, scaling, bool(cut)
        self.local_base = None if local_base is None else at_least("position.local_base", local_base, 1)

    def places(self, x: Tensor, causal: bool) -> Places:  # rotations: two of (T, R)
        angle, factor = self.scaled(x)
        local = None
        if self.local_base is not None:
            local = rotation_of(self.cut_off(angles(x.shape[-2], self.turned, self.local_base, x), self.local_base))
        return Places(rotation=rotation_of(self.cut_off(angle, self.base)), local=local, factor=factor)

    def scaled(self, x: Tensor) -> tuple[Tensor, float | None]:
        """Angles (T, R / 2) at the length of the stream (B, T, C), and what scores are multiplied by."""
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

    def cut_off(self, angle: Tensor, base: float) -> Tensor:  # (T, R / 2) -> (T, R / 2)
        """The angles; 0 for pairs that turn less than once in the training context, where those are cut."""
        if not self.cut or self.context is None:
            return angle
        return angle * (angles(2, self.turned, base, angle)[1] * self.context >= 2 * math.pi)

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
        scaling: Scaling | None = None,
        local_base: float | None = None,
        cut: bool | None = None,
    ):
        turned = int(head_dim * share)
        if turned % 2 or not 2 <= turned <= head_dim:
            raise ValueError(
                f"position.share={share} of a head of {head_dim} features would turn {turned} of them; "
                f"write a share that gives an even number from 2 to {head_dim}"
            )
        super().__init__(turned, base, context, scaling, local_base, cut)


class XPos(RoPE):
    """RoPE whose pair i of queries is ζ_i^(t / span) times as long, and of keys ζ_i^(−t / span) (Sun 2022, 2212.10554).

    ζ_i = (2i/D + γ) / (1 + γ), so that what a pair adds to a score falls with the distance, fast pairs' fastest.  To
    later positions it would grow: it serves what reads from left to right.
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
    """What turns pairs by these angles (T, R / 2), and makes them so many times as long: two of (T, R)."""
    cos, sin = angle.cos(), angle.sin()
    if length is not None:
        cos, sin = length * cos, length * sin
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(x: Tensor, rotation: Rotation | None) -> Tensor:  # (B, H, T, D) -> (B, H, T, D)
    """Turn the pairs (x_i, x_{i+R/2}) of the first R features; the others stay."""
    if rotation is None:
        return x
    cos, sin = rotation
    size = cos.shape[-1]
    y = x[..., :size].to(cos.dtype).contiguous()  # or else every product below runs over rows of D numbers
    y = torch.addcmul(y * cos, y.roll(size // 2, -1), sin).to(x.dtype)
    return y if size == x.shape[-1] else torch.cat((y, x[..., size:]), -1)


def thinned(rotation: Rotation, size: int) -> Rotation:
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
