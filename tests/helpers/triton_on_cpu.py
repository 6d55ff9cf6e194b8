"""Triton's kernels run on CPU tensors, by Triton's own interpreter: its numbers, not its speed, nor a GPU's rounding.

For a process of its own that was started with TRITON_INTERPRET=1.
"""

import ast
from collections.abc import Iterator
from typing import Any

from triton.runtime import autotuner, interpreter


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
