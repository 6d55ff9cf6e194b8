"""Vectors that a run begins with: by seed, stream and text alone, kept by content, and part of the initial draws."""

import fcntl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import latest

from ablate.config.errors import PlanError
from ablate.config.schema import Config
from ablate.data.corpus import cache_folder
from ablate.data.task import build_task
from ablate.model.build import initialised_model
from ablate.planning.measured import expected_time
from ablate.planning.plan import check_study, plan_study
from ablate.runs.folder import Run
from ablate.training import vectors
from ablate.training.trainer import Interrupted, Trainer
from ablate.training.vectors import begin_with_vectors, load_vectors, train_or_load, vectors_file, without_vectors

CHEAP = {"word2vec": ["embedding.epochs=1"], "elmo": ["embedding.steps=2", "embedding.rows=2"]}
each = pytest.mark.parametrize("name", CHEAP)
pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))


def configured(small: list[str], name: str, *more: str) -> Config:
    """The resolved configuration of a cell with trained vectors."""
    given = [*small, f"embedding={name}", *CHEAP.get(name, []), *more]
    found: Config = check_study(latest(*given), None).cells.rows[0].config
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
def test_a_seed_decides_the_table_and_nothing_else_moves(small: list[str], name: str) -> None:
    config = configured(small, name)
    plain, first, other = begun(without_vectors(config)), begun(config), begun(config, 1)
    assert {key for key in plain if not torch.equal(plain[key], first[key])} == {"embed.weight"}
    assert not torch.equal(first["embed.weight"], other["embed.weight"])
    vectors.cache_folder().rename(vectors.cache_folder().with_name("elsewhere"))
    assert torch.equal(begun(config)["embed.weight"], first["embed.weight"]), "trained again, it is the same"


def test_vectors_are_of_the_initial_draws(small: list[str]) -> None:
    config = configured(small, "word2vec")
    shared = config.with_value("embedding.shared", True)
    one, other = (begun(shared, seed)["embed.weight"] for seed in (0, 1))
    at = known_rows(config)
    torch.testing.assert_close(one[at] / other[at], (one[at] / other[at])[0, 0].expand_as(one[at]))  # one set for all
    fixed = config.with_value("seed.init", 0)
    table = table_of(config)
    assert vectors_file(table, config, "text", 0) == vectors_file(table, fixed, "text", vectors.initial_seed(fixed, 5))


def known_rows(config: Config) -> torch.Tensor:
    """The ids that have vectors."""
    return torch.from_numpy(np.unique(np.concatenate(build_task(config).training_text()))).long()


def test_vectors_see_the_training_split_alone(small: list[str]) -> None:
    task = build_task(configured(small, "word2vec"))
    text = task.training_text()
    assert sum(map(len, text)) == task.train_tokens
    assert np.array_equal(np.concatenate(text), task.corpus.tokens["train"])


@each
def test_a_frozen_table_stays_and_what_is_killed_goes_on_as_it_was(small: list[str], tmp_path: Path, name: str) -> None:
    frozen = ("embedding.frozen=true", "model.tie_embeddings=false")
    config = configured(small, name, "train.steps=3", "train.checkpoint_seconds=0", *frozen)
    whole = Trainer(Run(tmp_path, "a/whole"), config, 0)
    final = whole.train(lambda: False)
    assert torch.equal(whole.model.embed.weight, begun(config)["embed.weight"])
    run, stops = Run(tmp_path, "a/cut"), iter([False, False, True])
    with pytest.raises(Interrupted):
        Trainer(run, config, 0).train(lambda: next(stops))
    vectors.cache_folder().rename(vectors.cache_folder().with_name("elsewhere"))
    again = Trainer(run, config, 0)
    assert again.progress.step and again.train(lambda: False) == final
    pairs = zip(whole.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


class Counted:
    """Vectors that count how often they are trained."""

    trained = 0

    def vectors(self, text: Sequence[np.ndarray], seed: int) -> np.ndarray:
        Counted.trained += 1
        return np.full((3, 2), seed, np.float32)


def test_a_damaged_set_is_made_anew_and_two_at_once_make_one(tmp_path: Path) -> None:
    file, found, Counted.trained = tmp_path / "vectors" / "a.npz", list[Any](), 0
    file.parent.mkdir()
    with open(file.with_suffix(".lock"), "a+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        both = [threading.Thread(target=lambda: found.append(train_or_load(file, Counted(), [], 7))) for _ in range(2)]
        for one in both:
            one.start()
        assert Counted.trained == 0
    for one in both:
        one.join()
    assert Counted.trained == 1 and all((one.rows == 7).all() for one in found)
    content = file.read_bytes()
    for position in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[position] ^= 4
        file.write_bytes(flipped)
        loaded = load_vectors(file)
        assert loaded is None or (loaded.rows == 7).all(), position
    file.write_bytes(content[:-200])
    assert load_vectors(file) is None
    assert (
        (train_or_load(file, Counted(), [], 7).rows == 7).all()
        and Counted.trained == 2
        and load_vectors(file) is not None
    )
    assert not list(file.parent.glob("*.tmp"))


def test_a_set_is_known_by_text_settings_seed_code_and_library(small, monkeypatch) -> None:
    config = configured(small, "word2vec")
    whole, table = build_task(config).training_text(), table_of(config)
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
def test_an_embedding_without_words_is_refused(name: str, data: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_study([f"embedding={name}", f"data={data}", "model=decoder", "dry_run=true"])
    [problem] = caught.value.problems
    assert problem.key == "embedding" and "words" in str(problem) and "\n" not in str(problem)


def test_the_time_of_a_plan_names_vectors_that_are_trained_before(small: list[str]) -> None:
    line = expected_time(plan_study([*small, "embedding=learned,word2vec,elmo", "seeds=2", "dry_run=true"]))
    assert "without training the vectors of ELMo and Word2Vec" in line
    assert not (cache_folder() / "vectors").exists()
    assert "vectors" not in expected_time(plan_study([*small, "norm=ln,rms", "dry_run=true"]))
