"""Gated linear attention: each feature of the state decays at a rate that depends on the token."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import above, at_least
from ablate.model.init import tag
from ablate.model.mixers.chunked import FINE
from ablate.model.mixers.parts import GatedOutput, Kernels, by_feature, real, width
from ablate.model.position import Places
from ablate.model.shape import Shape


class GLA(GatedOutput):
    """S_t = diag(α_t) S_{t−1} + k_t v_tᵀ, o_t = S_tᵀ q_t, α_t = σ(W₂ W₁ x_t + b)^{1/τ} (Yang 2023, arXiv 2312.06635).

    The output is (silu(W_gate x) ⊙ norm_h(o)) W_out, with RMSNorm as in the authors' code.  Queries and keys have
    `key_share` of a head's features, W₁ has `rank` rows, τ is `temperature`.
    """

    def __init__(
        self,
        shape: Shape,
        key_share: float,
        rank: int,
        temperature: float,
        bias: bool,
        eps: float,
        kernels: Kernels | None = None,
    ):
        keys = width("key_share", key_share, shape.head_dim)
        super().__init__(shape, keys, shape.head_dim, bias, eps, kernels)
        self.rank = tag(nn.Linear(shape.dim, at_least("rank", rank, 1), bias=False), "in")
        self.decay = tag(nn.Linear(rank, shape.heads * keys), "in")
        self.temperature = above("temperature", temperature, 0)

    def forward(
        self, x: Tensor, places: Places, causal: bool, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:  # (B, T, C), mask (B, T) -> (B, T, C)
        dtype = torch.promote_types(x.dtype, torch.float32)
        decay = real(F.logsigmoid(self.decay(self.rank(x)).to(dtype)) / self.temperature, mask)
        query = self.split_heads(self.query(x))
        key = self.split_heads(self.key(x))
        value = self.split_heads(real(self.value(x), mask))
        return self.gated_output(x, by_feature(query, key, value, self.split_heads(decay), self.kernels))

    def stated_flops(self, batch: int, length: int) -> int:
        """FLOPs of the pairs in each chunk: two products and a sum per feature."""
        return 3 * batch * length * min(FINE, length) * self.key.out_features
