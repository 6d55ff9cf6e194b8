"""The model of a resolved configuration: its components bound to their shape, its parameters drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from ablate.config.components import WIRING, bind, parameters_of, resolve
from ablate.model.placebo import initialise_as


def shape(config: dict[str, Any], context: int) -> dict[str, Any]:
    """What the configuration offers to every component by name.  Raises ValueError for heads of unequal size."""
    model = config["model"]
    if model["dim"] % model["heads"]:
        raise ValueError(f"model.dim={model['dim']} is not divisible by model.heads={model['heads']}")
    return {
        "dim": model["dim"],
        "heads": model["heads"],
        "head_dim": model["dim"] // model["heads"],
        "layers": model["layers"],
        "dropout": model["dropout"],
        "context": context,
    }


def build_model(config: dict[str, Any], task: Any, user: Iterable[str] = ()) -> nn.Module:
    """The model of a resolved configuration for a task, on the current default device, not yet initialised.

    Raises BadComponent or ValueError when the pieces do not fit.
    """
    offered = shape(config, task.context)
    part = {name: bind(name, config[name], offered, user) for name in ("norm", "ffn", "position", "attention")}
    form = resolve("model", config["model"]["_target_"], user)
    stacks = getattr(form, "stacks", ("decoder",))
    wiring = {f"{stack}_layers": offered["layers"] * (stack in stacks) for stack in ("encoder", "decoder")}
    residual = bind("residual", config["residual"], offered | dict.fromkeys(WIRING) | wiring, user)

    norms: list[nn.Module] = []

    def norm() -> nn.Module:
        norms.append(part["norm"]())
        return norms[-1]

    def block(cross: bool = False) -> nn.Module:
        parts = {"attention": part["attention"](), "ffn": part["ffn"](), "norm": norm}
        return residual(**parts, **({"cross_attention": part["attention"]()} if cross else {}))

    pieces = {name: getattr(task, name) for name in ("vocab", "outputs", "features")}
    pieces |= {"block": block, "cross_block": partial(block, True), "pool": task.kind == "classification"}
    pieces |= {"norm": norm, "position": part["position"]}
    given = config["model"] | {"tie_embeddings": ties(config, task)} | pieces
    wanted = {key: value for key, value in given.items() if key in parameters_of(form)}
    # Constructors draw from the global generator; what they draw is written over, and nothing outside may notice.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed would seed the accelerators, too
        model = form(**wanted)
    model.unused = () if norms else ("norm",)  # components that the others leave no place for
    return model


def ties(config: dict[str, Any], task: Any) -> bool:
    """Whether embedding and head are one matrix; where the model leaves it open, if targets are input tokens, too."""
    asked: bool | None = config["model"]["tie_embeddings"]
    if asked is not None:
        return asked
    return task.kind != "classification" and task.features is None and task.outputs == task.vocab


def build_init(config: dict[str, Any], user: Iterable[str] = ()) -> Any:
    """The initialisation of a resolved configuration."""
    return bind("init", config["init"], shape(config, config["data"]["context"]), user)()


def initialised_model(config: dict[str, Any], task: Any, seed: int, user: Iterable[str] = ()) -> nn.Module:
    """The model of a resolved configuration with its parameters drawn from a seed, on the CPU."""
    model = build_model(config, task, user)
    initialise_as(config.get("seed", {}).get("placebo"), model, build_init(config, user), seed)
    return model
