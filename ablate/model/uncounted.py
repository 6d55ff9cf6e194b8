"""What counting products does not see: FLOPs that parts state themselves, and operators whose work nobody knows."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

# Operators of torch that do more than a step for each number, and are no product: scans, solutions, transforms.
LONG = ("cumsum", "cumprod", "logcumsumexp", "linalg_", "_linalg_", "triangular_solve", "cholesky", "_fft_", "sort")
SHORT = ("linalg_vector_norm",)  # but for a sum of squares


class Uncounted(TorchDispatchMode):
    """Adds up the FLOPs that a model's parts state, and names the operators of the others that nobody counts.

    A part states them by a method `stated_flops(batch, length)`, for its input (batch, length, features): of a forward
    pass, beside its matrix products and convolutions, which are seen.  To be used around a forward pass.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.stated, self.names, self.inside = 0.0, set[str](), 0
        for module in model.modules():
            if hasattr(module, "stated_flops"):
                module.register_forward_pre_hook(self.enter)
                module.register_forward_hook(self.leave)

    @property
    def notes(self) -> list[str]:
        """What to say of operators that nobody counts."""
        what = "its FLOPs leave out {}, which only their part can state, as stated_flops(batch, length)"
        return [what.format(", ".join(sorted(self.names)))] if self.names else []

    def enter(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        """Take what a part states, and for what it does its word."""
        x: Tensor = given[0]
        self.stated += module.stated_flops(x.shape[0], x.shape[1])
        self.inside += 1

    def leave(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        """Look at operators again."""
        self.inside -= 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call one operator."""
        packet = func._overloadpacket
        if not self.inside and packet not in flop_registry and is_long(packet):
            self.names.add(str(packet).replace(".", "::").removeprefix("aten::").lstrip("_"))
        return func(*args, **(kwargs or {}))


def is_long(packet: Any) -> bool:
    """Whether an operator's work is not known to be in proportion to its numbers: one of these, or none of torch's."""
    space, _, name = packet._qualified_op_name.partition("::")
    return space not in ("aten", "prim", "prims") or (name.startswith(LONG) and name not in SHORT)


def unreached(model: nn.Module) -> list[str]:
    """A list that has, once the model was called, what to say of mixers to which nothing of the position comes.

    A mixer's `reads` are the fields of Places that it heeds; one that has none such heeds all.
    """
    found: list[str] = []

    def look(module: nn.Module, given: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        told = {name for name, value in kwargs["places"]._asdict().items() if value is not None} - {"values"}
        if told and told.isdisjoint(module.reads):
            found.append(f"{type(module).__name__}: what position= does to queries, keys and scores does not reach it")

    for module in model.modules():
        if hasattr(module, "reads"):
            module.register_forward_pre_hook(look, with_kwargs=True)
    return found
