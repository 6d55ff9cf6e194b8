"""Linear attention: a product of feature maps instead of softmax's exponential of a product."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import BadValue, above
from ablate.model.init import tag
from ablate.model.mixers.chunked import decaying_flops
from ablate.model.mixers.parts import Kernels, by_head, choose_kernels, merge_heads, real
from ablate.model.position import Places
from ablate.model.products import as_given
from ablate.model.shape import Shape


class LinearAttention(nn.Module):
    """Σ_s φ(q_t)·φ(k_s) v_s / (Σ_s φ(q_t)·φ(k_s) + ε), φ(x) = elu(x) + 1 (Katharopoulos 2020, arXiv 2006.16236).

    If causal, over s ≤ t: S_t = S_{t−1} + φ(k_t) v_tᵀ, z_t = z_{t−1} + φ(k_t), o_t = S_tᵀ φ(q_t) / (z_t·φ(q_t) + ε).
    Computed in at least float32, with ε as in the authors' code.  `kernels` are used for causal sums only.
    """

    reads: tuple[str, ...] = ()  # fields of Places that it uses
    late = ("kernels",)  # settings that only affect a GPU

    def __init__(self, shape: Shape, bias: bool, eps: float, kernels: Kernels | None = None):
        super().__init__()
        if kernels is not None and not shape.decoder_layers:
            problem = "needs a causal model, and an encoder reads both ways; leave it out"
            raise BadValue("kernels", f"{kernels} {problem}")
        choose_kernels(self, kernels, shape.head_dim, shape.head_dim)
        width = shape.heads * shape.head_dim
        self.heads = shape.heads
        self.eps = above("eps", eps, 0)
        self.query = tag(nn.Linear(shape.dim, width, bias), "in")
        self.key = tag(nn.Linear(shape.dim, width, bias), "in")
        self.value = tag(nn.Linear(shape.dim, width, bias), "in")
        self.out = tag(nn.Linear(width, shape.dim, bias), "out")
        self.sums = CausalSums(shape.heads, shape.head_dim, kernels)

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), memory (B, S, C), mask of what is attended to (B, S) -> (B, T, C)
        source = x if memory is None else memory
        dtype = torch.promote_types(x.dtype, torch.float32)
        query = self.split_heads(features(self.query(x).to(dtype)))
        key = self.split_heads(real(features(self.key(source).to(dtype)), mask))
        value = self.split_heads(self.value(source)).to(dtype)
        value = F.pad(value, (0, 1), value=1)  # the additional column sums to the normaliser
        with as_given(x):
            if causal:
                sums = self.sums(query.transpose(-3, -2), key.transpose(-3, -2), value.transpose(-3, -2))
            else:
                sums = query @ (key.transpose(-2, -1) @ value)
        return self.out(merge_heads(sums[..., :-1] / (sums[..., -1:] + self.eps)))

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H · D) -> (B, H, T, D)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)


class CausalSums(nn.Module):
    """S_tᵀ q_t, S_t = Σ_{s ≤ t} k_s v_sᵀ: (B, T, H, D), (B, T, H, D), (B, T, H, V) -> (B, H, T, V)."""

    def __init__(self, heads: int, features: int, kernels: Kernels | None):
        super().__init__()
        self.heads = heads
        self.features = features
        self.kernels = kernels

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query = query.transpose(-3, -2)
        no_decay = torch.zeros_like(query[..., 0])
        return by_head(query, key.transpose(-3, -2), value.transpose(-3, -2), no_decay, self.kernels)

    def stated_flops(self, batch: int, length: int) -> int:
        """FLOPs of the decays, which are all 1 here."""
        return decaying_flops(batch, length, self.heads, self.features)


def features(x: Tensor) -> Tensor:
    """elu(x) + 1 = eˣ below 0, x + 1 above, without the rounding error of adding 1 to a number near −1."""
    return x.clamp(max=0).exp() + F.relu(x)
