"""Dropout with a mask that depends only on (seed, step, site, index)."""

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ablate.config.ranges import within


class Dropout(nn.Module):
    """y = x · m / (1 − p) with m ~ Bernoulli(1 − p) in training (Srivastava 2014).

    The mask is a counter-based hash, independent of all other random draws.  `rekey` sets its key at each step.  If a
    batch is split into parts, `first` is the batch row at which x starts, so that each row keeps its mask; rows are the
    first dimension of x.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = within("dropout", p, 0, 1, "[)")
        self.key: Tensor
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)
        self.first: Tensor
        self.register_buffer("first", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:  # any shape
        if self.p == 0 or not self.training:  # p first: without dropout one graph serves training and evaluation
            return x
        values_before = self.first * (x.numel() // max(1, len(x)))
        index = torch.arange(x.numel(), device=x.device).view(x.shape) + values_before
        # The key is added first: inductor computes a product of an index and a constant in too few bits.
        keep = _hash((self.key + index) * _GOLDEN) >= int(self.p * 2**24)
        return x * keep / (1 - self.p)


_GOLDEN = 0x9E3779B97F4A7C15 - 2**64


def _hash(z: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64, which wraps around, reduced to the upper 24 bits."""
    z = (z ^ ((z >> 30) & (2**34 - 1))) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ ((z >> 27) & (2**37 - 1))) * (0x94D049BB133111EB - 2**64)
    return ((z ^ ((z >> 31) & (2**33 - 1))) >> 40) & (2**24 - 1)


def once(model: nn.Module, name: str, find: Callable[[], list[Any]]) -> list[Any]:
    """The result of `find`, stored in the model: a walk over modules takes as long as several GPU kernels."""
    attribute = f"_cached_{name}"  # not `dropouts`: a block has an attribute of that name
    if attribute not in model.__dict__:
        model.__dict__[attribute] = find()
    cached: list[Any] = model.__dict__[attribute]
    return cached


def dropouts(model: nn.Module) -> list[tuple[str, Dropout]]:
    """The dropout sites of a model with their names, without those where p = 0."""

    def find() -> list[tuple[str, Dropout]]:
        return [(site, part) for site, part in model.named_modules() if isinstance(part, Dropout) and part.p > 0]

    return once(model, "dropouts", find)


def rekey(model: nn.Module, seed: int, step: int) -> None:
    """Set the key of each dropout site of a model, identified by its name, for a training step."""
    for site, dropout in dropouts(model):
        dropout.key.fill_(_keyed(f"dropout/{seed}/{step}/{site}"))


def step_seed(seed: int, step: int) -> int:
    """The seed of a training step's own random numbers."""
    return _keyed(f"step/{seed}/{step}")


def _keyed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)


def seed_torch(seed: int, step: int, device: torch.device, row: int = 0) -> None:
    """Seed torch's global generators for a training step, or the part of its batch that starts at a row, since user
    components may use them."""
    name = f"draws/{seed}/{step}"
    if row > 0:
        name = f"{name}/{row}"
    key = _keyed(name)
    torch.default_generator.manual_seed(key)  # torch.manual_seed would seed all accelerators, too
    if device.type == "cuda":
        torch.cuda.manual_seed(key)


def begin_at(model: nn.Module, row: int) -> None:
    """Set the batch row at which the next part starts, for all dropout sites of a model."""
    for _, dropout in dropouts(model):
        dropout.first.fill_(row)
