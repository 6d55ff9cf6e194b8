"""What is wrong with an optimiser: its betas, its own keys, and whether the parametrization has a rule for it."""

from __future__ import annotations

from typing import Any

from torch import nn

from ablate.config.components import annotation, own_of, parameters_of, resolve
from ablate.config.schema import Config
from ablate.config.targets import OURS, within
from ablate.training.optim import rule_of

STANDARD = "ablate.model.parametrization.Standard"


def optimiser_problems(config: Config) -> list[tuple[str, str]]:
    """What is wrong with betas that an optimiser has no use for, or lacks, and with the values of its own keys.

    Its third argument says by its annotation whether it has betas.
    """
    optim = config.optim
    target = resolve("optim", optim._target_, config.user)
    parameters, own = parameters_of(target), own_of(config, "optim")
    hint = annotation(target, [*parameters, "", "", ""][2])
    if (hint is type(None)) != (optim.betas is None) and hint is not Any:
        told = "has none; leave them out" if hint is type(None) else "needs two numbers"
        return [("optim.betas", f"{target.__name__} {told}")]
    if config.parametrization["_target_"] != STANDARD and rule_of(target) is None:
        told = f"has no rule for {target.__name__}; there is one for adamw, lion and sgd, and for a class with a `rule`"
        return [("parametrization", f"{told}, adam or sgd")]
    try:  # ours, which need no more of a model than parameters
        if own and within(target.__module__, OURS):
            target(nn.Linear(2, 2), optim.lr, optim.betas, optim.weight_decay, **own)
    except ValueError as error:
        return [("", str(error))]
    return []
