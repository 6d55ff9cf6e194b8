"""Statistics of running norms estimated anew, decoding, metrics at lengths; each against a slow way to do it."""

import pytest
import torch
from cyclic_task import SETTING, SIZE, STEPS, VOCAB, Cycles, ended, model, same, state
from torch import nn

from ablate.model.norm import running_norms
from ablate.training.evaluation import (
    RECALIBRATION_BATCHES,
    at_lengths,
    following,
    losses_by_document,
    measure,
    recalibrated,
    score,
)


def test_recalibrated_statistics_are_means_over_the_batches_after_training():
    """In the first norm, whose input no other norm changes, against all batches at once."""
    made = model("bn")
    task = Cycles(VOCAB)
    fresh = running_norms(recalibrated(made, SETTING, following(task, 7, STEPS, SIZE)))[0]
    embedded = [made.embed(task.batch(7, STEPS + i, 3).inputs["tokens"]) for i in range(RECALIBRATION_BATCHES)]
    flat = [x.flatten(0, 1) for x in embedded]  # dropout is off
    torch.testing.assert_close(fresh.running_mean, torch.stack([x.mean(0) for x in flat]).mean(0))
    torch.testing.assert_close(fresh.running_var, torch.stack([x.var(0) for x in flat]).mean(0))


def test_the_endpoint_has_three_numbers_and_leaves_the_model_as_it_was():
    made = model("bn")
    task = Cycles(VOCAB)
    before = state(made)
    random = torch.get_rng_state()
    found, documents = ended(made, task)
    assert same(state(made), before) and torch.equal(torch.get_rng_state(), random)
    assert found.keys() == {"test/loss", "test/accuracy", "test/loss_recalibrated", "test/loss_batch"}
    assert len(set(found.values())) == 4
    held_out = task.held_out("test", 400)
    assert documents == losses_by_document(score(made, held_out, SETTING), held_out.documents, held_out.names)
    fresh = score(recalibrated(made, SETTING, following(task, 7, STEPS, SIZE)), task.held_out("test", 400), SETTING)
    assert found["test/loss_recalibrated"] == float(fresh.loss.mean())
    assert ended(made, task)[0] == found
    assert ended(made, task, 8)[0]["test/loss_recalibrated"] != found["test/loss_recalibrated"]


def test_lengths_are_evaluated_on_examples_of_these_lengths():
    made = model("ln")
    task = Cycles(VOCAB)
    found = at_lengths(made, task, SETTING, [5, 30])
    assert list(found) == ["test/loss@5", "test/accuracy@5", "test/loss@30", "test/accuracy@30"]
    made.eval()
    for length in (5, 30):
        tokens, targets = task.rows(400 // length, length, "test")
        logits = made(tokens)
        assert found[f"test/accuracy@{length}"] == float((logits.argmax(-1) == targets).double().mean())
        expected = nn.functional.cross_entropy(logits.transpose(1, 2), targets).item()
        assert found[f"test/loss@{length}"] == pytest.approx(expected, rel=1e-6)


def test_nothing_is_kept_for_a_backward_pass_at_other_lengths():
    """A compiled model shares training's graph at its length alone; at eight times it, that would take much memory."""
    made = model("ln")
    task = Cycles(VOCAB)
    kept = []
    made.register_forward_hook(lambda *of: kept.append(of[-1].requires_grad))
    setting = SETTING._replace(rows=SIZE)
    measure(made, task, "test", setting)
    assert all(kept)
    kept.clear()
    at_lengths(made, task, setting, [30])
    assert kept and not any(kept)
