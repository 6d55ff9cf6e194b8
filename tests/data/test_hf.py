"""`data=hf`: datasets saved on disk; no hub is asked for anything."""

from pathlib import Path
from typing import Any

import pytest
from corpora import some_texts, texts_of

from ablate.data.corpus import SPLITS
from ablate.data.language import HuggingFace
from ablate.data.prepare import corpus_of
from ablate.data.rows import Rows


@pytest.fixture(scope="module", autouse=True)
def datasets() -> Any:
    """The library, loaded by the test that comes first and not where tests are collected."""
    return pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def saved(datasets: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two splits, one without a name, and a blank one."""
    folder = tmp_path_factory.mktemp("saved")
    parts = {}
    for seed, name in enumerate(("train", "more")):
        texts = [*some_texts(150, seed), " "]
        parts[name] = datasets.Dataset.from_dict({"text": texts, "label": [0] * len(texts)})
    datasets.DatasetDict(parts).save_to_disk(str(folder / "several"))
    parts["more"].save_to_disk(str(folder / "single"))
    datasets.Dataset.from_dict({"text": ["", " "]}).save_to_disk(str(folder / "blank"))
    (folder / "empty").mkdir()
    return folder


def read_rows(*arguments: Any) -> list[str]:
    """The texts of a column."""
    rows = Rows(*arguments)
    return [document.text.decode() for split, part in rows.parts() for document in rows.documents(split, part)]


def test_rows_are_documents(saved: Path) -> None:
    task = HuggingFace(str(saved / "several"), None, "train", "text", 16, "byte")
    documents = {name: text for split in SPLITS for name, text in texts_of(task.corpus, split).items()}
    assert documents == {f"train/{i}": text + "\0" for i, text in enumerate(some_texts(150, 0))}
    assert task.title == "byte LM on several"


def test_rows_are_of_the_split_that_is_named(saved: Path) -> None:
    assert read_rows(str(saved / "several"), None, "more", "text") == some_texts(150, 1)
    assert read_rows(str(saved / "single"), None, "train", "text") == some_texts(150, 1)


def refused(*arguments: Any) -> str:
    """The line that refuses a dataset."""
    with pytest.raises(ValueError) as caught:
        corpus_of(Rows(*arguments), "byte", None)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("data") and len(message) < 600
    return message


# Name, configuration, split and column of a dataset, and what the refusal says.
REFUSED = [
    ("several", None, "mor", "text", "data.split=mor is not in"),
    ("several", None, "mor", "text", "did you mean more?"),
    ("several", None, "train", "txt", "did you mean text?"),
    ("several", None, "train", "label", "data.column=label"),
    ("several", "x", "train", "text", "data.config=x"),
    ("single", None, "test", "text", "data.split=test"),
    ("nothing", None, "train", "text", "cannot be loaded"),
    ("empty", None, "train", "text", "write a folder of save_to_disk"),
    ("blank", None, "train", "text", "is empty"),
]


@pytest.mark.parametrize(("name", "config", "split", "column", "words"), REFUSED)
def test_what_is_not_there_is_named(
    saved: Path, name: str, config: str | None, split: str, column: str, words: str
) -> None:
    assert words in refused(str(saved / name), config, split, column)


def test_a_name_of_the_hub_is_asked_for_there(datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, config: str) -> Any:
        assert (name, config) == ("some/name", "small")
        return datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": some_texts(3)})})

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_rows("some/name", "small", "train", "text") == some_texts(3)
