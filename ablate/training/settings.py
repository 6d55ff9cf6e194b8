"""What a run reads of its configuration: the sections `train` and `optim`, as records."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar


@dataclass(frozen=True)
class Loop:
    """The loop; counts are in optimiser steps."""

    steps: int
    batch_size: int
    eval_every: int
    log_every: int
    checkpoint_seconds: float
    device: str
    precision: str
    average: str
    compile: bool
    products: str
    diagnostics: bool


@dataclass(frozen=True)
class Optim:
    """The optimiser and its schedule; `floor` is the last learning rate as a share of `lr`."""

    _target_: str
    lr: float
    betas: list[float]
    weight_decay: float
    clip: float
    warmup: int
    schedule: str
    floor: float


S = TypeVar("S", Loop, Optim)


def read(kind: type[S], section: dict[str, Any]) -> S:
    """A section of a resolved configuration; keys that no run reads are left out."""
    return kind(**{field.name: section[field.name] for field in fields(kind)})
