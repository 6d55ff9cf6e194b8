"""Our model and a reference on the same inputs with the same weights: what each computes, and how far they are apart.

Our parameters are computed from the reference's by a map, through which gradients flow back.  So the gradients of all
of the reference's parameters are compared, those that our model holds fused, folded or shared, too.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from composed import composed
from conftest import latest
from empty_task import Blank
from torch import Tensor, nn
from torch.func import functional_call

from ablate.config.depth import over_layers
from ablate.data.task import IGNORE
from ablate.model.build import build_model

VOCAB, CONTEXT, LAYERS, HEADS, DIM = 50, 24, 2, 4, 32
SIZES = [f"model.{key}={n}" for key, n in (("layers", LAYERS), ("heads", HEADS), ("dim", DIM))]
SIZES += [f"data.context={CONTEXT}", "model.dropout=0"]
PAD = 0  # no real token has this id

Weights = dict[str, Tensor]


class Family(NamedTuple):
    """A reference, how its weights become ours, and what is asked of both."""

    preset: str
    reference: Callable[[], nn.Module]  # built, its weights of no matter
    call: Callable[[nn.Module, Weights], Tensor]  # its logits (B, T, vocab) for a batch's inputs
    weights: Callable[[Weights], Weights]  # its parameters -> ours, by name
    kind: str = "lm"
    tolerance: float = 1e-9  # largest error as a share of a tensor's maximum
    overrides: tuple[str, ...] = ()  # beside the preset and the sizes


class Outcome(NamedTuple):
    """Logits at real positions, and the gradients of the loss by the reference's parameters."""

    logits: Tensor
    gradients: Weights


def build(family: Family, *overrides: str) -> nn.Module:
    """Our model in float64, through Hydra, from the preset on disk."""
    config = composed(*latest(f"+preset={family.preset}", *SIZES, *family.overrides, *overrides)).config
    return build_model(over_layers(config)[0], Blank(VOCAB, CONTEXT, family.kind)).double().eval()


@contextmanager
def exactly() -> Iterator[None]:
    """Whatever a reference casts to float32 inside, its norms, angles and softmax, stays float64."""
    with ExitStack() as stack:
        for where, name, instead in (
            (torch, "float32", torch.float64),
            (torch, "float", torch.float64),
            (Tensor, "float", Tensor.double),
        ):
            stack.enter_context(patch.object(where, name, instead))
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        yield


def drawn(reference: nn.Module) -> nn.Module:
    """The reference in float64 with random numbers in every parameter: biases and the norms' weights, too."""
    generator = torch.Generator().manual_seed(0)
    reference = reference.double().eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            start = parameter if parameter.ndim == 1 and parameter.std() == 0 else torch.zeros_like(parameter)
            parameter.copy_(start + 0.15 * noise)
    return reference


def batch(kind: str) -> tuple[Weights, Tensor]:
    """Inputs as our forms take them, padded where a mask can matter, and targets (B, T)."""
    generator = torch.Generator().manual_seed(1)

    def tokens(length: int) -> Tensor:
        return torch.randint(PAD + 3, VOCAB, (3, length), generator=generator)

    if kind == "lm":
        return {"tokens": tokens(CONTEXT)}, tokens(CONTEXT)
    mask = torch.ones(3, CONTEXT)
    mask[0, -7:] = mask[1, :4] = 0  # to the right, to the left, none
    read = torch.where(mask.bool(), tokens(CONTEXT), PAD)
    if kind == "mlm":
        return {"tokens": read, "mask": mask}, tokens(CONTEXT).masked_fill(mask == 0, IGNORE)
    short = torch.ones(3, CONTEXT - 3)
    short[0, -5:] = 0
    written = torch.where(short.bool(), tokens(CONTEXT - 3), PAD)
    inputs = {"source": read, "tokens": written, "source_mask": mask, "mask": short}
    return inputs, tokens(CONTEXT - 3).masked_fill(short == 0, IGNORE)


@functools.cache
def expected(family: Family) -> tuple[Weights, Outcome]:
    """The reference's parameters and what it computes with them."""
    with exactly():
        reference = drawn(family.reference())
        weights = dict(reference.named_parameters())
        inputs, targets = batch(family.kind)
        logits = family.call(reference, inputs)
    return weights, outcome(logits, targets, weights)


def calculated(family: Family, *overrides: str) -> tuple[float, Callable[[], Outcome]]:
    """The share by which our model's logits err with the same parameters, and what computes the gradients, too.

    Raises ValueError where the parameters are not those that our model has.
    """
    model, (weights, _) = build(family, *overrides), expected(family)
    mapped = family.weights(weights)
    if shapes(mapped) != shapes(dict(model.named_parameters())):
        differing = sorted(set(shapes(mapped).items()) ^ set(shapes(dict(model.named_parameters())).items()))
        raise ValueError(f"the map and the model have different parameters: {differing}")
    inputs, targets = batch(family.kind)
    logits = functional_call(model, mapped, kwargs=inputs, tie_weights=True)
    found = share(expected(family)[1].logits, logits.detach()[targets != IGNORE])
    return found, lambda: outcome(logits, targets, weights)


def shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Names and shapes."""
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def outcome(logits: Tensor, targets: Tensor, parameters: Weights) -> Outcome:
    """Logits where there are targets, and gradients of their cross-entropy."""
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE)
    gradients = torch.autograd.grad(loss, list(parameters.values()))  # raises where a parameter takes no part
    return Outcome(logits.detach()[targets != IGNORE], dict(zip(parameters, gradients, strict=True)))


def errors(theirs: Outcome, ours: Outcome) -> dict[str, float]:
    """The largest error of each tensor as a share of its maximum.

    A key's bias adds one number to all of a query's scores, which changes no share: where it is a parameter of its own
    its gradient is rounding alone, and is measured against the largest of all.
    """
    largest = max(float(gradient.abs().max()) for gradient in theirs.gradients.values())
    found = {"logits": share(theirs.logits, ours.logits)}
    for name, gradient in theirs.gradients.items():
        zero = re.search(r"\bk(ey|_proj)\.bias$", name) is not None
        found[name] = share(gradient, ours.gradients[name], largest if zero else None)
    return found


def share(theirs: Tensor, ours: Tensor, of: float | None = None) -> float:
    """max |ours − theirs| / max |theirs|."""
    return float((ours - theirs).abs().max()) / (float(theirs.abs().max()) if of is None else of)


def table(prefix: str, layers: str, block: Mapping[str, str], top: Mapping[str, str]) -> dict[str, str]:
    """Their module names -> ours: what stands in each layer, `{}` its number, and what stands beside the layers."""
    found = {f"{prefix}{layers}.{{}}.{theirs}": f"blocks.{{}}.{ours}" for theirs, ours in block.items()}
    return found | {f"{prefix}{theirs}": ours for theirs, ours in top.items()}


def renamed(weights: Mapping[str, Tensor], table: Mapping[str, str]) -> Weights:
    """Weights under our names, by a table of module names in which `{}` stands for a layer's number."""
    found = {}
    for name, weight in weights.items():
        module, _, kind = name.rpartition(".")
        pattern, number = re.sub(r"\.\d+\.", ".{}.", module, count=1), re.search(r"\.(\d+)\.", module)
        if pattern in table:
            found[f"{table[pattern].format(*(number.groups() if number else ()))}.{kind}"] = weight
    return found


def split(weights: Weights, fused: str, parts: Callable[[Tensor], Any]) -> Weights:
    """Replace each fused projection of queries, keys and values by three of our names."""
    found = {}
    for name, weight in weights.items():
        if fused in name:
            for part, piece in zip(("query", "key", "value"), parts(weight), strict=True):
                found[name.replace(fused, part)] = piece
        else:
            found[name] = weight
    return found
