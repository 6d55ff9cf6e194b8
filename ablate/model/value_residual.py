"""Value residual learning: which layers hand on values, and which mix them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn


def mixes_values(attention: nn.Module) -> bool:
    """Whether an attention takes part in a value residual."""
    return getattr(attention, "value_residual", None) is not None


def connect_values(blocks: Sequence[Any]) -> None:
    """Have the attention of later layers mix in the first one's values, where it asks for it.  Raises ValueError."""
    first, *later = (block.attention for block in blocks)
    told = "attention.value_residual mixes in the values of the first layer"
    for attention in later:
        if mixes_values(attention) and not mixes_values(first):
            raise ValueError(f"{told}, whose {type(first).__name__} hands on none; begin with one that does")
        if mixes_values(attention):
            attention.follow()
    if mixes_values(first) and not any(map(mixes_values, later)):
        wanted = "choose one that does for a later layer" if later else "write model.layers=2"
        raise ValueError(f"{told}, and no later one mixes them in; {wanted}")
