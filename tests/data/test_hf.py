"""`data=hf`: datasets saved on disk; no hub is asked for anything, and none that is asked can make anybody wait."""

import random
from pathlib import Path
from typing import Any

import pytest
from corpora import decoded

from ablate.data import rows as rows_module
from ablate.data.corpus import SPLITS
from ablate.data.documents import Document
from ablate.data.language import HuggingFace
from ablate.data.prepare import corpus_of
from ablate.data.rows import Rows


@pytest.fixture(scope="module", autouse=True)
def datasets() -> Any:
    """The library, loaded by the test that comes first and not where tests are collected."""
    return pytest.importorskip("datasets")


def rows(count: int, seed: int) -> list[str]:
    """Texts that share nothing, and one that is blank."""
    pick = random.Random(seed)
    return ["".join(pick.choices("abcd é\n", k=120)) for _ in range(count)] + [" "]


@pytest.fixture(scope="module")
def saved(datasets: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two splits, and one without a split of its own."""
    folder = tmp_path_factory.mktemp("saved")
    parts = {name: {"text": rows(150, seed), "label": [0] * 151} for seed, name in enumerate(("train", "more"))}
    made = {name: datasets.Dataset.from_dict(part) for name, part in parts.items()}
    datasets.DatasetDict(made).save_to_disk(str(folder / "several"))
    made["more"].save_to_disk(str(folder / "single"))
    return folder


def read_rows(*arguments: Any) -> list[Document]:
    """All documents of a column."""
    rows = Rows(*arguments)
    return [document for split, part in rows.parts() for document in rows.documents(split, part)]


def test_rows_are_documents(saved: Path) -> None:
    task = HuggingFace(str(saved / "several"), None, "train", "text", 16, "byte", None)
    texts = {f"train/{i}": text for i, text in enumerate(rows(150, 0)[:-1])}
    assert task.corpus.by_document and sorted(n for s in SPLITS for n in task.corpus.names[s]) == sorted(texts)
    begin = 0
    for name, end in zip(task.corpus.names["test"], task.corpus.ends["test"], strict=True):
        assert decoded(task.corpus, task.corpus.tokens["test"][begin:end]) == texts[name] + "\0"
        begin = end
    assert task.title == "byte LM on several" and task.kind == "lm"
    task = HuggingFace(str(saved / "several"), None, "train", "text", 16, "bpe", 300)
    assert task.title == "bpe LM on several" and task.vocab == task.outputs == 300 and task.token == "bpe"


def test_splits_are_apart(saved: Path) -> None:
    first, second = (read_rows(str(saved / "several"), None, split, "text") for split in ("train", "more"))
    assert [d.text.decode() for d in second] == rows(150, 1)[:-1] and not set(first) & set(second)
    assert [d.text for d in read_rows(str(saved / "single"), None, "train", "text")] == [d.text for d in second]


def refused(*arguments: Any) -> str:
    with pytest.raises(ValueError) as caught:
        corpus_of(Rows(*arguments), "byte", None)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("data") and len(message) < 600
    return message


def test_what_is_not_there_is_named(saved: Path, datasets: Any, tmp_path: Path) -> None:
    several = str(saved / "several")
    assert "data.split=mor" in refused(several, None, "mor", "text")
    assert "did you mean more?" in refused(several, None, "mor", "text")
    assert "did you mean text?" in refused(several, None, "train", "txt")
    assert "data.column=label" in refused(several, None, "train", "label")
    assert "data.config=x" in refused(several, "x", "train", "text")
    assert "data.split=test" in refused(str(saved / "single"), None, "test", "text")
    assert "does not exist" in refused(str(tmp_path / "nothing"), None, "train", "text")
    assert "save_to_disk" in refused(str(tmp_path), None, "train", "text")
    assert "data.name" in refused("", None, "train", "text")
    datasets.Dataset.from_dict({"text": ["", " "]}).save_to_disk(str(tmp_path / "blank"))
    assert "is empty" in refused(str(tmp_path / "blank"), None, "train", "text")


def test_without_a_hub_there_is_one_line_at_once(datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is only ever asked while it is kept from the network."""
    from huggingface_hub import constants

    asked = []

    def look(*_: Any) -> Any:
        asked.append((datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE))
        raise FileNotFoundError("nowhere\nat all")

    before = (datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE)
    monkeypatch.setattr(datasets, "load_dataset", look)
    monkeypatch.setattr(rows_module, "answers", lambda: False)
    message = refused("some/name", None, "train", "text")
    assert "data.name=some/name is not on this machine" in message and "nowhere" in message
    assert asked == [(True, True)] and before == (datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE)


def test_the_hub_is_asked_with_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants, utils

    class Session:
        def head(self, _: str, timeout: float) -> None:
            assert timeout <= 10
            raise TimeoutError

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(utils, "get_session", Session)
    assert not rows_module.answers()
    monkeypatch.setattr(Session, "head", lambda *_, timeout: None)
    assert rows_module.answers()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not rows_module.answers()


def test_a_hub_that_answers_is_asked_once(datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = datasets.Dataset.from_dict({"text": rows(3, 0)})
    calls: list[bool] = []

    def load(*_: Any) -> Any:
        calls.append(datasets.config.HF_HUB_OFFLINE)
        if len(calls) == 1:
            raise ConnectionError("offline")
        return datasets.DatasetDict({"train": made})

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(rows_module, "answers", lambda: True)
    assert len(read_rows("some/name", "small", "train", "text")) == 3 and calls[0] and len(calls) == 2
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: (_ for _ in ()).throw(ValueError("no such config")))
    assert "cannot be loaded" in refused("some/name", "huge", "train", "text")
