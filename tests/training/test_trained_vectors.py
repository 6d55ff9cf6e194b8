"""Vectors that a run begins with: by seed, stream and text alone, kept by content, and part of the initial draws."""

import fcntl
import threading
from typing import Any

import numpy as np
import pytest
import torch
from composed import check_study
from conftest import latest

from ablate.config.errors import PlanError
from ablate.config.schema import Config
from ablate.data.task import build_task
from ablate.model.build import initialised_model
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run
from ablate.training import vectors
from ablate.training.trainer import Interrupted, Trainer
from ablate.training.vectors import begin_with_vectors, load_vectors, train_or_load, vectors_file, without_vectors

CHEAP = {"word2vec": ["embedding.epochs=1"], "elmo": ["embedding.steps=2", "embedding.rows=2"]}
each = pytest.mark.parametrize("name", CHEAP)
pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    pytest.importorskip("gensim")
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))


def configured(small: list[str], name: str, *more: str) -> Config:
    """The resolved configuration of a cell with trained vectors."""
    given = [*small, f"embedding={name}", *CHEAP.get(name, []), *more]
    found: Config = check_study(latest(*given), None).rows[0].config
    return found


def begun(config: Config, seed: int = 0) -> dict[str, torch.Tensor]:
    """The parameters that a run begins with."""
    task = build_task(config)
    model = initialised_model(config, task, seed)
    begin_with_vectors(model, config, task, seed)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def table_of(config: Config) -> Any:
    return initialised_model(config, build_task(config), 0).embed


@each
def test_a_seed_decides_the_table_and_nothing_else_moves(small, name):
    config = configured(small, name)
    plain = begun(without_vectors(config))
    first = begun(config)
    other = begun(config, 1)
    assert {key for key in plain if not torch.equal(plain[key], first[key])} == {"embed.weight"}
    assert not torch.equal(first["embed.weight"], other["embed.weight"])
    vectors.cache_folder().rename(vectors.cache_folder().with_name("elsewhere"))
    assert torch.equal(begun(config)["embed.weight"], first["embed.weight"]), "trained again, it is the same"


def test_vectors_are_of_the_initial_draws(small):
    config = configured(small, "word2vec")
    shared = config.with_value("embedding.shared", True)
    text = np.concatenate(build_task(config).training_text())
    ids = torch.from_numpy(np.unique(text)).long()  # those that have vectors
    ratio = begun(shared, 0)["embed.weight"][ids] / begun(shared, 1)["embed.weight"][ids]
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))  # one set for all seeds
    fixed = config.with_value("seed.init", 0)
    table = table_of(config)
    assert vectors_file(table, config, "text", 0) == vectors_file(table, fixed, "text", vectors.initial_seed(fixed, 5))


def test_vectors_see_the_training_split_alone(small):
    task = build_task(configured(small, "word2vec"))
    text = task.training_text()
    assert sum(map(len, text)) == task.train_tokens
    assert np.array_equal(np.concatenate(text), task.corpus.tokens["train"])


@each
def test_a_frozen_table_stays_and_what_is_killed_goes_on_as_it_was(small, tmp_path, name):
    frozen = ("embedding.frozen=true", "model.tie_embeddings=false")
    config = configured(small, name, "train.steps=3", "train.checkpoint_seconds=0", *frozen)
    whole = Trainer(Run(tmp_path, "a/whole"), config, 0)
    final = whole.train(lambda: False)
    assert torch.equal(whole.model.embed.weight, begun(config)["embed.weight"])
    run = Run(tmp_path, "a/cut")
    stops = iter([False, False, True])
    with pytest.raises(Interrupted):
        Trainer(run, config, 0).train(lambda: next(stops))
    vectors.cache_folder().rename(vectors.cache_folder().with_name("elsewhere"))
    again = Trainer(run, config, 0)
    assert again.progress.step and again.train(lambda: False) == final
    pairs = zip(whole.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_a_damaged_set_is_made_anew_and_two_at_once_make_one(tmp_path):
    file = tmp_path / "vectors" / "a.npz"
    file.parent.mkdir()
    trained: list[int] = []
    loaded: list[Any] = []

    class Sevens:
        def vectors(self, text, seed):
            trained.append(seed)
            return np.full((3, 2), seed, np.float32)

    def load():
        loaded.append(train_or_load(file, Sevens(), [], 7))

    with open(file.with_suffix(".lock"), "a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert trained == []
    for thread in threads:
        thread.join()
    assert trained == [7]
    content = file.read_bytes()
    file.write_bytes(content[:-200])
    assert load_vectors(file) is None
    load()
    assert trained == [7, 7] and load_vectors(file) is not None
    assert all((vectors.rows == 7).all() for vectors in loaded)
    assert not list(file.parent.glob("*.tmp"))


def test_a_set_is_known_by_text_settings_seed_code_and_library(small, monkeypatch):
    config = configured(small, "word2vec")
    whole = build_task(config).training_text()
    table = table_of(config)
    text = vectors.digest_of(whole)
    files = [
        vectors_file(table, config, text, 0),
        vectors_file(table, config, text, 1),
        vectors_file(table, config, vectors.digest_of(whole[:1] * 2), 0),
        vectors_file(table, config.with_value("embedding.window", 3), text, 0),
        vectors_file(table_of(config.with_value("embedding.width", 6)), config, text, 0),
    ]
    assert vectors_file(table, config.with_value("embedding.frozen", True), text, 0) == files[0]
    monkeypatch.setattr(vectors, "code_of_part", lambda *_: "edited")
    files.append(vectors_file(table, config, text, 0))
    monkeypatch.setattr(vectors, "library_versions", lambda _: {"gensim": "0"})
    files.append(vectors_file(table, config, text, 0))
    assert len(set(files)) == len(files)


@pytest.mark.parametrize(("name", "data"), [("word2vec", "copy"), ("elmo", "mqar")])
def test_an_embedding_without_words_is_refused(name, data):
    with pytest.raises(PlanError) as caught:
        plan_study([f"embedding={name}", f"data={data}", "model=decoder", "dry_run=true"])
    [problem] = caught.value.problems
    assert problem.key == "embedding" and "words" in str(problem) and "\n" not in str(problem)
