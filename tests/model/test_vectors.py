"""Vectors that embeddings begin with: what they learn, that a seed decides them, and what they leave of a table."""

from typing import Any

import numpy as np
import pytest
import torch
from empty_task import Blank
from model_variants import CONTEXT, VOCAB, built, configuration
from reference_config import component

from ablate.config.components import bind
from ablate.config.errors import BadComponent
from ablate.model.cost import count
from ablate.model.init import shared_draws
from ablate.model.vectors.elmo import ELMo, initial_model, mean_states, spaced
from ablate.model.vectors.word2vec import LONGEST, Word2Vec, sentences_of

W2V = {"objective": "skipgram", "window": 2, "negative": 5, "subsample": 0.0, "epochs": 20, "lr": 0.05}
LSTM = {"steps": 30, "rows": 8, "length": 16, "lr": 1e-2}
TRAINED = ("word2vec", "elmo")
each = pytest.mark.parametrize("name", TRAINED)


def twins() -> list[np.ndarray]:
    """A text in which ids 1 and 2 stand between 3 and 4, ids 5 and 6 between 7 and 8; 0 and 9 nowhere."""
    draw = np.random.default_rng(0)
    phrases = np.array([[3, 1, 4], [3, 2, 4], [7, 5, 8], [7, 6, 8]])
    return [phrases[draw.integers(0, 2, 200) + 2 * half].ravel().astype(np.uint8) for half in (0, 1)]


def trained(name: str, seed: int = 3, **settings: Any) -> np.ndarray:
    """Vectors of ten ids, of width 8, from a small text."""
    pytest.importorskip("gensim")
    made = Word2Vec if name == "word2vec" else ELMo
    given: dict[str, Any] = {"frozen": False, "shared": False} | (W2V if name == "word2vec" else LSTM) | settings
    return made(10, 8, None, **given).vectors(twins(), seed)


def cosine(vectors: np.ndarray, i: int, j: int) -> float:
    x, y = vectors[[i, j]].astype(float)
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


@pytest.mark.parametrize(
    ("name", "settings"), [("word2vec", {}), ("word2vec", {"objective": "cbow"}), ("elmo", {})], ids=str
)
def test_words_of_equal_contexts_have_near_vectors(name, settings):
    found = trained(name, **settings)
    assert found.shape == (10, 8) and found.dtype == np.float32
    assert np.isnan(found[[0, 9]]).all() and np.isfinite(found[1:9]).all()
    assert min(cosine(found, 1, 2), cosine(found, 5, 6)) > max(cosine(found, 1, 5), cosine(found, 2, 6))


def test_word2vec_reads_all_of_a_long_document_and_no_hash_of_this_process():
    pieces = sentences_of([np.arange(LONGEST + 3) % 5, np.array([4])], 5)
    assert [len(piece) for piece in pieces] == [LONGEST, 3, 1] and pieces[1] == ["0", "1", "2"]


def test_states_of_each_direction_read_one_side_alone():
    model = initial_model(10, 8, torch.Generator().manual_seed(0))
    ids = torch.arange(10)[None]
    changed = ids.clone()
    changed[0, 5] = 0
    with torch.no_grad():
        differ = (model.states(ids) != model.states(changed))[0]
    forth, back = differ[:, :4].any(1), differ[:, 4:].any(1)
    assert forth.tolist() == [False] * 5 + [True] * 5 and back.tolist() == [True] * 6 + [False] * 4


def test_a_row_is_the_mean_of_the_states_of_its_places():
    model = initial_model(6, 4, torch.Generator().manual_seed(1))
    text = torch.tensor([0, 1, 2, 1, 3, 3, 0, 1])
    found = mean_states(model, text, 4, 1, 2)
    with torch.no_grad():
        states = model.states(text.view(2, 4)).flatten(0, 1)
    for i in range(4):
        np.testing.assert_allclose(found[i], states[text == i].mean(0), rtol=1e-5)
    assert np.isnan(found[4:]).all()


@pytest.mark.parametrize(("size", "length", "most"), [(8, 4, 9), (9, 4, 9), (100, 4, 3), (4, 4, 2)])
def test_windows_cover_a_short_text_and_are_spread_over_a_long_one(size, length, most):
    starts = spaced(size, length, most).tolist()
    assert len(starts) == min(most, -(-size // length)) and starts[0] == 0
    assert size == length or starts[-1] == size - length or len(starts) == 1


@each
def test_a_table_takes_the_vectors_at_the_size_of_its_draws(name):
    table: Any = built({"embedding": name}).embed  # type: ignore[union-attr]
    before = table.weight.detach().clone()
    rows = np.random.default_rng(0).standard_normal(before.shape).astype(np.float32) * 7
    rows[2] = np.nan
    table.begin_with(rows)
    known = [i for i in range(VOCAB) if i != 2]
    ratio = table.weight.detach()[known] / torch.from_numpy(rows[known])
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))
    torch.testing.assert_close(table.weight[known].square().mean(), before.square().mean())
    assert torch.equal(table.weight[2], before[2])


@each
def test_no_draws_of_the_table_are_shared_with_a_learned_one(name):
    task = Blank(VOCAB, CONTEXT)
    learned, own = (count(configuration({"embedding": kind}), task) for kind in ("learned", name))
    assert own.params == learned.params and own.flops_per_token == learned.flops_per_token
    assert shared_draws(own.shapes, learned.shapes) == 1 > shared_draws(learned.shapes, own.shapes)
    shared = count(configuration({"embedding": name}).with_value("embedding.shared", True), task)
    assert any("all seeds" in note and "intervals do not cover its noise" in note for note in shared.notes)
    assert any("each seed" in note for note in own.notes)


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "word2vec": {"objective": "skip", "window": 0, "negative": 0, "subsample": -1.0, "epochs": 0, "lr": -1.0},
    "elmo": {"width": 5, "steps": 0, "rows": 0, "length": 1, "lr": -1.0},
}


@each
def test_settings_out_of_range_are_refused(name):
    for key, value in IMPOSSIBLE[name].items():
        with pytest.raises(BadComponent) as caught:
            bind("embedding", component("embedding", name) | {key: value}, {"vocab": 7, "dim": 4})()
        assert caught.value.key == ("embedding" if key == "width" else f"embedding.{key}")
