"""Embeddings: what each variant is, in every model form, against products of its own; what cannot be the head, too."""

from typing import Any

import pytest
import torch
from empty_task import Blank
from model_variants import (
    CONTEXT,
    FORMS,
    SETTINGS,
    VOCAB,
    built,
    configuration,
    jitter,
    loss_of,
    some_inputs,
    without_formula,
)
from torch import Tensor, nn

from ablate.config.errors import BadComponent
from ablate.model.build import build_model
from ablate.model.cost import count
from ablate.model.embedding import Embedding
from ablate.training.optim import lion, muon

forms = pytest.mark.parametrize("form", FORMS, ids="-".join)
WIDTH = SETTINGS["factorised"]["width"]
LM, SEQ2SEQ = ("decoder", "lm"), ("encoder_decoder", "seq2seq")
KNOWN = ("learned", "random", "factorised", "word2vec", "elmo")


def names(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}


def of_form(name: str, form: tuple[str, str], seed: int = 0) -> Any:
    """The model of a variant in a form, with a head of its own."""
    return built({"embedding": name}, seed, form, tie_embeddings=False)


def test_every_variant_is_tested_here():
    message = without_formula("embedding", KNOWN, "write one for {name} here, and its name into KNOWN")
    assert not message, message


@forms
def test_a_frozen_table_has_the_draws_of_a_learned_one_and_is_no_head(form):
    learned, random, other = of_form("learned", form), of_form("random", form), of_form("random", form, 1)
    assert all(torch.equal(x, y) for x, y in zip(learned.parameters(), random.parameters(), strict=True))
    assert names(learned) == names(random) and not torch.equal(random.embed.weight, other.embed.weight)
    if form[1] != "classification":
        with pytest.raises(BadComponent, match=r"frozen.*model\.tie_embeddings=false") as caught:
            built({"embedding": "random"}, form=form, tie_embeddings=True)
        assert caught.value.key == "embedding"


@pytest.mark.parametrize("optimiser", [lion, muon])
def test_no_decay_moves_a_frozen_table(optimiser):
    model = of_form("random", LM)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    steps = optimiser(model, 1e-2, [0.9, 0.95], 0.5)
    loss_of(model, some_inputs(LM)).backward()
    steps.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert "embed.weight" not in moved and {"head.weight", "blocks.0.ffn.up.weight"} <= moved


class Hashed(nn.Module):
    """An embedding of one's own: no row for each id."""

    def __init__(self, vocab: int, dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(vocab // 2 + 1, dim))

    def forward(self, ids: Tensor) -> Tensor:
        return self.table[ids // 2]


def test_an_embedding_of_ones_own_is_the_head_only_where_it_has_a_matrix():
    task, own = Blank(VOCAB, CONTEXT), {"_target_": f"{__name__}.Hashed", "_partial_": True}
    config = configuration(tie_embeddings=False)
    config = type(config)(**{**vars(config), "embedding": own, "user": [__name__]})
    assert build_model(config, task).embed.table.shape == (VOCAB // 2 + 1, 16)
    with pytest.raises(BadComponent, match=r"Hashed has no matrix of 13 × 16 .*tie_embeddings=false"):
        build_model(config.with_value("model.tie_embeddings", True), task)


def test_numbers_have_no_table():
    task = Blank(VOCAB, CONTEXT, "classification", 5)
    task.features = 3
    assert not isinstance(build_model(configuration({"model": "encoder"}), task).embed, Embedding)
    for name in ("random", "factorised"):
        with pytest.raises(BadComponent, match="are not ids") as caught:
            build_model(configuration({"model": "encoder", "embedding": name}, tie_embeddings=False), task)
        assert caught.value.key == "embedding"


def test_a_width_is_at_least_one():
    config = configuration().with_value("embedding.width", 0)
    with pytest.raises(ValueError, match=r"embedding\.width"):
        build_model(config, Blank(VOCAB, CONTEXT))


def test_no_table_is_part_of_what_budgets_match_and_a_frozen_one_is_said():
    counts = {
        name: count(configuration({"embedding": name}, tie_embeddings=False), Blank(VOCAB, CONTEXT)) for name in KNOWN
    }
    learned, random, factorised = (counts[name] for name in KNOWN[:3])
    assert {name for name, found in counts.items() if found.core == learned.core} == {*KNOWN} - {"factorised"}
    assert learned.core < factorised.core and random.params == learned.params and not learned.notes
    assert [note for note in random.notes if f"{random.params:,}" in note and f"{random.params - 13 * 16:,}" in note]


@forms
def test_factorised_embeddings_have_positions_and_norm_of_their_own_width(form):
    kind = {"position": "learned", "embedding": "factorised"}
    model = built(kind, form=form, norm_embeddings=True)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["embed.weight"] == (VOCAB, WIDTH)
    assert {shape[-1] for name, shape in shapes.items() if "position.table" in name or "embed_norm" in name} == {WIDTH}
    assert {shape for name, shape in shapes.items() if name.endswith("widen.weight")} == {(16, WIDTH)}
    loss_of(model, some_inputs(form)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_tied_factorised_head_is_the_embedding_after_one_matrix():
    model = jitter(built({"embedding": "factorised"}), 0.1)
    tokens = some_inputs(LM)["tokens"]
    x = model.run(model.embed(tokens), True, None)
    narrow = x @ model.head[0].weight.T + model.head[0].bias
    torch.testing.assert_close(model(tokens), narrow @ model.embed.weight.T)


def test_source_and_target_have_embeddings_of_their_own():
    model = built(form=SEQ2SEQ, share_embeddings=False)
    assert names(model) - names(built(form=SEQ2SEQ)) == {"source_embed.weight"}
    inputs = some_inputs(SEQ2SEQ)
    model.embed.weight.data.zero_()
    assert model.encode(inputs["source"]).any() and not torch.equal(model.embed.weight, model.source_embed.weight)
