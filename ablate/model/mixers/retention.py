"""Retention: products of queries and keys without softmax, with a fixed decay per head."""

import torch
from torch import Tensor

from ablate.model.mixers.parts import GatedOutput, Kernels, by_head, real, width
from ablate.model.position import Places, rotate
from ablate.model.shape import Shape


class Retention(GatedOutput):
    """o_t = Σ_{s ≤ t} γ_h^{t−s} (q_t · k_s / √D) v_s, γ_h = 1 − 2^{−5−h}, h = 0, 1, … (Sun 2023, arXiv 2307.08621).

    S_t = γ S_{t−1} + k_t v_tᵀ, o_t = S_tᵀ q_t / √D.  The output is (silu(W_gate x) ⊙ norm_h(o)) W_out, with RMSNorm as
    in the authors' code.  The paper rotates queries and keys as position=rope does.  Values have `expand` times a
    head's features.
    """

    reads = ("rotation",)

    def __init__(self, shape: Shape, expand: float, bias: bool, eps: float, kernels: Kernels | None = None):
        super().__init__(shape, shape.head_dim, width("expand", expand, shape.head_dim), bias, eps, kernels)

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), mask (B, T) -> (B, T, C)
        query = self.split_heads(self.query(x))
        key = self.split_heads(self.key(x))
        value = self.split_heads(real(self.value(x), mask))
        query_rotation, key_rotation = places.rotations()
        query = rotate(query * query.shape[-1] ** -0.5, query_rotation)
        key = rotate(key, key_rotation)
        dtype = torch.promote_types(x.dtype, torch.float32)
        heads = torch.arange(self.heads, device=x.device, dtype=dtype)
        decay = torch.log1p(-(2 ** (-5 - heads)))[:, None].expand(query.shape[:-1])
        return self.gated_output(x, by_head(query, key, value, decay, self.kernels))
