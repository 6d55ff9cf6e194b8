"""The recurrences of flash-linear-attention's kernels, in Triton's interpreter, against the plain forms in float64.

TRITON_INTERPRET=1 python kernels_against_plain.py by_head | by_feature | by_delta

Fails where an output or a gradient is off.  The interpreter has Triton's numbers, not its speed, nor a GPU's rounding.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from triton.runtime import autotuner, interpreter

from ablate.model.mixers import chunked, parts

BATCH, HEADS, KEYS, VALUES = 2, 2, 16, 24
# Positions, size of log decays, and how far the numbers may be off, as shares of a tensor's largest entry: where decays
# are strong their sums over a chunk are large, of which differences are taken.
CASES = {"short": (5, 1.0, 2e-5), "two chunks": (70, 1.0, 2e-5), "strong decays": (70, 40.0, 5e-4)}


class Loops(interpreter.ASTTransformer):
    """Counters of loops are tensors, as in what Triton compiles; to its interpreter they are Python's integers."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range":
            node.iter.func.id = "counted"
        return node


def counted(*limits: Any) -> Iterator[Any]:
    for i in range(*map(int, limits)):
        yield interpreter.interpreter_semantic.to_tensor(i, False)


def first_alone(self: Any, *given: Any, **named: Any) -> Any:
    """Of several sizes of tiles the first: there is nothing to time them on."""
    self.configs = self.configs[:1]
    return timed(self, *given, **named)


interpreter.counted = counted
interpreter.FunctionRewriter.ast_transformer = Loops()
timed, autotuner.Autotuner.run = autotuner.Autotuner.run, first_alone


def check(name: str, case: str) -> None:
    """Compare a recurrence in float32 by the kernels with the plain one in float64."""
    length, decay, tolerance = CASES[case]
    draw = torch.Generator().manual_seed(0)

    def some(*size: int) -> Tensor:
        return torch.randn(BATCH, *size, generator=draw, dtype=torch.float64)

    key_heads = 1 if name == "by_head" and case == "short" else HEADS  # one key for all heads
    query, key = (nn.functional.normalize(some(key_heads, length, KEYS), dim=-1) for _ in range(2))
    rates = -decay * some(HEADS, length, *[KEYS] * (name == "by_feature")).square()
    given = [query, key, some(HEADS, length, VALUES), rates]
    given += [torch.sigmoid(some(HEADS, length))] * (name == "by_delta")
    weights = some(HEADS, length, VALUES)
    exact = computed(getattr(chunked, name), given, weights)
    by_kernels = getattr(parts, name)
    found = computed(lambda *each: by_kernels(*each, kernels="fla"), [x.float() for x in given], weights.float())
    for tensor, expected in zip(found, exact, strict=True):
        off = float((tensor - expected).abs().max() / expected.abs().max())
        assert off < tolerance, (name, case, off)


def computed(function: Callable[..., Tensor], given: list[Tensor], weights: Tensor) -> list[Tensor]:
    """An output and the gradients of a weighted sum of it."""
    given = [x.clone().requires_grad_() for x in given]
    out = function(*given)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), given)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    parts.supports = lambda x: True  # on a CPU, too
    for case in CASES:
        check(sys.argv[1], case)
