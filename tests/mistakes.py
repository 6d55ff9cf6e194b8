"""A package of a user's own in which every part is wrong in one way: what the gate must find."""

from __future__ import annotations

from pathlib import Path

CODE = '''"""Parts with mistakes."""

import torch
from torch import nn

from ablate.model.attend import attend_explicit
from ablate.model.attention import MHA
from ablate.model.ffn import MLP
from ablate.model.norm import LayerNorm
from ablate.model.position import Places, RoPE, angles
from ablate.model.residual import PreNorm


class FixedBase(RoPE):
    def places(self, x, causal):
        angle = angles(x.shape[-2], self.turned, 10000.0, x)
        cos, sin = angle.cos(), angle.sin()
        return Places(rotation=(torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)))


class GateOfOne(MLP):
    def __init__(self, dim: int, hidden: int | None, mult: float, bias: bool):
        super().__init__(dim, hidden, mult, bias)
        self.gate = nn.Linear(dim, self.hidden, bias)

    def forward(self, x):
        return self.down(self.activation(self.up(x)) * torch.ones_like(self.gate(x)))


class OffByOne(MHA):
    def find(self, x, places, causal, mask, memory):
        query, key, value = self.project(x, x if memory is None else memory, places)
        near = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=x.device).tril(1)
        bias = torch.zeros(near.shape, dtype=x.dtype, device=x.device).masked_fill(~near, -1e9) if causal else None
        return self.merge(attend_explicit(query, key, value, False, bias, mask, scale=self.scale))


class Blind(MHA):
    def forward(self, x, places, causal, mask=None, memory=None):
        return super().forward(x, places, causal, None, memory)


class Forgetful(PreNorm):
    def wire(self, x, sublayers, norms):
        for f, dropout in zip(sublayers, self.dropouts):
            x = x + dropout(f(x))
        return x


class OverTime(LayerNorm):
    def forward(self, x, mask=None):
        return (x - x.mean(1, keepdim=True)) * self.weight / (x.std() * 0 + 1) + self.eps * self.bias


class OverBatch(LayerNorm):
    def forward(self, x, mask=None):
        return (x - x.mean(0, keepdim=True)) * self.weight + self.eps * self.bias


class Unread(LayerNorm):
    def __init__(self, dim: int, eps: float, strength: float):
        super().__init__(dim, eps)
        self.strength = strength


class Single(LayerNorm):
    """No mistake: its table is of float32 numbers, which no product takes beside others."""

    def __init__(self, dim: int, eps: float):
        super().__init__(dim, eps)
        self.map = [torch.eye(dim)]

    def forward(self, x, mask=None):
        return super().forward(x) @ self.map[0].to(x.device)


class Broken(LayerNorm):
    def forward(self, x, mask=None):
        if x.device.type != "meta":
            raise RuntimeError("needs an accelerator")
        return super().forward(x)
'''
REST = {
    "position": "base: 10000.0",
    "ffn": "hidden: null\nmult: 4.0\nbias: true",
    "attention": "bias: false\nscale: null",
    "norm": "eps: 1.0e-5",
    "residual": "",
}
GROUPS = {"position": ["FixedBase"], "ffn": ["GateOfOne"], "attention": ["OffByOne", "Blind"]}
GROUPS |= {"residual": ["Forgetful"], "norm": ["OverTime", "OverBatch", "Unread", "Single", "Broken"]}


def write(folder: Path) -> Path:
    """The package `mistakes_of_mine` in a folder; returns the configuration folder beside it."""
    (folder / "mistakes_of_mine.py").write_text(CODE)
    for group, names in GROUPS.items():
        (folder / "conf" / group).mkdir(parents=True, exist_ok=True)
        for name in names:
            extra = "\nstrength: 1.0" if name == "Unread" else ""
            text = f"# {name}.\n_target_: mistakes_of_mine.{name}\n_partial_: true\n{REST[group]}{extra}\n"
            (folder / "conf" / group / f"{name.lower()}.yaml").write_text(text)
    return folder / "conf"
