"""Placebos: one source of randomness is redrawn while all else stays equal, to measure the effect of noise alone.

A kind is a component (its parameters are redrawn), `init` (all parameters), `data` (the order of the data, and
dropout) or `chaos` (nothing is redrawn; parameters are perturbed by a relative 1e-7).  Pretrained vectors are trained
anew by `embedding` and `init`, and perturbed by `chaos`.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ablate.config.schema import Seed
from ablate.model.init import Init, draw, initialise, role_of

CHAOS = 1e-7  # relative size of the perturbation, comparable to rounding
OTHER_DATA = 10**9  # added to the seed of the batches: outside the range of runs' seeds
# The first of these names in a parameter's path gives its component; other parameters of a block belong to `residual`.
PLACES = {"attention": "attention", "cross_attention": "attention", "ffn": "ffn", "position": "position"}
PLACES |= {"norm": "norm", "norms": "norm", "embed_norm": "norm", "final_norm": "norm"}
PLACES |= {"embed": "embedding", "source_embed": "embedding", "widen": "embedding"}


def component_of(name: str) -> str | None:
    """The component of a parameter, from its dotted name; None for the head."""
    path = name.split(".")
    return next(
        (PLACES[part] for part in path if part in PLACES), "residual" if {"blocks", "later"} & {*path} else None
    )


def redrawn(kind: str | None, names: Iterable[str]) -> set[str]:
    """The parameters that a kind of placebo redraws from another stream."""
    return {name for name in names if kind == "init" or (kind and component_of(name) == kind)}


def initialise_as(kind: str | None, model: nn.Module, init: Init, seed: int) -> None:
    """Initialise a model, for a kind of placebo or without one."""
    initialise(model, init, seed, redrawn(kind, (name for name, _ in model.named_parameters())))
    if kind == "chaos":
        perturb(model, seed)


@torch.no_grad()
def perturb(model: nn.Module, seed: int) -> None:
    """Perturb all drawn parameters in place; zeros do not change."""
    for name, parameter in model.named_parameters():
        if role_of(parameter) != "constant":
            parameter.copy_(perturbed(parameter, name, seed))


def perturbed(values: Tensor, name: str, seed: int) -> Tensor:
    """θ · (1 + 1e-7 · z) in float64, z ~ N(0, 1) keyed by (seed, name)."""
    z = draw(seed, f"chaos/{name}", tuple(values.shape)).double()
    # In float64, because float32 would round most of such a small change away.
    return values.double() * (1 + CHAOS * z)


def data_seed(halves: Seed, seed: int) -> int:
    """The seed of a run's batches and dropout, from the configuration's `seed` and the run's own."""
    return (seed if halves.data is None else halves.data) + OTHER_DATA * (halves.placebo == "data")
