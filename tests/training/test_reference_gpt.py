"""Our GPT-2 computes what the plain one does that benchmarks/gpu.py compares its speed with."""

import pytest
import torch
from reference_gpt import FFNS, GPT, NORMS, Size, load_parameters, loss_of
from torch.nn.functional import cross_entropy

from ablate.data.task import build_task
from ablate.model.build import initialised_model


@pytest.mark.parametrize(("norm", "ffn"), [*zip(NORMS, FFNS, strict=True)])
def test_the_loss_is_the_references_in_float64(norm, ffn, plan, untried):
    planned = plan("+preset=gpt2", f"norm={norm}", f"ffn={ffn}", "model.layers=2", "model.dim=32", "model.heads=4")
    config = planned.manifest.cells[0].config
    task = build_task(config)
    ours = initialised_model(config, task, 0).double()
    reference = GPT(Size(task.vocab, task.context, 2, 4, 32), norm, ffn).double()
    load_parameters(reference, ours.state_dict())
    batch = task.batch(0, 0, 4)
    loss = cross_entropy(ours(**batch.inputs).flatten(0, -2), batch.targets.flatten())
    torch.testing.assert_close(loss, loss_of(reference, batch.inputs["tokens"], batch.targets), rtol=1e-12, atol=0)
