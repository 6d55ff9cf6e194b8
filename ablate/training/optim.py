"""Optimisers, and the weights that evaluations use: those of the last step, or an average over the last steps."""

import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ablate.config.components import annotation, own_of, parameters_of, resolve
from ablate.config.errors import first_line
from ablate.config.ranges import above, within
from ablate.config.schema import Config, Optim
from ablate.model.build import base_of
from ablate.model.init import kernels_of, role_of
from ablate.training.devices import TooLarge, is_out_of_memory

OFFERED = ("model", "params", "lr", "betas", "weight_decay")  # arguments that an optimiser's signature may name
# Share of a run's steps that the average covers.  Of .5, 1, 2, 5 and 10 % this gave the lowest loss of ln
# and rms over 12 seeds at scale=tiny, by .003 nats; the SD over seeds of their difference changed by 3 % at most.
HORIZON = 0.02


class AdamW(torch.optim.AdamW):
    """torch's AdamW without the wrappers that import its compiler at the first call, which takes as long as torch."""

    rule = "adam"  # how parametrization=mup scales the learning rate

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class Stepper(torch.optim.Optimizer):
    """θ ← θ − lr (U + λ θ) for every parameter that has a gradient; a subclass defines U in `update`."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)  # see AdamW

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                update = self.update(parameter, parameter.grad, group)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(update, alpha=group["lr"])

    def update(self, parameter: nn.Parameter, g: Tensor, group: dict[str, Any]) -> Tensor:
        """U of a parameter with gradient g, in a group with these settings."""
        raise NotImplementedError


class Lion(Stepper):
    """θ ← θ − lr (sign(β₁ m + (1 − β₁) g) + λ θ), then m ← β₂ m + (1 − β₂) g (Chen 2023, arXiv 2302.06675)."""

    rule = "adam"  # the size of a step does not depend on that of the gradient

    def __init__(self, params: Any, lr: float, betas: tuple[float, float]):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    def update(self, parameter: nn.Parameter, g: Tensor, group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["betas"]
        m = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        direction = torch.lerp(g, m, beta1).sign_()
        m.lerp_(g, 1 - beta2)
        return direction


class SGD(Stepper):
    """v ← μ v + g, then θ ← θ − lr (v + λ θ); with Nesterov's momentum g + μ v in place of v (Sutskever 2013)."""

    rule = "sgd"

    def __init__(self, params: Any, lr: float, momentum: float, nesterov: bool):
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": 0.0})

    def update(self, parameter: nn.Parameter, g: Tensor, group: dict[str, Any]) -> Tensor:
        momentum = group["momentum"]
        if not momentum:
            return g
        v = self.state[parameter].setdefault("velocity", torch.zeros_like(parameter))
        v.mul_(momentum).add_(g)
        return g.add(v, alpha=momentum) if group["nesterov"] else v


class Adafactor(Stepper):
    """θ ← θ − lr (max(ε, RMS(θ)) U / max(1, RMS(U) / d) + λ θ), U = g / √V (Shazeer & Stern 2018, arXiv 1804.04235).

    V ← β V + (1 − β) g² with β = 1 − t^−decay at step t.  Of a matrix only the means R of its rows and C of its columns
    are stored, and V = R C / mean(R).  Stacked matrices in one parameter are treated separately.  The kernel of a
    convolution has one RMS, and R and C over its last two axes, as in torch.  Unlike torch, which uses the rate
    min(lr, 1 / √t), this follows the schedule.
    """

    def __init__(
        self, params: Any, lr: float, decay: float, threshold: float, eps: float, kernels: Collection[Tensor] = ()
    ):
        super().__init__(params, {"lr": lr, "decay": decay, "threshold": threshold, "eps": eps, "weight_decay": 0.0})
        self.kernels = {id(kernel) for kernel in kernels}

    def update(self, parameter: nn.Parameter, g: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[parameter]
        state["step"] = state.get("step", 0) + 1
        share = state["step"] ** -group["decay"]  # 1 − β
        square = g.square() + 1e-30

        def average(name: str, mean: Tensor) -> Tensor:
            return state.setdefault(name, torch.zeros_like(mean)).lerp_(mean, share)

        if g.ndim > 1:
            rows = average("rows", square.mean(-1, True))
            columns = average("columns", square.mean(-2, True))
            update = g * (rows / rows.mean(-2, True)).rsqrt() * columns.rsqrt()
        else:
            update = g * average("all", square).rsqrt()
        axes = parameter.ndim if id(parameter) in self.kernels else min(2, parameter.ndim)
        update /= (rms(update, axes) / group["threshold"]).clamp(min=1)
        update *= rms(parameter, axes).clamp(min=group["eps"])
        return update


def rms(x: Tensor, axes: int) -> Tensor:
    """√mean(x²) over the last `axes` axes, which are kept."""
    return x.square().mean(tuple(range(-axes, 0)), keepdim=True).sqrt()


Stacks = Sequence[tuple[nn.Parameter, list[nn.Parameter]]]


class SideBySide(torch.optim.Optimizer):
    """Several optimisers as one, each with its own parameters; groups keep their share of optim.lr."""

    def __init__(self, *parts: torch.optim.Optimizer):
        self.parts = parts
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self.share_groups()

    def share_groups(self) -> None:
        """Use the parts' own groups, so that a learning rate written into one reaches the part."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Any = None) -> None:
        """Step each part."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of all parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the states of all parts."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.share_groups()


class MuonBesideAdamW(SideBySide):
    """Muon for hidden matrices and AdamW for all other parameters, as one optimiser; see `muon`.  `stacks` are
    parameters (n, in, out) that hold many matrices, with the views of these that Muon updates instead."""

    def __init__(self, matrices: torch.optim.Muon, others: AdamW, stacks: Stacks = ()):
        self.stacks = stacks
        super().__init__(matrices, others)

    def step(self, closure: Any = None) -> None:
        """Step each part."""
        for stack, views in self.stacks:
            for i, view in enumerate(views):
                view.grad = None if stack.grad is None else stack.grad[i]
        super().step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients, also those of stacks."""
        super().zero_grad(set_to_none)
        for stack, _ in self.stacks:
            stack.grad = None


def decaying(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices have weight decay, vectors and scalars do not."""
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def adamw(model: nn.Module, lr: float, betas: list[float], weight_decay: float) -> AdamW:
    """AdamW (Loshchilov & Hutter 2017), fused; only matrices have weight decay."""
    return AdamW(decaying(model.parameters(), weight_decay), lr=lr, betas=(betas[0], betas[1]), fused=True)


def lion(model: nn.Module, lr: float, betas: list[float], weight_decay: float) -> Lion:
    """Lion (Chen 2023, arXiv 2302.06675); only matrices have weight decay."""
    return Lion(decaying(model.parameters(), weight_decay), lr=lr, betas=(betas[0], betas[1]))


def sgd(model: nn.Module, lr: float, weight_decay: float, momentum: float, nesterov: bool) -> SGD:
    """Stochastic gradient descent with momentum (Sutskever 2013); only matrices have weight decay."""
    within("optim.momentum", momentum, 0, 1, "[)")
    if nesterov and not momentum:
        raise ValueError("optim.nesterov=true needs optim.momentum > 0")
    return SGD(decaying(model.parameters(), weight_decay), lr=lr, momentum=momentum, nesterov=nesterov)


def adafactor(
    model: nn.Module, lr: float, weight_decay: float, decay: float, threshold: float, eps: float
) -> torch.optim.Optimizer:
    """Adafactor (Shazeer & Stern 2018, arXiv 1804.04235); only matrices have weight decay."""
    above("optim.decay", decay, 0)
    above("optim.threshold", threshold, 0)
    above("optim.eps", eps, 0)
    groups = decaying(model.parameters(), weight_decay)
    return Adafactor(groups, lr, decay, threshold, eps, kernels=kernels_of(model))


def muon(model: nn.Module, lr: float, betas: list[float], weight_decay: float) -> torch.optim.Optimizer:
    """Muon for hidden matrices, including those of experts, and AdamW for all other parameters (Jordan 2024).

    M ← 0.95 M + 0.05 G; W ← W − lr · 0.2 √max(n, m) · NewtonSchulz(0.95 M + 0.05 G) − lr λ W.  The factor makes an
    update as large as AdamW's, so that one rate suits both (Liu 2025, arXiv 2502.16982).  `betas` are those of AdamW.
    """
    # Matrices, and stacks of them, that read hidden features: not kernels, and not the map of the model's inputs, which
    # Muon's author leaves to AdamW.
    excluded = {id(kernel) for kernel in kernels_of(model)}
    excluded |= {id(p) for name, p in model.named_parameters() if name.startswith("embed.")}
    matrices: list[nn.Parameter] = []
    stacks: list[tuple[nn.Parameter, list[nn.Parameter]]] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        is_hidden = role_of(parameter) in ("in", "out") and id(parameter) not in excluded
        if is_hidden and parameter.ndim == 2:
            matrices.append(parameter)
        elif is_hidden and parameter.ndim == 3:
            stacks.append((parameter, [nn.Parameter(matrix) for matrix in parameter.detach()]))
        else:
            others.append(parameter)
    for _, views in stacks:
        matrices += views
    if not matrices:
        raise ValueError("optim=muon: the model has no hidden matrix")
    of_matrices = torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    of_others = AdamW(decaying(others, weight_decay), lr=lr, betas=(betas[0], betas[1]), fused=True)
    return MuonBesideAdamW(of_matrices, of_others, stacks)


def build_optimiser(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of a resolved configuration; each parameter group gets its `lr_share` of optim.lr.  Groups with
    another rate, as muP and Muon have them, keep their share throughout the schedule."""
    optim = config.optim
    target = resolve("optim", optim._target_, config.user)
    optimiser = make_optimiser(target, model, optim, own_of(config, "optim"))
    if base_of(config) is not None:
        follow_width(optimiser, str(rule_of(target)))
    for group in optimiser.param_groups:
        group["lr_share"] = group["lr"] / optim.lr
    return optimiser


def make_optimiser(
    target: Callable[..., torch.optim.Optimizer], model: nn.Module, optim: Optim, settings: dict[str, Any]
) -> torch.optim.Optimizer:
    """Build an optimiser with its own settings and the arguments of `OFFERED` that its signature names.  `params` are
    the trainable parameters, in groups without weight decay for vectors and scalars."""
    names = parameters_of(target)
    trained = [p for p in model.parameters() if p.requires_grad]
    offered: dict[str, Any] = {"model": model, "lr": optim.lr, "weight_decay": optim.weight_decay, "params": trained}
    if "weight_decay" in names:
        offered["params"] = decaying(trained, optim.weight_decay)
    if optim.betas is not None:
        offered["betas"] = tuple(optim.betas)
    return target(**{name: value for name, value in offered.items() if name in names}, **settings)


def rule_of(target: Any) -> str | None:
    """The rule by which parametrization=mup scales learning rates: the `rule` of the optimiser's class."""
    optimiser = target if inspect.isclass(target) else annotation(target, "return")
    return getattr(optimiser, "rule", None)


def follow_width(optimiser: torch.optim.Optimizer, rule: str) -> None:
    """Split groups so that each parameter has its muP learning rate; rate · weight_decay stays the same."""
    for part in optimiser.parts if isinstance(optimiser, SideBySide) else [optimiser]:
        groups = []
        for group in part.param_groups:
            by_share: dict[float, list[Any]] = {}
            for parameter in group["params"]:
                by_share.setdefault(parameter.rates[rule], []).append(parameter)
            for share, parameters in by_share.items():
                scaled = group | {"params": parameters, "lr": group["lr"] * share}
                if "weight_decay" in group:
                    scaled["weight_decay"] = group["weight_decay"] / share
                groups.append(scaled)
        part.param_groups = groups
    if isinstance(optimiser, SideBySide):
        optimiser.share_groups()


def optimizer_step(optimiser: torch.optim.Optimizer) -> None:
    """Take the optimiser's step.  Raises TooLarge if its state does not fit into memory beside the model.  The
    activations are already freed then, so that splitting the batch would not help."""
    try:
        optimiser.step()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        reason = "out of memory in the optimiser's step: its state does not fit beside the model; write a smaller model"
        raise TooLarge(f"{reason} ({first_line(error)})") from None


class LastWeights:
    """The current weights, without averaging."""

    def __init__(self, model: nn.Module, steps: int):
        self.model = model

    def update(self, step: int) -> None:
        """Include the weights after update `step` = 0, 1, …"""

    def state_dict(self) -> dict[str, Any]:
        """State to save besides the model."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from a checkpoint."""


class EMA(LastWeights):
    """w̄ ← d·w̄ + (1 − d)·w after each step, d = 1 − 1/min(h, 1 + (t + 1)/2): the weights of about the last h steps.

    h is `HORIZON` of the steps.  Until about step 2h the average covers the last half of the steps so far, so that the
    initial weights are soon forgotten.  Running statistics are averaged in the same way, to match the weights; integer
    buffers, which are counters, are copied from the live model.
    """

    def __init__(self, model: nn.Module, steps: int):
        self.live = model
        self.horizon = max(1.0, HORIZON * steps)
        self.model = copy.deepcopy(model)

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = 0.0
        if step > 0:
            decay = 1 - 1 / min(self.horizon, 1 + (step + 1) / 2)
        averages, counters = numbers_and_counters(self.model)
        live, live_counters = numbers_and_counters(self.live)
        torch._foreach_lerp_(averages, live, 1 - decay)
        if counters:
            torch._foreach_copy_(counters, live_counters)

    def state_dict(self) -> dict[str, Any]:
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state)


def numbers_and_counters(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The floating-point parameters and buffers of a model, which are averaged, and its counters."""
    tensors = [*model.parameters(), *model.buffers()]
    numbers = [x for x in tensors if x.is_floating_point()]
    counters = [x for x in tensors if not x.is_floating_point()]
    return numbers, counters


AVERAGES = {"none": LastWeights, "ema": EMA}
