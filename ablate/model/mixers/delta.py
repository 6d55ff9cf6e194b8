"""Gated DeltaNet: a token overwrites the value of its key in the state, and the whole state decays."""

import torch
from torch import Tensor, nn

from ablate.model.init import tag
from ablate.model.mixers.chunked import CHUNK
from ablate.model.mixers.parts import Decay, GatedOutput, Kernels, ShortConvolution, by_delta, real, width
from ablate.model.position import Places
from ablate.model.shape import Shape


class GatedDeltaNet(GatedOutput):
    """S_t = α_t (I − β_t k_t k_tᵀ) S_{t−1} + β_t k_t v_tᵀ, o_t = S_tᵀ q_t (Yang 2024, arXiv 2412.06464).

    β = σ(W_β x), α as in Mamba-2.  Queries, keys and values pass a short convolution; queries and keys are normalised.
    The output is (silu(W_gate x) ⊙ RMSNorm_h(o)) W_out.  Keys have `key_share`, values `expand` times a head's
    features.
    """

    max_keys = 256

    def __init__(
        self,
        shape: Shape,
        key_share: float,
        expand: float,
        convolution: int,
        bias: bool,
        eps: float,
        kernels: Kernels | None = None,
    ):
        keys = width("key_share", key_share, shape.head_dim)
        values = width("expand", expand, shape.head_dim)
        super().__init__(shape, keys, values, bias, eps, kernels)
        self.convolution = ShortConvolution(sum(self.sizes), convolution)
        self.beta = tag(nn.Linear(shape.dim, self.heads, bias=False), "in")
        self.decay = Decay(shape.dim, self.heads)

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), mask (B, T) -> (B, T, C)
        projected = real(torch.cat((self.query(x), self.key(x), self.value(x)), -1), mask)
        query, key, value = self.convolution(projected).split(self.sizes, -1)
        query = of_length_one(self.split_heads(query))
        key = of_length_one(self.split_heads(key))
        value = self.split_heads(value)
        decay, _ = self.decay(x, mask)
        strength = real(torch.sigmoid(self.beta(x)), mask).transpose(-2, -1).to(decay.dtype)
        return self.gated_output(x, by_delta(query, key, value, decay, strength, self.kernels))

    def stated_flops(self, batch: int, length: int) -> int:
        """FLOPs of the decays, and of solving a triangular system per chunk."""
        solving = batch * length * min(CHUNK, length) * (self.sizes[1] + self.sizes[2])
        return solving + super().stated_flops(batch, length)


def of_length_one(x: Tensor) -> Tensor:
    """x / √(‖x‖² + 1e-6), as in the authors' code, in at least float32: (..., D) -> (..., D)."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + 1e-6)
