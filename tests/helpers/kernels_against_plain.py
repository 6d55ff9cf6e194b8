"""flash-linear-attention's kernels, in Triton's interpreter, against the plain forms in float64; as JSON.

TRITON_INTERPRET=1 python kernels_against_plain.py by_head | by_feature | by_delta | VARIANT

Of a recurrence: how far its output and each gradient are off, as shares of their largest entries, by what it is given.
Of an attention: how far the loss of a model and the gradients of its parameters are off, as shares of their norms, by
form and precision.
"""

import json
import sys
import warnings

import torch
import triton_on_cpu  # noqa: F401 (for what it does)
from empty_task import Blank
from model_variants import LM, configuration, jitter, loss_of, some_inputs
from torch import Tensor, nn

from ablate.model.build import initialised_model
from ablate.model.mixers import chunked, parts

BATCH, HEADS, KEYS, VALUES = 2, 2, 16, 24
# Positions, size of log decays, heads of queries and keys.
GIVEN = {"short": (5, 1.0, HEADS), "two chunks": (70, 1.0, HEADS), "strong decays": (70, 40.0, HEADS)}
SHARED = {"one key for all heads": (70, 1.0, 1)}
HALF = torch.float16  # Triton's interpreter does not multiply in bf16


def rule(name: str) -> dict[str, list[float]]:
    """See above."""
    return {how: off(name, *given) for how, given in (GIVEN | (SHARED if name == "by_head" else {})).items()}


def off(name: str, length: int, decay: float, key_heads: int) -> list[float]:
    """How far one of `parts` is off in float32, of its output and of the gradient of all that it is given."""
    draw = torch.Generator().manual_seed(0)

    def some(*size: int) -> Tensor:
        return torch.randn(BATCH, *size, generator=draw, dtype=torch.float64)

    query, key = (nn.functional.normalize(some(key_heads, length, KEYS), dim=-1) for _ in range(2))
    rates = -decay * some(HEADS, length, *[KEYS] * (name == "by_feature")).square()
    given = [query, key, some(HEADS, length, VALUES), rates]
    given += [torch.sigmoid(some(HEADS, length))] * (name == "by_delta")
    weights = some(HEADS, length, VALUES)
    exact = found_by(getattr(chunked, name), given, weights)
    found = found_by(
        lambda *each: getattr(parts, name)(*each, kernels="fla"), [x.float() for x in given], weights.float()
    )
    return [float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, exact, strict=True)]


def found_by(function, given: list[Tensor], weights: Tensor) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """An output and the gradients of a weighted sum of it."""
    given = [x.clone().requires_grad_() for x in given]
    out = function(*given)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), given)]


def attention(variant: str) -> dict[str, list[float]]:
    """See above."""
    exact = trained(made(variant, None).double())
    compiled = made(variant, "fla")
    compiled.compile(backend="aot_eager")
    ways = {"plain": made(variant, None), "kernels": made(variant, "fla"), "compiled": compiled}
    found = {}
    for how, model in ways.items():
        for half in (False, True):
            with torch.autocast("cpu", HALF, enabled=half):
                pairs = zip(trained(model), exact, strict=True)
                found[f"{how}, half" if half else how] = [float((a - b).norm() / b.norm()) for a, b in pairs]
    return found


def made(variant: str, by: str | None) -> nn.Module:
    """A model of one layer with an attention."""
    config = configuration({"attention": variant}, layers=1, heads=1, dim=32)
    config = config.with_value("attention", config.attention | {"kernels": by})
    return jitter(initialised_model(config, Blank(13, 100), 0), 0.05)


def trained(model: nn.Module) -> list[Tensor]:
    """A loss and the gradients of all parameters."""
    loss = loss_of(model, some_inputs(LM, 2, 70))
    return [loss.detach().double(), *(x.double() for x in torch.autograd.grad(loss, list(model.parameters())))]


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # numpy's, of numbers that masks leave out
    torch.set_num_threads(1)
    parts.supports = lambda x: True  # on a CPU, too
    asked = sys.argv[1]
    print(json.dumps(rule(asked) if asked.startswith("by_") else attention(asked)))
