"""Requirements of a cell's optimiser, kernels and trained vectors: keys, a device, a text, a library."""

import dataclasses
from typing import Any

import torch
from torch import nn

from ablate.config.components import own_of, parameters_of, resolve
from ablate.config.errors import BadComponent, first_line
from ablate.config.extra import installed
from ablate.config.schema import Config
from ablate.config.targets import BUILT_IN, within
from ablate.data.task import Task
from ablate.results.run_key import LIBRARIES, kernels_of
from ablate.results.tables import class_name
from ablate.training.optim import make_optimiser, rule_of
from ablate.training.vectors import is_pretrained

STANDARD = "ablate.model.parametrization.Standard"
MODULES = {"fla": ("fla", "triton")}  # imported modules, by kernels


def optimiser_problems(config: Config) -> list[tuple[str, str]]:
    """Problems of an optimiser, as (key, message): keys that its signature does not take or lacks, wrong values.
    Optimisers of ablate and torch are tried on a single layer."""
    optim = config.optim
    target = resolve("optim", optim._target_, config.user)
    names, name = parameters_of(target), target.__name__
    betas = names.get("betas")
    if not {"model", "params"} & names.keys() or "lr" not in names:
        taken = ", ".join(names) or "none"
        return [("optim._target_", f"{name} must take lr, and model or params; it takes {taken}")]
    if betas is None and optim.betas is not None:
        return [("optim.betas", f"{name} has none; leave them out, or write null")]
    if betas is not None and betas.default is betas.empty and optim.betas is None:
        return [("optim.betas", f"{name} needs two numbers")]
    if "weight_decay" not in names and optim.weight_decay:
        return [("optim.weight_decay", f"{name} has none; write 0")]
    if config.parametrization["_target_"] != STANDARD and rule_of(target) is None:
        rules = "there is one for adamw, lion and sgd, and for a class with a `rule`, adam or sgd"
        return [("parametrization", f"has no rule for {name}; {rules}")]
    if not within(target.__module__, BUILT_IN) or name == "muon":  # muon needs more than a layer
        return []
    with torch.random.fork_rng(devices=[]):
        layer = nn.Linear(2, 2)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    try:  # with valid values of the keys that are checked elsewhere
        sound = dataclasses.replace(optim, lr=1e-3, weight_decay=0.0, betas=optim.betas and [0.9, 0.99])
        make_optimiser(target, layer, sound, own_of(config, "optim")).step()
    except Exception as error:  # it needs a closure, sparse gradients, or only matrices
        if isinstance(error, ValueError) and within(target.__module__, ["ablate"]):
            return [("", first_line(error))]
        message = f"{name} cannot take a training step here ({first_line(error)}); choose another one"
        return [("optim._target_", message)]
    return []


def refuse_lacking(config: Config, task: Task | Any) -> None:
    """Raise BadComponent for kernels on a CPU, trained vectors of a task without words, or a library not installed."""
    for kernels in kernels_of(config):
        if config.train.device != "cuda":
            message = f"{kernels} has kernels for a GPU, and train.device={config.train.device}; leave it out"
            raise BadComponent("attention.kernels", message)
        for module in MODULES[kernels]:
            _require("", module, f"attention.kernels={kernels}", "fla")
    if not is_pretrained(config):
        return
    name = class_name(config.embedding["_target_"])
    if task.training_text() is None:
        message = f"{name} trains vectors on a text, and {task.name} has no words"
        raise BadComponent("embedding", f"{message}; write a data of texts, or leave it out")
    for library in LIBRARIES.get(name, ()):
        _require("embedding", library, name, "vectors")


def _require(key: str, library: str, need: str, group: str) -> None:
    try:
        installed(library, need, group)
    except ValueError as error:
        raise BadComponent(key, str(error)) from None
