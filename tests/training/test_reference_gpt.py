"""Our GPT-2 computes what a plain one does."""

import pytest
import torch
from reference_gpt import FFNS, GPT, NORMS, Size, load_parameters, loss_of
from torch.nn.functional import cross_entropy

from ablate.data.task import build_task
from ablate.model.build import initialised_model


@pytest.mark.parametrize(("norm", "ffn"), [*zip(NORMS, FFNS, strict=True)])
def test_loss_and_gradients_are_the_references_in_float64(norm, ffn, plan, untried):
    planned = plan("+preset=gpt2", f"norm={norm}", f"ffn={ffn}", "model.layers=2", "model.dim=32", "model.heads=4")
    config = planned.manifest.cells[0].config
    task = build_task(config)
    ours = initialised_model(config, task, 0).double()
    reference = GPT(Size(task.vocab, task.context, 2, 4, 32), norm, ffn).double()
    load_parameters(reference, ours.state_dict())
    batch = task.batch(0, 0, 4)
    loss = cross_entropy(ours(**batch.inputs).flatten(0, -2), batch.targets.flatten())
    expected = loss_of(reference, batch.inputs["tokens"], batch.targets)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    loss.backward()
    expected.backward()
    gradients = GPT(Size(task.vocab, task.context, 2, 4, 32), norm, ffn).double()
    load_parameters(
        gradients, {name: parameter.grad for name, parameter in ours.named_parameters(remove_duplicate=False)}
    )
    for found, parameter in zip(gradients.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad, rtol=1e-9, atol=1e-15)
