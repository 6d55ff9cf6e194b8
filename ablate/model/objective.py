"""Training objectives: the mean cross-entropy of the targets plus named terms.

Terms come from the objective and from components.  A component's class lists in `auxiliary` the attributes in which
its forward pass stores losses during training, one number each; equal names add up over modules.  Models are still
evaluated by the cross-entropy.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import above, at_least, within
from ablate.model.dropout import once

OFFERED = ("logits", "targets", "inputs", "later", "hidden")  # arguments that `terms` may take by name
IGNORE = -100  # a target that is not scored; the default of cross_entropy


class Objective:
    """Σ −log p(y) + Σ terms over the targets y, divided by the number of scored ones; a subclass defines `terms`.

    `terms` receives the arguments in its signature: `logits` (..., V); `targets` (...); `inputs`, the model's inputs by
    name; `later`, logits of each later token; `hidden`, the stream after each layer, (B, T, C) each, an encoder's
    first.  Modules that an objective holds, such as a trained model, are not part of the model: they are neither
    counted nor trained nor saved in checkpoints.
    """

    kinds: tuple[str, ...] = ("lm", "mlm", "classification", "seq2seq")  # kinds of tasks that it supports
    later = 0  # number of tokens after the next one that the model also predicts
    is_plain = False  # whether it certainly adds no terms

    def terms(self, logits: Tensor, targets: Tensor, later: Sequence[Tensor]) -> dict[str, Tensor]:
        """The terms by name, each a number summed over the targets."""
        return {}


class CrossEntropy(Objective):
    """−log p(y) + `z` · log² Z + `label_smoothing` · (log p(y) − Σ_k log p(k) / V), Z = Σ_k exp(logit_k).  Label
    smoothing: Szegedy 2015, arXiv 1512.00567; z-loss: Chowdhery 2022, arXiv 2204.02311."""

    def __init__(self, label_smoothing: float, z: float):
        self.label_smoothing = within("label_smoothing", label_smoothing, 0, 1, "[)")
        self.z = at_least("z", z, 0)
        self.is_plain = type(self) is CrossEntropy and not (label_smoothing or z)

    def terms(self, logits: Tensor, targets: Tensor, later: Sequence[Tensor]) -> dict[str, Tensor]:
        scored = targets != IGNORE
        terms = {}
        if self.label_smoothing:
            target_logits = logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
            terms["label_smoothing"] = self.label_smoothing * ((target_logits - logits.mean(-1)) * scored).sum()
        if self.z:
            terms["z_loss"] = self.z * (logits.logsumexp(-1).square() * scored).sum()
        return terms


class MultiToken(CrossEntropy):
    """CrossEntropy + `weight` · Σ_{i=2…tokens} −log p_i(y_{t+i−1}), y_t the next token (Gloeckle 2024, 2404.19737).
    Each later token has an additional block, with the last block's input; norm and head are shared."""

    kinds = ("lm",)

    def __init__(self, label_smoothing: float, z: float, tokens: int, weight: float):
        super().__init__(label_smoothing, z)
        self.later = at_least("tokens", tokens, 2) - 1
        self.weight = above("weight", weight, 0)

    def terms(self, logits: Tensor, targets: Tensor, later: Sequence[Tensor]) -> dict[str, Tensor]:
        """See Objective; targets beyond the end of a row are not scored."""
        total = logits.new_zeros(())
        for ahead, later_logits in enumerate(later, 1):
            if ahead < targets.shape[1]:
                predicted = later_logits[:, :-ahead].flatten(0, -2)
                total = total + F.cross_entropy(predicted, targets[:, ahead:].flatten(), reduction="sum")
        terms = super().terms(logits, targets, later)
        terms["multi_token"] = self.weight * total
        return terms


def requested(objective: Objective) -> list[str]:
    """The arguments that an objective's `terms` takes."""
    return list(inspect.signature(objective.terms).parameters)


def terms_of(
    model: nn.Module,
    objective: Objective,
    logits: Tensor,
    targets: Tensor,
    inputs: Mapping[str, Tensor],
    scored: int,
    share: float,
) -> dict[str, Tensor]:
    """The terms added to the mean cross-entropy of a forward pass in training, by name.  `scored` is the number of
    scored targets of the whole batch, and `share` the share of its rows in this part."""
    offered: dict[str, Any] = {"logits": logits, "targets": targets, "inputs": inputs}
    offered["later"] = [later_logits.float() for later_logits in pop_tensors(model, "later_logits")]
    offered["hidden"] = []
    for part in reporting(model):
        offered["hidden"] += pop_tensors(part, "hidden_states")
    of_objective = objective.terms(**{name: offered[name] for name in requested(objective)})
    terms = {name: term / scored for name, term in of_objective.items()}
    for name, term in auxiliary(model):
        if name in ("loss", "objective"):
            raise ValueError(f"auxiliary: a loss of a component cannot be called {name!r}")
        terms[name] = terms.get(name, 0) + term * share
    return terms


def reporting(model: nn.Module) -> list[nn.Module]:
    """A model and those of its modules that can store auxiliary losses or hidden states in a forward pass."""

    def find() -> list[nn.Module]:
        parts = list(model.modules())[
            1:
        ]  # without the model: one that holds itself is freed by garbage collection only
        return [part for part in parts if hasattr(part, "auxiliary") or hasattr(part, "hidden_states")]

    return [model, *once(model, "reporting", find)]


def auxiliary(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The losses stored by components in their last forward pass, which are removed so that modules can be copied."""
    for module in reporting(model):
        for name in getattr(module, "auxiliary", ()):
            term = getattr(module, name, None)
            if term is not None:
                setattr(module, name, None)
                yield name, term


def has_auxiliary(model: nn.Module) -> bool:
    """Whether components of a model store auxiliary losses."""
    return any(getattr(module, "auxiliary", ()) for module in model.modules())


def pop_tensors(model: nn.Module, name: str) -> list[Tensor]:
    """Remove and return the tensors that a model stored in an attribute."""
    tensors = getattr(model, name, ())
    if tensors:
        setattr(model, name, ())
    return list(tensors)
