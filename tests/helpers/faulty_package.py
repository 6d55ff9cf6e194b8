"""A package of a user's own in which most parts are wrong in one way, which validation must find, and others odd."""

from pathlib import Path

CODE = '''"""Parts with mistakes."""

import torch
from torch import nn

from ablate.model.attend import Rules, attend_explicit
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
        return self.down(self.activation(self.up(x)) * (1 + 0 * self.gate(x)))


class OffByOne(MHA):
    def attend(self, x, places, causal, mask, memory):
        query, key, value = self.project(x, x if memory is None else memory, places)
        near = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=x.device).tril(1)
        bias = torch.zeros(near.shape, dtype=x.dtype, device=x.device).masked_fill(~near, -1e9) if causal else None
        return attend_explicit(query, key, value, False, Rules(bias, mask, scale=self.scale))


class Odd(MHA):
    """From odd positions alone, one position ahead."""

    def pairs(self, n, device):
        now = torch.arange(n, device=device)
        return (now <= now[:, None]) | ((now == now[:, None] + 1) & (now[:, None] % 2 == 1))

    def attend(self, x, places, causal, mask, memory):
        query, key, value = self.project(x, x if memory is None else memory, places)
        near = self.pairs(query.shape[-2], x.device)
        bias = torch.zeros(near.shape, dtype=x.dtype, device=x.device).masked_fill(~near, -1e9)
        return attend_explicit(query, key, value, False, Rules(bias, mask, scale=self.scale))


class Edge(Odd):
    """From the last position of every chunk alone, one position ahead."""

    def __init__(self, shape, bias: bool, scale: float | None, chunk: int):
        super().__init__(shape, bias, scale)
        self.chunk = chunk

    def pairs(self, n, device):
        now = torch.arange(n, device=device)
        return (now <= now[:, None]) | ((now == now[:, None] + 1) & (now % self.chunk == 0))


class Blind(MHA):
    def forward(self, x, places, causal, mask=None, memory=None):
        return super().forward(x, places, causal, None, memory)


class OverTime(LayerNorm):
    def forward(self, x, mask=None):
        return (x - x.mean(1, keepdim=True)) * self.weight / (x.std() * 0 + 1) + self.eps * self.bias


class OverBatch(LayerNorm):
    def forward(self, x, mask=None):
        return (x - x.mean(0, keepdim=True)) * self.weight + self.eps * self.bias


class Counting(LayerNorm):
    made = 0

    def __init__(self, dim: int, eps: float):
        super().__init__(dim, eps)
        Counting.made += 1
        self.scale = Counting.made**-0.5

    def forward(self, x, mask=None):
        return self.scale * super().forward(x)


class Unread(LayerNorm):
    def __init__(self, dim: int, eps: float, strength: float):
        super().__init__(dim, eps)
        self.strength = strength


class ByWidth(LayerNorm):
    """No mistake but under muP: it begins the smaller, the wider it is."""

    def __init__(self, dim: int, eps: float):
        super().__init__(dim, eps)
        self.weight = nn.Parameter(torch.full((dim,), dim**-0.5))


class Single(LayerNorm):
    """No mistake: its table is of float32 numbers, which no product takes beside others."""

    def __init__(self, dim: int, eps: float):
        super().__init__(dim, eps)
        self.map = [torch.eye(dim)]

    def forward(self, x, mask=None):
        return super().forward(x) @ self.map[0].to(x.device)


class Spectral(nn.Module):
    """No mistake: a causal convolution by FFT in float32, whose rounding reaches every position."""

    def __init__(self, dim: int):
        super().__init__()
        self.kernel, self.out = nn.Parameter(torch.ones(dim, 8)), nn.Linear(dim, dim)

    def forward(self, x):
        n = 2 * max(x.shape[1], self.kernel.shape[1])
        spectrum = torch.fft.rfft(x.float(), n=n, dim=1) * torch.fft.rfft(self.kernel.float().T, n=n, dim=0)
        return self.out(torch.fft.irfft(spectrum, n=n, dim=1)[:, : x.shape[1]].to(x.dtype))


class Unmasked(nn.Module):
    """Takes no mask."""

    def __init__(self, dim: int):
        super().__init__()

    def forward(self, x):
        return x


class Misshapen(Unmasked):
    def forward(self, x, mask=None):
        return x.view(7)


class Square(nn.Module):
    """No mistake: has no width."""

    def __init__(self, dim: int):
        super().__init__()
        self.up = nn.Linear(dim, dim)

    def forward(self, x):
        return self.up(x).square()


class Rounded(nn.Module):
    """No mistake: takes widths that are multiples of 24 alone."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.hidden = -(-hidden // 24) * 24
        self.up, self.down = nn.Linear(dim, self.hidden), nn.Linear(self.hidden, dim)

    def forward(self, x):
        return self.down(self.up(x).relu())


class Dispatching(nn.Module):
    """No mistake: experts that the router sends a token to or not."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.router = nn.Linear(dim, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim)) for _ in range(4)
        )

    def forward(self, x):
        flat = x.flatten(0, -2)
        p, chosen = self.router(flat).softmax(-1).max(-1)
        y = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            at = (chosen == i).nonzero()[:, 0]
            if len(at):
                y = y.index_add(0, at, expert(flat[at]) * p[at, None])
        return y.view_as(x)


class Skipping(PreNorm):
    """No mistake: drops a layer now and then in training."""

    rate = 1.0

    def __init__(self, shape, sublayers, p: float):
        super().__init__(shape, sublayers)
        self.p = p

    def wire(self, x, sublayers, norms):
        dropped = self.training and float(torch.rand(())) < self.p * self.rate
        return x if dropped else super().wire(x, sublayers, norms)


class NeverSkipping(Skipping):
    rate = 0.0


class Drawing(LayerNorm):
    """Noise of its own generator, at evaluation, too."""

    def __init__(self, dim: int, eps: float):
        super().__init__(dim, eps)
        self.draw = torch.Generator().manual_seed(1)

    def forward(self, x, mask=None):
        return super().forward(x) + torch.randn(x.shape, generator=self.draw).to(x)


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
GROUPS = {"position": ["FixedBase"], "ffn": ["GateOfOne", "Spectral", "Dispatching", "Square", "Rounded"]}
GROUPS |= {"attention": ["OffByOne", "Odd", "Edge", "Blind"]}
GROUPS["residual"] = ["Skipping", "NeverSkipping"]
GROUPS["norm"] = ["OverTime", "OverBatch", "Counting", "Unread", "Single"]
GROUPS["norm"] += ["Drawing", "Broken", "ByWidth", "Unmasked", "Misshapen"]
OWN = {"Unread": "eps: 1.0e-5\nstrength: 1.0", "Edge": "bias: false\nscale: null\nchunk: 6", "Rounded": "hidden: 20"}
OWN |= dict.fromkeys(("Spectral", "Square", "Unmasked", "Misshapen"), "")
OWN |= {"Dispatching": "hidden: 16"} | dict.fromkeys(GROUPS["residual"], "p: 0.0")


def write(folder: Path) -> Path:
    """The package `mistakes_of_mine` in a folder; returns the configuration folder beside it."""
    (folder / "mistakes_of_mine.py").write_text(CODE)
    for group, names in GROUPS.items():
        (folder / "conf" / group).mkdir(parents=True, exist_ok=True)
        for name in names:
            settings = OWN.get(name, REST[group])
            text = f"# {name}.\n# name: {name}\n_target_: mistakes_of_mine.{name}\n_partial_: true\n{settings}\n"
            (folder / "conf" / group / f"{name.lower()}.yaml").write_text(text)
    return folder / "conf"
