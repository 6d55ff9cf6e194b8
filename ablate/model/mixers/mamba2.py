"""Mamba-2: a state space model with one decay per head, which depends on the token."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import at_least
from ablate.model.init import tag
from ablate.model.mixers.parts import Decay, Kernels, Recurrent, ShortConvolution, by_head, merge_heads, real, width
from ablate.model.norm import RMSNorm
from ablate.model.position import Places
from ablate.model.shape import Shape


class Mamba2(Recurrent):
    """S_t = exp(A Δ_t) S_{t−1} + Δ_t k_t v_tᵀ, o_t = S_tᵀ q_t + D v_t (Dao & Gu 2024, arXiv 2405.21060).

    Δ = softplus(W_Δ x + b); v, k and q, the paper's x, B and C, pass a short convolution; k and q, with `state`
    features, are shared by all heads, v has `expand` times a head's.  The output is RMSNorm(silu(W_gate x) ⊙ o) W_out.
    With `convolution_bias` the convolution has a bias, as in the authors' code.
    """

    def __init__(
        self,
        shape: Shape,
        state: int,
        expand: float,
        convolution: int,
        bias: bool,
        eps: float,
        kernels: Kernels | None = None,
        convolution_bias: bool | None = None,
    ):
        values = width("expand", expand, shape.head_dim)
        super().__init__(shape, state, values, kernels)
        features = self.heads * values
        at_least("state", state, 1)
        self.sizes = [state, state, features]
        self.query = tag(nn.Linear(shape.dim, state, bias), "in")
        self.key = tag(nn.Linear(shape.dim, state, bias), "in")
        self.value = tag(nn.Linear(shape.dim, features, bias), "in")
        self.gate = tag(nn.Linear(shape.dim, features, bias), "in")
        self.convolution = ShortConvolution(sum(self.sizes), convolution, convolution_bias is True)
        self.decay = Decay(shape.dim, self.heads)
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.norm = RMSNorm(features, eps)
        self.out = tag(nn.Linear(features, shape.dim, bias), "out")

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), mask (B, T) -> (B, T, C)
        projected = real(torch.cat((self.query(x), self.key(x), self.value(x)), -1), mask)
        query, key, value = self.convolution(projected).split(self.sizes, -1)
        value = self.split_heads(value)
        decay, step = self.decay(x, mask)
        shared_query = query[..., None, :, :]
        shared_key = key[..., None, :, :]
        output = by_head(shared_query, shared_key, step[..., None] * value, decay, self.kernels)
        output = merge_heads(output + self.skip[:, None, None] * value)
        return self.out(self.norm(F.silu(self.gate(x)) * output))
