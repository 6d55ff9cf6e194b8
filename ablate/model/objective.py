"""What training descends: the mean cross-entropy of the targets, and named terms beside it.

Terms come from the objective and from components: a class of a component names in `auxiliary` the attributes in which
its forward pass in training leaves a loss, a number each; those of all modules add up.  What a model is measured by
stays the cross-entropy.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import above, at_least, within

OFFERED = ("logits", "targets", "inputs", "later", "hidden")  # what `terms` of an objective may ask for by name
IGNORE = -100  # a target that is not scored; cross_entropy's own default


class Objective:
    """Σ −log p(y) + Σ terms, both over the targets y, divided by how many are scored; a subclass says its `terms`.

    These are given what their signature names: `logits` (..., V); `targets` (...); `inputs`, what the model was called
    with, by name; `later`, logits of each later token; `hidden`, the stream after each layer, (B, T, C) each, those of
    an encoder first.  What an objective holds, a trained model say, is no part of the model: it is neither counted nor
    trained nor kept in checkpoints.
    """

    kinds: tuple[str, ...] = ("lm", "mlm", "classification", "seq2seq")  # of the tasks that it is for
    later = 0  # tokens after the next one that the model is to predict, too

    def terms(self, logits: Tensor, targets: Tensor, later: Sequence[Tensor]) -> dict[str, Tensor]:
        """What is added, by name, summed over the targets: a number each."""
        return {}


class CrossEntropy(Objective):
    """−log p(y) + `z` · log² Z + `label_smoothing` · (log p(y) − Σ_k log p(k) / V), Z = Σ_k exp(logit_k).

    Label smoothing: Szegedy 2015, arXiv 1512.00567; z-loss: Chowdhery 2022, arXiv 2204.02311.
    """

    def __init__(self, label_smoothing: float, z: float):
        self.label_smoothing = within("objective.label_smoothing", label_smoothing, 0, 1, "[)")
        self.z = at_least("objective.z", z, 0)

    def terms(self, logits: Tensor, targets: Tensor, later: Sequence[Tensor]) -> dict[str, Tensor]:
        scored, found = targets != IGNORE, {}
        if self.label_smoothing:
            own = logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
            found["label_smoothing"] = self.label_smoothing * ((own - logits.mean(-1)) * scored).sum()
        if self.z:
            found["z_loss"] = self.z * (logits.logsumexp(-1).square() * scored).sum()
        return found


class MultiToken(CrossEntropy):
    """CrossEntropy + `weight` · Σ_{i=2…tokens} −log p_i(y_{t+i−1}), y_t the next token (Gloeckle 2024, 2404.19737).

    Each further token has a block of its own, which reads what the last block reads; norm and head are shared.
    """

    kinds = ("lm",)

    def __init__(self, label_smoothing: float, z: float, tokens: int, weight: float):
        super().__init__(label_smoothing, z)
        self.later = at_least("objective.tokens", tokens, 2) - 1
        self.weight = above("objective.weight", weight, 0)

    def terms(self, logits: Tensor, targets: Tensor, later: Sequence[Tensor]) -> dict[str, Tensor]:
        """See Objective; what lies beyond the end of a row is not scored."""
        losses = [
            F.cross_entropy(one[:, :-i].flatten(0, -2), targets[:, i:].flatten(), reduction="sum")
            for i, one in enumerate(later, 1)
            if i < targets.shape[1]
        ]
        return super().terms(logits, targets, later) | {"multi_token": self.weight * sum(losses, logits.new_zeros(()))}


def asked(objective: Objective) -> list[str]:
    """What the terms of an objective ask for."""
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
    """What is added to the mean cross-entropy of a forward pass in training, by name.

    `scored` targets and the whole of all rows, of which these are a `share`, are those of the step's batch.
    """
    offered: dict[str, Any] = {"logits": logits, "targets": targets, "inputs": inputs}
    offered["later"] = [one.float() for one in taken(model, "later_logits")]
    offered["hidden"] = [state for part in model.modules() for state in taken(part, "hidden_states")]
    of_objective = objective.terms(**{name: offered[name] for name in asked(objective)})
    found = {name: term / scored for name, term in of_objective.items()}
    for name, term in auxiliary(model):
        if name in ("loss", "objective"):
            raise ValueError(f"auxiliary: a loss of a component cannot be called {name!r}")
        found[name] = found.get(name, 0) + term * share
    return found


def auxiliary(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The losses that components left in their last forward pass, which are taken away: what holds them is no copy."""
    for module in model.modules():
        for name in getattr(module, "auxiliary", ()):
            if (term := getattr(module, name, None)) is not None:
                setattr(module, name, None)
                yield name, term


def has_auxiliary(model: nn.Module) -> bool:
    """Whether components of a model leave losses of their own."""
    return any(getattr(module, "auxiliary", ()) for module in model.modules())


def taken(model: nn.Module, name: str) -> list[Tensor]:
    """The tensors that a model form left in an attribute, which it no longer has then."""
    found = getattr(model, name, ())
    if found:
        setattr(model, name, ())
    return list(found)
