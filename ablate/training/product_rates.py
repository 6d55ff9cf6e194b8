"""The rate of a model's own matrix products on one core: what its training cannot be faster than."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ablate.model.products import by_onednn

SECONDS = 0.02  # that each product is repeated for; the fastest counts, since whatever else runs can only slow it down
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"torch": linear, "onednn": by_onednn}

Shape = tuple[int, int]  # in and out features of a linear layer


def linear_shapes(model: nn.Module) -> Counter[Shape]:
    """How many linear layers of each shape a model has."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return Counter((layer.in_features, layer.out_features) for layer in layers)


def product_seconds(
    shapes: Counter[Shape], rows: int, backend: str = "torch", dtype: torch.dtype = torch.float32
) -> float:
    """Seconds that one core takes for all products of one step over `rows` positions, at best: of each linear layer the
    forward product, the gradient of what it reads, and that of its weights."""
    product = PRODUCTS[backend]
    total = 0.0
    for (features, outputs), count in shapes.items():
        x, weight, gradient = (
            torch.ones(size, dtype=dtype) for size in ((rows, features), (outputs, features), (rows, outputs))
        )
        of_layer = [(x, weight), (gradient, weight.t()), (gradient.t(), x.t())]
        total += count * sum(fastest(product, one, other) for one, other in of_layer)
    return total


def product_flops(shapes: Counter[Shape], rows: int) -> int:
    """Floating-point operations of those products."""
    return sum(6 * rows * features * outputs * count for (features, outputs), count in shapes.items())


def fastest(product: Callable[[Tensor, Tensor], Tensor], one: Tensor, other: Tensor) -> float:
    """Seconds of the fastest of many repetitions."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < end:
        product(one, other)
        best = min(best, time.perf_counter() - start)
    return best
