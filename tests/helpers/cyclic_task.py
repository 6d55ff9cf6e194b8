"""A task of cycles of tokens, small models for it, and all the state of a model."""

from typing import Any

import numpy as np
import torch
from empty_task import Blank
from reference_config import CONFIG, component
from torch import Tensor, nn

from ablate.config.schema import typed
from ablate.data.task import Batch, HeldOut, Task, generator
from ablate.model.build import initialised_model
from ablate.model.norm import running_norms
from ablate.runs.records import Documents
from ablate.training.evaluation import Setting, final_evaluation, following

VOCAB, CPU = 9, torch.device("cpu")


SETTING = Setting(400, CPU, "fp32")


STEPS, SIZE = 5, 3


class Cycles(Blank):
    """Each token is the one before plus a step that is the example's own; any length."""

    metrics = {"loss": "min", "accuracy": "max"}  # noqa: RUF012

    def rows(self, count: int, length: int, *key: object) -> tuple[Tensor, Tensor]:
        draws = generator(*key).integers(0, VOCAB, (count, 2))
        text = torch.from_numpy((draws[:, :1] + draws[:, 1:] * np.arange(length + 1)) % VOCAB)
        return text[:, :-1], text[:, 1:]

    def batch(self, seed: int, step: int, size: int) -> Batch:
        tokens, targets = self.rows(size, self.length, "train", seed, step)
        return Batch({"tokens": tokens}, targets)

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        length = length or self.length
        inputs, targets = self.rows(tokens // length, length, split)
        documents = np.ones(targets.shape, int)
        documents[0] = 0
        return HeldOut({"tokens": inputs}, targets, documents, ["first example", "others"])


def model(norm: str, layers: int = 2) -> nn.Module:
    """An initialised model with dropout whose running statistics have seen two batches."""
    config = CONFIG | {"norm": component("norm", norm)}
    config |= {"model": CONFIG["model"] | {"dropout": 0.5, "layers": layers}}
    made = initialised_model(typed(config), Cycles(VOCAB), 0)
    for step in range(2):
        made(**Cycles(VOCAB).batch(0, step, 3).inputs)
    return made


def state(made: nn.Module) -> dict[str, Any]:
    """All that a model is: tensors, modes, gradients, and what its norms remember."""
    found: dict[str, Any] = {name: t.clone() for name, t in [*made.named_parameters(), *made.named_buffers()]}
    found |= {f"{name} mode": module.training for name, module in made.named_modules()}
    found |= {f"{name} grad": p.grad for name, p in made.named_parameters()}
    return found | {str(i): (norm.frozen, norm.momentum) for i, norm in enumerate(running_norms(made))}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(x, b[name]) if isinstance(x, Tensor) else x == b[name] for name, x in a.items()
    )


def ended(made: nn.Module, task: Task, seed: int = 7) -> tuple[dict[str, float], Documents]:
    """The final evaluation of a model after a few steps."""
    return final_evaluation(made, task, SETTING, following(task, seed, STEPS, SIZE))
