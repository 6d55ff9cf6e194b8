"""What is wrong with an optimiser: what it asks for, its own keys, and whether the parametrization has a rule."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from ablate.config.components import own_of, parameters_of, resolve
from ablate.config.errors import first_line
from ablate.config.schema import Config
from ablate.config.targets import BUILT_IN, within
from ablate.training.optim import make_optimiser, rule_of

STANDARD = "ablate.model.parametrization.Standard"


def optimiser_problems(config: Config) -> list[tuple[str, str]]:
    """What is wrong with keys that an optimiser has no use for, or lacks, and with the values of its own keys.

    Its signature says which of the frame's it takes.  Those of ablate and torch are tried on a single layer.
    """
    optim = config.optim
    target = resolve("optim", optim._target_, config.user)
    names, called = parameters_of(target), target.__name__
    if not {"model", "params"} & names.keys() or "lr" not in names:
        return [
            ("optim._target_", f"{called} must take lr, and model or params; it takes {', '.join(names) or 'none'}")
        ]
    betas = names.get("betas")
    if betas is None and optim.betas is not None:
        return [("optim.betas", f"{called} has none; leave them out, or write null")]
    if betas is not None and betas.default is betas.empty and optim.betas is None:
        return [("optim.betas", f"{called} needs two numbers")]
    if "weight_decay" not in names and optim.weight_decay:
        return [("optim.weight_decay", f"{called} has none; write 0")]
    if config.parametrization["_target_"] != STANDARD and rule_of(target) is None:
        told = f"has no rule for {called}; there is one for adamw, lion and sgd, and for a class with a `rule`"
        return [("parametrization", f"{told}, adam or sgd")]
    if not within(target.__module__, BUILT_IN) or target.__name__ == "muon":  # which asks for more of a model
        return []
    layer = nn.Linear(2, 2)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    try:
        # Values of the frame are checked elsewhere.
        sound = dataclasses.replace(optim, lr=1e-3, weight_decay=0.0, betas=optim.betas and [0.9, 0.99])
        make_optimiser(target, layer, sound, own_of(config, "optim")).step()
    except ValueError as error:
        return [("", first_line(error))] if within(target.__module__, ["ablate"]) else [cannot(called, error)]
    except Exception as error:  # it needs a closure, sparse gradients, or matrices alone
        return [cannot(called, error)]
    return []


def cannot(called: str, error: Exception) -> tuple[str, str]:
    """What to say of an optimiser of torch's that does not work here."""
    return "optim._target_", f"{called} cannot take a training step here ({first_line(error)}); choose another"
