"""GPT-2 at nanoGPT's CPU shape, as a user would write it for one experiment.

No part of `ablate`: what its model is compared with, by a test and by `gpu.py`.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Size(NamedTuple):
    """The size of a model."""

    vocab: int
    context: int = 64
    layers: int = 4
    heads: int = 4
    dim: int = 128


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        heads = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (B, T, 3, H, C / H)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    """Two layers with GELU."""

    def __init__(self, dim: int):
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class SwiGLU(nn.Module):
    """Three matrices with SiLU."""

    def __init__(self, dim: int):
        super().__init__()
        hidden = 8 * math.ceil(dim / 3)
        self.gate = nn.Linear(dim, hidden)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


NORMS = {"ln": lambda dim: nn.LayerNorm(dim), "rms": lambda dim: nn.RMSNorm(dim, eps=1e-5)}
FFNS = {"gelu": MLP, "swiglu": SwiGLU}


class Block(nn.Module):
    """Pre-norm."""

    def __init__(self, size: Size, norm: str, ffn: str):
        super().__init__()
        self.norm1 = NORMS[norm](size.dim)
        self.attention = Attention(size.dim, size.heads)
        self.norm2 = NORMS[norm](size.dim)
        self.ffn = FFNS[ffn](size.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.attention(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class GPT(nn.Module):
    """The model; the head is the embedding."""

    def __init__(self, size: Size, norm: str, ffn: str):
        super().__init__()
        self.tokens = nn.Embedding(size.vocab, size.dim)
        self.positions = nn.Embedding(size.context, size.dim)
        self.blocks = nn.Sequential(*(Block(size, norm, ffn) for _ in range(size.layers)))
        self.norm = NORMS[norm](size.dim)
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * size.layers))
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, vocab)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def load_parameters(model: GPT, state: dict[str, Tensor]) -> None:
    """Take over the parameters of one of `ablate`'s models of the same shape."""
    renamed = {}
    for name in model.state_dict():
        theirs = name.replace("norm1", "norms.0").replace("norm2", "norms.1")
        if name == "tokens.weight":
            theirs = "embed.weight"
        elif name == "positions.weight":
            theirs = "position.table.weight"
        elif name.startswith("norm."):
            theirs = f"final_{name}"
        if ".qkv." in name:
            renamed[name] = torch.cat([state[theirs.replace("qkv", part)] for part in ("query", "key", "value")])
        else:
            renamed[name] = state[theirs]
    model.load_state_dict(renamed)


def loss_of(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """Mean loss of a batch."""
    return F.cross_entropy(model(tokens).flatten(0, -2), targets.flatten())
