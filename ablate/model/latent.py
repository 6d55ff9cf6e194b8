"""Attention whose keys and values come from few numbers per position."""

import torch
from torch import Tensor, nn

from ablate.config.ranges import at_least
from ablate.model.attend import Attention
from ablate.model.init import tag
from ablate.model.norm import RMSNorm
from ablate.model.position import Places, rotate, thinned
from ablate.model.shape import Shape


class MLA(Attention):
    """Multi-head latent attention: K_h and V_h from one latent per position (DeepSeek-AI 2024, arXiv 2405.04434).

    c = norm(W_c x) of `kv_rank` features (None: 2 D); K_h = [W_h c; turned(W_r x)], V_h = W'_h c.  The `rope_dim`
    features that position turns (None: D / 2) are one key for all heads.  Q_h has D + rope_dim features, of x itself or
    of norm(W_q x) of `query_rank` features; without `scale` it is 1 / √(D + rope_dim).  Norms are RMSNorms.
    """

    def __init__(
        self,
        shape: Shape,
        kv_rank: int | None,
        query_rank: int | None,
        rope_dim: int | None,
        bias: bool,
        scale: float | None,
        eps: float,
    ):
        super().__init__(shape)
        heads, size, dim = shape.heads, shape.head_dim, shape.dim
        rank = 2 * size if kv_rank is None else at_least("attention.kv_rank", kv_rank, 1)
        turned = size // 2 if rope_dim is None else at_least("attention.rope_dim", rope_dim, 1)
        read = dim if query_rank is None else at_least("attention.query_rank", query_rank, 1)
        self.heads, self.rope_dim = heads, turned
        self.scale = (size + turned) ** -0.5 if scale is None else scale
        self.query_down = None if query_rank is None else tag(nn.Linear(dim, read, bias), "in")
        self.query_norm = None if query_rank is None else RMSNorm(read, eps)
        self.query = tag(nn.Linear(read, heads * (size + turned), bias), "in")
        self.latent, self.latent_norm = tag(nn.Linear(dim, rank, bias), "in"), RMSNorm(rank, eps)
        self.turned_key = tag(nn.Linear(dim, turned, bias), "in")
        self.key = tag(nn.Linear(rank, heads * size, bias), "in")
        self.value = tag(nn.Linear(rank, heads * size, bias), "in")
        self.out = tag(nn.Linear(heads * size, dim, bias), "out")

    def project(self, x: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, H, T, D + rope_dim), values (B, H, S, D)."""
        of_query, of_key = (turn and thinned(turn, self.rope_dim) for turn in places.rotations())
        if self.query_down is not None and self.query_norm is not None:
            x = self.query_norm(self.query_down(x))
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        plain, turned = query.split((self.head_dim, self.rope_dim), -1)
        latent = self.latent_norm(self.latent(memory))
        key, value = self.split_heads(self.key(latent)), self.split_heads(self.value(latent))
        shared = rotate(self.turned_key(memory)[..., None, :, :], of_key).expand(*key.shape[:-1], -1)
        return torch.cat((plain, rotate(turned, of_query)), -1), torch.cat((key, shared), -1), value
