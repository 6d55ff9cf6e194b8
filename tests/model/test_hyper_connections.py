"""Hyper-connections: where they start, what they cost, and what they refuse; their formula is in test_residual.py."""

from typing import Any

import pytest
import torch
from empty_task import Blank, some_shape
from model_variants import CONTEXT, VOCAB, built, configuration, some_inputs
from residuals import DIM, sublayers
from tensors import some

from ablate.config.errors import BadComponent
from ablate.config.schema import Config
from ablate.model.build import build_model, initialised_model
from ablate.model.cost import count
from ablate.model.position import Places
from ablate.model.residual import HyperConnections

WEIGHTS = ("static", "dynamic")
KINDS = {"decoder": "lm", "encoder": "mlm", "encoder_decoder": "seq2seq"}


def chosen(weights: str, streams: int = 4, form: str = "decoder", norm: str = "ln", **model: Any) -> Config:
    """A configuration of hyper-connections."""
    config = configuration({"residual": "hyper_connections", "model": form, "norm": norm}, **model)
    return config.with_value("residual", config.residual | {"weights": weights, "streams": streams})


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("form", "norm", "streams"), [*zip(KINDS, ("ln", "none", "bn"), (4, 3, 1), strict=True)])
def test_they_start_as_pre_norm(weights, form, norm, streams):
    """With the same draws, in training, whatever the norm makes of scales."""
    task = Blank(VOCAB, CONTEXT, KINDS[form])
    pre = configuration({"model": form, "norm": norm})
    models = [initialised_model(each, task, 0).double() for each in (pre, chosen(weights, streams, form, norm))]
    plain, hyper = (model(**some_inputs((form, KINDS[form]))) for model in models)
    torch.testing.assert_close(hyper, plain, rtol=1e-12, atol=1e-13)


def test_each_sublayer_of_the_stack_reads_the_next_stream():
    model: Any = built({"residual": "hyper_connections"}, layers=3)
    read = [own.static.view(4, 6)[:, 1].argmax().item() for block in model.blocks for own in block.connections]
    assert read == [0, 1, 2, 3, 0, 1]
    assert all(p.ndim == 1 for name, p in model.named_parameters() if name.endswith(".static")), "they would decay"


@pytest.mark.parametrize("weights", WEIGHTS)
def test_parameters_and_flops_are_counted(weights):
    """n (n + 2) numbers for each sublayer, and (n + 2) C + 2 for what positions add; products of n streams by each."""
    n, dim, of = 3, 16, 4  # streams, features, sublayers
    pre, hyper = (count(each, Blank(VOCAB, CONTEXT)) for each in (configuration(), chosen(weights, n)))
    dynamic = weights == "dynamic"
    assert hyper.params - pre.params == of * (n * (n + 2) + dynamic * ((n + 2) * dim + 2))
    expected = of * (2 * n * (n + 1) * dim + dynamic * 2 * n * (n + 2) * dim)
    assert hyper.flops_per_token - pre.flops_per_token == expected


def test_streams_are_not_rounded_in_bf16():
    made, x = HyperConnections(some_shape(DIM), sublayers(), 0, 4, "dynamic"), some(2, 4, DIM).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stream = made(made.enter(x), Places(), True)
        added = made.attention(made.norms[0](x), Places(), True)
    assert stream.x.dtype == torch.float32
    torch.testing.assert_close(made.leave(stream), x + added, rtol=1e-6, atol=1e-6)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="streams must be ≥ 1"):
        HyperConnections(some_shape(DIM), sublayers(), 0, 0, "static")
    hyper = chosen("static").residual
    config = configuration().with_value("residual", {"_layers_": ["h", "p"], "h": hyper, "p": configuration().residual})
    with pytest.raises(BadComponent, match="HyperConnections has 4 and PreNorm has 1"):
        build_model(config, Blank(VOCAB, CONTEXT))
