"""Diagnostics of a model's internals on one fixed batch, logged at every evaluation with `train.diagnostics=true`."""

import copy
import inspect
import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.data.task import HeldOut
from ablate.model.attend import visible
from ablate.model.position import Places
from ablate.model.residual import Block, Stream
from ablate.training.devices import is_out_of_memory, make_room
from ablate.training.evaluation import Setting, autocast


def diagnose(model: nn.Module, held_out: HeldOut, size: int, setting: Setting) -> dict[str, float]:
    """`diag/*` on the first `size` examples, from a copy of the model in evaluation mode, so that nothing changes.

    grad_norm         ‖∂ loss / ∂ parameters‖ of each block and of the embedding
    attention_logit   largest |q · k| · scale of each block, over the pairs of positions that attention may use
    activation_rms    root mean square of each block's output, over real positions
    drift             distance of a running norm's statistics from this batch's

    When out of memory, uses half as many examples.
    """
    try:
        return diagnosed(model, held_out, size, setting)
    except RuntimeError as error:
        if size == 1 or not is_out_of_memory(error):
            raise
    make_room(setting.device)
    return diagnose(model, held_out, -(-size // 2), setting)


def diagnosed(model: nn.Module, held_out: HeldOut, size: int, setting: Setting) -> dict[str, float]:
    """See `diagnose`."""
    model = copy.deepcopy(model).eval()
    observed: dict[str, float] = {}
    for name, module in model.named_modules():
        observe(name, module, observed)
    inputs = {name: tensor[:size].to(setting.device) for name, tensor in held_out.inputs.items()}
    targets = held_out.targets[:size].to(setting.device)
    with autocast(setting.device, setting.precision):
        logits = model(**inputs)
    F.cross_entropy(logits.float().flatten(0, -2), targets.flatten()).backward()
    norms: dict[str, float] = {}
    for name, module in model.named_modules():
        if not isinstance(module, Block) and name != "embed":
            continue
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        if gradients:  # frozen parameters have none
            norms[f"diag/grad_norm/{name}"] = math.hypot(*(float(gradient.float().norm()) for gradient in gradients))
    return norms | observed


def observe(name: str, module: nn.Module, observed: dict[str, float]) -> None:
    """Register hooks that store a module's diagnostics in `observed` at each forward pass."""

    def store(key: str, value: Tensor) -> None:
        observed[key] = float(np.maximum(observed.get(key, 0.0), float(value)))  # NaN if one is

    def store_activation(block: Block, args: tuple[Any, ...], kwargs: dict[str, Any], stream: Stream) -> None:
        x = block.leave(stream).detach()
        mask = arguments(block, args, kwargs).get("mask")
        store(f"diag/activation_rms/{name}", rms(x, mask))

    def store_attention(attention: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        named = arguments(attention, args, kwargs)
        logit = largest_logit(
            attention,
            named["x"],
            named.get("places"),
            named.get("causal", False),
            named.get("mask"),
            named.get("memory"),
        )
        store(f"diag/attention_logit/{name.rpartition('.')[0]}", logit)

    def store_drift(norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        named = arguments(norm, args, kwargs)
        with torch.no_grad():
            store(f"diag/drift/{name}", norm.drift(named["x"], named.get("mask")))

    if isinstance(module, Block):
        module.register_forward_hook(store_activation, with_kwargs=True)
    if hasattr(module, "project") and hasattr(module, "scale"):
        module.register_forward_pre_hook(store_attention, with_kwargs=True)
    if hasattr(module, "drift"):
        module.register_forward_pre_hook(store_drift, with_kwargs=True)


def arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a module's forward call, by name."""
    return inspect.signature(module.forward).bind(*args, **kwargs).arguments


def rms(x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C), (B, T) -> ()
    """√ mean x², over real positions."""
    square = x.float().square().mean(-1)
    if mask is None:
        return square.mean().sqrt()
    return ((square * mask).sum() / mask.sum().clamp(min=1)).sqrt()


@torch.no_grad()
def largest_logit(
    attention: Any, x: Tensor, places: Places | None, causal: bool, mask: Tensor | None, memory: Tensor | None
) -> Tensor:
    """The largest |q · k| · scale, before caps, over the pairs of a real query and a real key that it may attend to."""
    places = places or Places()
    window = getattr(attention, "window", None)
    query, key, _ = attention.project(x, x if memory is None else memory, places)
    scale = places.scale(attention.scale, window)
    logits = (places.apply_temperature(query).float() @ key.float().transpose(-2, -1) * scale).abs()  # (B, H, T, S)
    if memory is None:
        attended = visible(query, key, causal, mask, window, getattr(attention, "chunk", None))
    else:
        attended = visible(query, key, False, mask, None, None)
    if attended is not None:
        logits = logits * attended
    if mask is not None and memory is None:
        logits = logits * mask[:, None, :, None]
    return logits.max()
