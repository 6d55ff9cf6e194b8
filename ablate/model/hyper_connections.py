"""Hyper-connections: several residual streams, and trained weights of what sublayers read of them and write to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import at_least
from ablate.model.mixers.chunked import as_given
from ablate.model.residual import Block, Step, Stream, Sublayers
from ablate.model.shape import Shape


class HyperConnections(Block):
    """H ← Aᵀ H + b f(norm(Hᵀ m))ᵀ for each sublayer f, and a final norm, over n streams H (n, C) of each position.

    H starts as n copies of the embedding and ends as the mean of its streams; the paper's sum differs from that by a
    factor, which a norm takes away (Zhu 2024, arXiv 2409.19606).  At first A = 1, b = (1, …, 1), and the k-th sublayer
    of the stack reads stream k mod n: pre-norm.  `weights` static: A, m and b are trained numbers; dynamic: to them
    each position adds s · tanh(norm(H) W), for A, m and b each, with W at first 0, s 0.01, and a norm without weights.
    """

    final_norm = True

    def __init__(
        self, shape: Shape, sublayers: Sublayers, layer: int, streams: int, weights: Literal["static", "dynamic"]
    ):
        super().__init__(shape, sublayers)
        self.streams, count = at_least("residual.streams", streams, 1), len(self.dropouts)
        self.connections = nn.ModuleList(
            Connection(shape.dim, streams, (layer * count + i) % streams, weights == "dynamic") for i in range(count)
        )

    def enter(self, x: Tensor) -> Stream:  # (B, T, C) -> (B, T, n, C)
        """See Block."""
        return Stream(x[..., None, :].expand(*x.shape[:-1], self.streams, -1))

    def leave(self, stream: Stream) -> Tensor:  # (B, T, n, C) -> (B, T, C)
        """See Block."""
        return stream.x.mean(-2)

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, n, C) -> the same
        """See the class."""
        for f, norm, connection, dropout in zip(sublayers, norms, self.connections, self.dropouts, strict=True):
            write, read_and_keep = connection(x).split((1, self.streams + 1), -1)  # (…, n, 1), (…, n, n + 1)
            with as_given(x):  # in bf16 every sublayer would round the streams
                mixed = read_and_keep.transpose(-1, -2).to(x.dtype) @ x
            added = dropout(f(norm(mixed[..., 0, :])))
            x = mixed[..., 1:, :] + write * added[..., None, :]
        return x


class Connection(nn.Module):
    """b, m and A of one sublayer beside each other: (n, n + 2), or by position (B, T, n, C) -> (B, T, n, n + 2)."""

    def __init__(self, dim: int, streams: int, read: int, dynamic: bool):
        super().__init__()
        self.streams = streams
        start = torch.eye(streams)
        start = torch.cat((torch.ones(streams, 1), start[:, read : read + 1], start), 1)
        self.static = nn.Parameter(start.flatten())  # a vector, which no optimiser decays
        self.dynamic, self.scales = None, None
        if dynamic:
            self.dynamic = nn.Parameter(torch.zeros(streams + 2, dim))
            self.dynamic.role = "constant"
            self.scales = nn.Parameter(torch.full((2,), 0.01))  # of b, and of m and A

    def forward(self, x: Tensor) -> Tensor:
        static = self.static.unflatten(0, (self.streams, -1))
        if self.dynamic is None or self.scales is None:
            return static.clone()  # of a view of a parameter torch's counter of FLOPs finds no gradient to hook
        found = F.linear(F.layer_norm(x, x.shape[-1:]), self.dynamic).tanh()
        return static + torch.cat((self.scales[:1], self.scales[1:].expand(self.streams + 1))) * found
