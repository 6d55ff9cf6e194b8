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

    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.qkv, self.out = nn.Linear(size.dim, 3 * size.dim), nn.Linear(size.dim, size.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    """Two layers with GELU."""

    def __init__(self, dim: int):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class SwiGLU(nn.Module):
    """Three matrices with SiLU."""

    def __init__(self, dim: int):
        super().__init__()
        hidden = 8 * math.ceil(8 * dim / 3 / 8)
        self.gate, self.up, self.down = nn.Linear(dim, hidden), nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


NORMS = {"ln": lambda dim: nn.LayerNorm(dim), "rms": lambda dim: nn.RMSNorm(dim, eps=1e-5)}
FFNS = {"gelu": MLP, "swiglu": SwiGLU}


class Block(nn.Module):
    """Pre-norm."""

    def __init__(self, size: Size, norm: str, ffn: str):
        super().__init__()
        self.norm1, self.norm2 = NORMS[norm](size.dim), NORMS[norm](size.dim)
        self.attention, self.ffn = Attention(size), FFNS[ffn](size.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.attention(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class GPT(nn.Module):
    """The model; the head is the embedding."""

    def __init__(self, size: Size, norm: str, ffn: str):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(size.vocab, size.dim), nn.Embedding(size.context, size.dim)
        self.blocks = nn.Sequential(*(Block(size, norm, ffn) for _ in range(size.layers)))
        self.norm = NORMS[norm](size.dim)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * size.layers) if last else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, vocab)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def adopt(model: GPT, state: dict[str, Tensor]) -> None:
    """Take over the parameters of one of `ablate`'s models of the same shape."""
    renamed = {"tokens.weight": state["embed.weight"], "positions.weight": state["position.table.weight"]}
    for name in model.state_dict().keys() - renamed.keys():
        theirs = name.replace("norm1", "norms.0").replace("norm2", "norms.1")
        theirs = theirs.replace("norm.", "final_norm.") if name.startswith("norm.") else theirs
        if ".qkv." in name:
            parts = [state[theirs.replace("qkv", part)] for part in ("query", "key", "value")]
            renamed[name] = torch.cat(parts)
        else:
            renamed[name] = state[theirs]
    model.load_state_dict(renamed)


def loss_of(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """Mean loss of a batch."""
    return F.cross_entropy(model(tokens).flatten(0, -2), targets.flatten())
