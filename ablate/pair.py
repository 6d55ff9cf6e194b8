"""Random numbers for a training script of your own, so that seeds pair whatever a variant draws besides.

    batches = ablate.pair.generator(seed, "batches")    # torch.randint(..., generator=batches)
    model = ablate.pair.initialise(lambda: GPT(config), seed)

With torch's global generator alone, a variant that draws more numbers (a layer, dropout) changes all that is drawn
after them: its batches and its initial values.
"""

import hashlib
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Model = TypeVar("Model", bound=torch.nn.Module)


def generator(seed: int, *names: object, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator seeded by a hash of the seed and the names: nothing else that is drawn changes its numbers."""
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def initialise(build: Callable[[], Model], seed: int) -> Model:
    """The model that `build` returns, with the initial values of each parameter drawn from its own generator, which its
    name seeds.

    What was drawn into a parameter while `build` ran is drawn again in the same way, so that its distribution is the
    model's own.  Parameters whose values were computed from other tensors or loaded keep them, and a warning names
    these; buffers keep theirs.
    """
    with _Writes() as writes:
        model = build()
    unchanged = []
    for name, parameter in model.named_parameters():
        is_drawn = writes.repeat(parameter, generator(seed, name, device=parameter.device))
        first = parameter.flatten()[:1]
        is_constant = bool((parameter == first).all()) and (parameter.numel() > 1 or first.tolist() in ([0.0], [1.0]))
        if not is_drawn and not is_constant:
            unchanged.append(name)
    if unchanged:
        warnings.warn(
            f"initial values that were not drawn in place stay as they are: {', '.join(unchanged)}", stacklevel=2
        )
    return model


class _Writes(TorchDispatchMode):
    """The operations that wrote into tensors in place, by the memory that they wrote to."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[int, list[tuple[Any, Any, dict[str, Any]]]] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        if operation.overloadpacket.__name__.endswith("_"):
            memory = args[0].untyped_storage().data_ptr()
            self.operations.setdefault(memory, []).append((operation, args, kwargs or {}))
        return result

    def repeat(self, parameter: torch.Tensor, draws: torch.Generator) -> bool:
        """Write a parameter's values once more with this generator; False if they were not drawn into it."""
        operations = self.operations.get(parameter.untyped_storage().data_ptr(), [])
        for _, args, kwargs in operations:
            if any(isinstance(value, torch.Tensor) for value in (*args[1:], *kwargs.values())):
                return False  # computed from other values, which would not be those of the new draw
        is_drawn = False
        with torch.no_grad():
            for operation, args, kwargs in operations:
                if torch.Tag.nondeterministic_seeded in operation.tags:
                    operation(*args, **{**kwargs, "generator": draws})
                    is_drawn = True
                else:
                    operation(*args, **kwargs)
        return is_drawn
