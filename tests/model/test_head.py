"""Embedding and head: bias, soft cap, factorised embeddings, one embedding or two."""

from __future__ import annotations

import pytest
import torch
from test_variants import FORMS, VOCAB, built, jitter, loss_of, some_inputs

forms = pytest.mark.parametrize("form", FORMS, ids="-".join)
NARROW = 6
SEQ2SEQ = ("encoder_decoder", "seq2seq")


def names(model: torch.nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}


@forms
def test_a_soft_cap_bends_logits(form: tuple[str, str]) -> None:
    inputs, plain, capped = (
        some_inputs(form),
        jitter(built(form=form), 0.5),
        jitter(built(form=form, soft_cap=2.0), 0.5),
    )
    torch.testing.assert_close(capped(**inputs), 2 * torch.tanh(plain(**inputs) / 2))


@forms
def test_a_bias_of_the_head_is_added_to_logits(form: tuple[str, str]) -> None:
    if form[0] == "bert":
        with pytest.raises(ValueError, match=r"model\.head_bias"):
            built(form=form, head_bias=True)
        return
    plain, biased = built(form=form), built(form=form, head_bias=True)
    assert names(biased) - names(plain) == {"head.bias"} and not biased.head.bias.any()
    shift = torch.arange(float(len(biased.head.bias)))
    biased.head.bias.data.copy_(shift)
    torch.testing.assert_close(biased(**some_inputs(form)), plain(**some_inputs(form)) + shift)


@forms
def test_factorised_embeddings_have_positions_and_norm_of_their_own_width(form: tuple[str, str]) -> None:
    kind = {"position": "learned"}
    model = built(kind, form=form, embedding_dim=NARROW, norm_embeddings=True)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["embed.weight"] == (VOCAB, NARROW)
    assert {shape[-1] for name, shape in shapes.items() if "position.table" in name or "embed_norm" in name} == {NARROW}
    assert {shape for name, shape in shapes.items() if name.endswith("widen.weight")} == {(16, NARROW)}
    loss_of(model, some_inputs(form)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_tied_factorised_head_is_the_embedding_after_one_matrix() -> None:
    model = jitter(built(embedding_dim=NARROW), 0.1)
    tokens = some_inputs(("decoder", "lm"))["tokens"]
    x = model.run(model.embed(tokens), True, None)
    narrow = x @ model.head[0].weight.T + model.head[0].bias
    torch.testing.assert_close(model(tokens), narrow @ model.embed.weight.T)


def test_source_and_target_have_embeddings_of_their_own() -> None:
    model = built(form=SEQ2SEQ, share_embeddings=False)
    assert names(model) - names(built(form=SEQ2SEQ)) == {"source_embed.weight"}
    inputs = some_inputs(SEQ2SEQ)
    model.embed.weight.data.zero_()
    assert model.encode(inputs["source"]).any() and not torch.equal(model.embed.weight, model.source_embed.weight)
