"""Placebos: one part of a run's randomness drawn anew while all else stays, to see what noise alone does.

A kind is a component (the draws of its own parameters), `init` (all draws), `data` (the order of the data, with
dropout) or `chaos` (nothing is drawn anew; drawn parameters are moved by about 1e-7 of themselves).  Vectors that an
embedding begins with are trained anew by `embedding` and `init`, and moved by `chaos`.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ablate.config.schema import Seed
from ablate.model.init import Init, draw, initialise, role_of

CHAOS = 1e-7  # relative: about what rounding does
OTHER_DATA = 10**9  # added to the seed of the batches: a range that no run uses
# The first of these on the way to a parameter says whose it is; what else lies in a block is the residual style's.
PLACES = {"attention": "attention", "cross_attention": "attention", "ffn": "ffn", "position": "position"}
PLACES |= {"norm": "norm", "norms": "norm", "embed_norm": "norm", "final_norm": "norm"}
PLACES |= {"embed": "embedding", "source_embed": "embedding", "widen": "embedding"}


def component_of(name: str) -> str | None:
    """The component that a parameter, by its dotted name, belongs to; None for the head."""
    path = name.split(".")
    return next(
        (PLACES[part] for part in path if part in PLACES), "residual" if {"blocks", "later"} & {*path} else None
    )


def redrawn(kind: str | None, names: Iterable[str]) -> set[str]:
    """The parameters whose draws a kind of placebo takes from another stream."""
    return {name for name in names if kind == "init" or (kind and component_of(name) == kind)}


def initialise_as(kind: str | None, model: nn.Module, init: Init, seed: int) -> None:
    """Initialise a model for a kind of placebo, or plainly without one."""
    initialise(model, init, seed, redrawn(kind, (name for name, _ in model.named_parameters())))
    if kind == "chaos":
        perturb(model, seed)


@torch.no_grad()
def perturb(model: nn.Module, seed: int) -> None:
    """Move every parameter that is drawn, in place; zeros stay."""
    for name, parameter in model.named_parameters():
        if role_of(parameter) != "constant":
            parameter.copy_(perturbed(parameter, name, seed))


def perturbed(values: Tensor, name: str, seed: int) -> Tensor:
    """θ · (1 + 1e-7 · z) in float64, z ~ N(0, 1) keyed by (seed, name)."""
    z = draw(seed, f"chaos/{name}", tuple(values.shape)).double()
    # In float64, or rounding would take most of so small a change away before it is made.
    return values.double() * (1 + CHAOS * z)


def data_seed(halves: Seed, seed: int) -> int:
    """The seed of a run's batches and dropout, from the configuration's `seed` and the run's own."""
    return (seed if halves.data is None else halves.data) + OTHER_DATA * (halves.placebo == "data")
