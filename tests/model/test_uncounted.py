"""What parts state of their FLOPs, and which operators are named because nobody counts them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ablate.model.cost import Counter


class Part(nn.Module):
    """An operator, between a product and an activation."""

    def __init__(self, name: str):
        super().__init__()
        self.name, self.matrix = name, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        x = self.matrix(x).relu()
        operators = {"cumsum": lambda: x.cumsum(1), "fft_r2c": lambda: torch.fft.fft(x), "sum": lambda: x.sum(1)}
        return operators[self.name]()


class Stating(Part):
    """The same, which states what it costs."""

    def stated_flops(self, batch: int, length: int) -> int:
        """By hand."""
        return 10 * batch * length


def seen(*parts: nn.Module) -> Counter:
    """What a forward pass through each of these, over (2, 4, 4), shows."""
    whole = nn.ModuleList(parts)
    with torch.device("meta"), Counter(whole.to("meta")) as found:
        for part in whole:
            part(torch.empty(2, 4, 4))
    return found


@pytest.mark.parametrize("name", ["cumsum", "fft_r2c"])
def test_operators_that_nobody_counts_are_named_unless_their_part_states_them(name):
    """Products, and what takes a step for each number, are not."""
    (note,) = seen(Part(name), Part(name), Part("sum")).notes
    assert name in note and "stated_flops" in note
    stated = seen(Stating(name), Stating(name), Part("sum"))
    of_products = 3 * 2 * (2 * 4) * 4 * 4  # of three parts
    assert stated.notes == [] and stated.flops == of_products + 2 * 10 * 2 * 4
    assert name in seen(Stating(name), Part(name)).notes[0], "one part answers for itself alone"
