"""`data=hf`: datasets saved on disk; no hub is asked for anything."""

from pathlib import Path
from typing import Any

import pytest
from corpora import refusal, some_texts

from ablate.data.prepare import corpus_of
from ablate.data.rows import Rows


@pytest.fixture(scope="module", autouse=True)
def datasets() -> Any:
    """The library, loaded by the test that comes first and not where tests are collected."""
    return pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def saved(datasets, tmp_path_factory) -> Path:
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


def test_rows_are_of_the_split_that_is_named(saved):
    """And blank ones are no documents."""
    for name, split in (("several", "more"), ("single", "train")):
        assert read_rows(str(saved / name), None, split, "text") == some_texts(150, 1)


# Name, configuration, split and column of a dataset, and what the refusal says.
REFUSED = [
    ("several", None, "mor", "text", "has no split mor"),
    ("several", None, "train", "txt", "did you mean text?"),
    ("several", None, "train", "label", "data.column=label"),
    ("single", None, "test", "text", "has no split test"),
    ("nothing", None, "train", "text", "cannot be loaded"),
    ("empty", None, "train", "text", "name a folder of save_to_disk"),
    ("blank", None, "train", "text", "is empty"),
]


@pytest.mark.parametrize(("name", "config", "split", "column", "words"), REFUSED)
def test_what_is_not_there_is_named(saved, name, config, split, column, words):
    message = refusal(corpus_of, Rows(str(saved / name), config, split, column), "byte", None)
    assert words in message and message.startswith("data")


def test_a_name_of_the_hub_is_asked_for_there(datasets, monkeypatch):
    def load(name, config):
        assert (name, config) == ("some/name", "small")
        return datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": some_texts(3)})})

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_rows("some/name", "small", "train", "text") == some_texts(3)
