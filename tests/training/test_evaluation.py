"""Statistics of running norms estimated anew, decoding, metrics at lengths; each against a slow way to do it."""

from typing import Any

import numpy as np
import pytest
import torch
from empty_task import Blank
from reference_config import CONFIG, component
from torch import Tensor, nn

from ablate.config.schema import typed
from ablate.data.task import Batch, HeldOut, Task, generator
from ablate.model.build import initialised_model
from ablate.model.norm import running_norms
from ablate.runs.records import Documents
from ablate.training.evaluation import (
    RECALIBRATION_BATCHES,
    Setting,
    at_lengths,
    final_evaluation,
    following,
    measure,
    recalibrated,
    score,
)

VOCAB, CPU = 9, torch.device("cpu")
SETTING = Setting(400, CPU, "fp32")
STEPS, SIZE = 5, 3


class Cycles(Blank):
    """Each token is the one before plus a step that is the example's own; any length."""

    metrics = {"loss": "min", "accuracy": "max"}  # noqa: RUF012
    asked: list[tuple[Any, ...]]

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
        return HeldOut({"tokens": inputs}, targets, np.zeros(targets.shape, int), ["all"])


def model(norm: str, layers: int = 2) -> nn.Module:
    """An initialised model with dropout whose running statistics have seen two batches."""
    config = CONFIG | {"norm": component("norm", norm)}
    config |= {"model": CONFIG["model"] | {"dropout": 0.5, "layers": layers}}
    made = initialised_model(typed(config), Cycles(VOCAB), 0)
    for step in range(2):
        made(**Cycles(VOCAB).batch(0, step, 3).inputs)
    return made


def test_recalibrated_statistics_are_means_over_the_batches_after_training() -> None:
    """In the first norm, whose input no other norm changes, against all batches at once."""
    made, task = model("bn"), Cycles(VOCAB)
    fresh = running_norms(recalibrated(made, SETTING, following(task, 7, STEPS, SIZE)))[0]
    embedded = [made.embed(task.batch(7, STEPS + i, 3).inputs["tokens"]) for i in range(RECALIBRATION_BATCHES)]
    flat = [x.flatten(0, 1) for x in embedded]  # dropout is off
    torch.testing.assert_close(fresh.running_mean, torch.stack([x.mean(0) for x in flat]).mean(0))
    torch.testing.assert_close(fresh.running_var, torch.stack([x.var(0) for x in flat]).mean(0))


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


def test_the_endpoint_has_three_numbers_and_leaves_the_model_as_it_was() -> None:
    made, task = model("bn"), Cycles(VOCAB)
    before, random = state(made), torch.get_rng_state()
    found, documents = ended(made, task)
    assert same(state(made), before) and torch.equal(torch.get_rng_state(), random)
    assert found.keys() == {"test/loss", "test/accuracy", "test/loss_recalibrated", "test/loss_batch"}
    assert len(set(found.values())) == 4 and documents.loss == [pytest.approx(found["test/loss"])]
    fresh = score(recalibrated(made, SETTING, following(task, 7, STEPS, SIZE)), task.held_out("test", 400), SETTING)
    assert found["test/loss_recalibrated"] == float(fresh.loss.mean())
    assert ended(made, task)[0] == found
    assert ended(made, task, 8)[0]["test/loss_recalibrated"] != found["test/loss_recalibrated"]


def test_lengths_are_evaluated_on_examples_of_these_lengths() -> None:
    made, task = model("ln"), Cycles(VOCAB)
    found = at_lengths(made, task, SETTING, [5, 30])
    assert list(found) == ["test/loss@5", "test/accuracy@5", "test/loss@30", "test/accuracy@30"]
    made.eval()
    for length in (5, 30):
        tokens, targets = task.rows(400 // length, length, "test")
        logits = made(tokens)
        assert found[f"test/accuracy@{length}"] == float((logits.argmax(-1) == targets).double().mean())
        expected = nn.functional.cross_entropy(logits.transpose(1, 2), targets).item()
        assert found[f"test/loss@{length}"] == pytest.approx(expected, rel=1e-6)


def test_nothing_is_kept_for_a_backward_pass_at_other_lengths() -> None:
    """A compiled model shares training's graph at its length alone; at eight times it, that would take much memory."""
    made, task, kept = model("ln"), Cycles(VOCAB), []
    made.register_forward_hook(lambda *of: kept.append(of[-1].requires_grad))
    setting = SETTING._replace(rows=SIZE)
    measure(made, task, "test", setting)
    assert all(kept)
    kept.clear()
    at_lengths(made, task, setting, [30])
    assert kept and not any(kept)
