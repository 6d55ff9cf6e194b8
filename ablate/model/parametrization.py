"""Parametrizations: how initial scales, learning rates and multipliers depend on the width of a model."""

import math
from functools import partial
from typing import Any

from torch import Tensor, nn

from ablate.config.errors import BadComponent
from ablate.config.ranges import at_least
from ablate.model.attend import Attention
from ablate.model.init import fans, role_of


class Parametrization:
    """The base class; `base_dim` is the width at which nothing changes, None if nothing depends on the width."""

    base_dim: int | None = None
    base_head_dim: int | None = None

    def follow(self, model: nn.Module, base: nn.Module) -> None:
        """Scale a model's parameters relative to a base model; `rates` of a parameter are its factors of the learning
        rate, per rule of an optimiser.  Raises BadComponent."""
        raise NotImplementedError


class Standard(Parametrization):
    """No dependence on the width beyond that of `init` and the optimiser."""


class MuP(Parametrization):
    """Maximal update parametrization (Yang 2022, arXiv 2203.03466, table 8), relative to a base width `base_dim`.

    With m the ratio of a width to the base model's, everything is as at the base width, except:

    - hidden matrices: initialised with σ / √m, Adam's rate / m, with m of their input; SGD's rate · m of their output
      / m of their input
    - tables and vectors: initialised as at the base width; SGD's rate · m
    - the head: initialised as at the base width, its input divided by m; SGD's rate · m
    - scores: √d₀ / d instead of 1 / √d, with d features per head, and d₀ in the base model: `base_head_dim`, or its
      width divided by the number of heads

    The weight decay of a step, rate · λ, is the same at all widths.
    """

    def __init__(self, base_dim: int, base_head_dim: int | None):
        self.base_dim = at_least("base_dim", base_dim, 1)
        self.base_head_dim = base_head_dim
        if base_head_dim is not None:
            at_least("base_head_dim", base_head_dim, 1)

    def follow(self, model: nn.Module, base: nn.Module) -> None:
        follow_modules(model, base)
        base_parameters = dict(base.named_parameters())
        for name, parameter in model.named_parameters():
            parameter.like = base_parameters[name]
            reason = without_rule(parameter)
            if reason:
                problem = f"has no rule for {name}, {reason}; write parametrization=standard"
                raise BadComponent("parametrization", problem)
            input_ratio, output_ratio = growth(parameter)
            parameter.rates = {"adam": 1 / input_ratio, "sgd": output_ratio / input_ratio}
            if is_matrix(parameter) and input_ratio != 1:
                parameter.gain = getattr(parameter, "gain", 1.0) * input_ratio**-0.5


def follow_modules(model: nn.Module, base: nn.Module) -> None:
    """Scale a model's attention scores and head relative to a base model.  Raises BadComponent."""
    for (name, module), base_module in zip(model.named_modules(), base.modules(), strict=True):
        if isinstance(module, Attention) and isinstance(base_module, Attention):
            module.scale *= math.sqrt(base_module.head_dim / module.head_dim)
        elif name.rpartition(".")[2] in ("attention", "cross_attention") and not isinstance(module, Attention):
            problem = f"has no rule for {type(module).__name__}, which takes no softmax of scores"
            raise BadComponent("parametrization", f"{problem}; write parametrization=standard")
        elif isinstance(module, nn.Linear) and role_of(module.weight) in ("head", "embedding"):
            ratio: Any = module.in_features / base_module.in_features
            if ratio != 1:
                module.register_forward_pre_hook(partial(divide_input, ratio=ratio))


def divide_input(_: nn.Module, inputs: tuple[Tensor], ratio: float) -> tuple[Tensor]:
    """Forward pre-hook that divides a module's input."""
    return (inputs[0] / ratio,)


def without_rule(parameter: Tensor) -> str:
    """Why muP has no rule for a parameter; "" if it has one."""
    if getattr(parameter, "own_std", None) != getattr(getattr(parameter, "like", None), "own_std", None):
        return "whose scale at first goes by the width"
    input_ratio, output_ratio = growth(parameter)
    role = role_of(parameter)
    width_ratio = input_ratio if is_matrix(parameter) else output_ratio
    if width_ratio == 1:
        return ""
    if parameter.ndim > 1 and (role == "constant" or (is_matrix(parameter) and output_ratio == 1)):
        return f"which reads the width and writes {fans(parameter)[1]} features"
    if role == "own":
        return "whose scale is its own at every width"
    return ""


def is_matrix(parameter: Tensor) -> bool:
    """Whether a parameter is a hidden matrix."""
    return parameter.ndim > 1 and role_of(parameter) in ("in", "out")


def growth(parameter: Tensor) -> tuple[float, float]:
    """Ratios of a parameter's input and output features to the base model's; the first is 1 for non-matrices.  For
    parameters that are not hidden matrices the second is the ratio of their sizes."""
    like: Tensor = getattr(parameter, "like", parameter)
    if not is_matrix(parameter):
        return 1.0, parameter.numel() / like.numel()
    fan_in, fan_out = fans(parameter)
    base_fan_in, base_fan_out = fans(like)
    return fan_in / base_fan_in, fan_out / base_fan_out
