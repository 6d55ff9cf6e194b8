"""Texts of 64 MB and more: equal in every format, held out by content, prepared once, also after a kill."""

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from corpora import decoded, refusal, some_texts, streams, write_rows

from ablate.cli.data import main
from ablate.config.errors import PlanError
from ablate.data import documents, prepare
from ablate.data.corpus import SPLITS, Corpus
from ablate.data.language import HuggingFace, LanguageModelling, Text
from ablate.data.split import place
from ablate.planning.plan import plan_study

datasets = pytest.importorskip("datasets")
PROCESS = prepare.prepare_in_process


@pytest.fixture(autouse=True)
def every_text_is_large(empty_cache, monkeypatch) -> None:
    """Everything counts as large, and is prepared in this process."""
    monkeypatch.setattr(prepare, "LARGE", 0)
    monkeypatch.setattr(prepare, "prepare_in_process", prepare.prepare)
    monkeypatch.setattr(prepare, "cores", lambda: 1)


@pytest.fixture
def rows(tmp_path) -> Path:
    """A folder with lines of JSON."""
    return write_rows(tmp_path / "rows", "jsonl", some_texts())


def documents_of(corpus: Corpus, split: str) -> list[str]:
    """The texts of a split."""
    return decoded(corpus, corpus.tokens[split][:]).split("\0")[:-1]


@pytest.mark.parametrize("kind", ["txt", "jsonl.gz", "parquet", "saved"])
def test_every_format_gives_the_batches_of_lines_of_json(kind, tmp_path, rows):
    first = Text(str(rows), 16, "byte")
    other = tmp_path / "other"
    if kind in ("parquet", "saved"):
        dataset = datasets.Dataset.from_dict({"text": some_texts()})
        other.mkdir()
        dataset.to_parquet(str(other / "a.parquet")) if kind == "parquet" else dataset.save_to_disk(str(other))
        task = HuggingFace(str(other), None, "train", "text", 16, "byte")
    else:
        task = Text(str(write_rows(other, kind, some_texts())), 16, "byte")
        assert task.fingerprint == first.fingerprint
    assert streams(task.corpus) == streams(first.corpus) and task.yardsticks == first.yardsticks
    assert task.batch(3, 7, 8).targets.equal(first.batch(3, 7, 8).targets)


def test_a_second_plan_of_a_dataset_loads_no_library(tmp_path, monkeypatch):
    datasets.Dataset.from_dict({"text": some_texts()}).save_to_disk(str(tmp_path / "saved"))
    words = (str(tmp_path / "saved"), None, "train", "text", 16, "byte")
    first = HuggingFace(*words)
    monkeypatch.setattr("ablate.data.rows.Rows.load", None)
    assert HuggingFace(*words).fingerprint == first.fingerprint


@pytest.mark.parametrize("tokenizer", ["byte", "char", "bpe"])
def test_documents_are_held_out_by_their_content_and_none_is_lost(rows, tokenizer):
    corpus = Text(str(rows), 16, tokenizer).corpus
    texts = {split: documents_of(corpus, split) for split in SPLITS}
    assert sorted(text for split in SPLITS for text in texts[split]) == sorted(some_texts())
    for split in SPLITS:
        assert {place(sha256(text.encode()).digest()) for text in texts[split]} == {split}
        assert len(corpus.ends[split]) == len(texts[split])


GIVEN = {"train": some_texts(50), "val": some_texts(9, 1), "test": [*some_texts(9, 2), some_texts(50)[0]]}  # a copy


def given_text(folder: Path) -> LanguageModelling:
    """A text with files for validation and test, which a pattern names as well."""
    files = {split: write_rows(folder / split, "jsonl", texts) for split, texts in GIVEN.items()}
    return Text(f"{folder}/*/*.jsonl", 16, "byte", validation=str(files["val"]), test=str(files["test"]))


def given_dataset(folder: Path) -> LanguageModelling:
    """A dataset with splits for validation and test."""
    parts = {f"my {split}": datasets.Dataset.from_dict({"text": texts}) for split, texts in GIVEN.items()}
    datasets.DatasetDict(parts).save_to_disk(str(folder / "saved"))
    saved = str(folder / "saved")
    return HuggingFace(saved, None, "my train", "text", 16, "byte", validation="my val", test="my test")


@pytest.mark.parametrize("task", [given_text, given_dataset])
@pytest.mark.parametrize("limit", [0, 10**9], ids=["large", "small"])
def test_splits_of_ones_own_are_used_as_they_are(tmp_path, monkeypatch, task, limit):
    monkeypatch.setattr(prepare, "LARGE", limit)
    given = task(tmp_path)
    assert {split: documents_of(given.corpus, split) for split in SPLITS} == GIVEN
    assert given.notes == [prepare.GIVEN]


HELD_OUT = {
    "write both, or neither": {"test": "rows"},
    "share a file": {"validation": "rows", "test": "rows"},
    "no file to train on": {"validation": "rows", "test": "more"},
}


@pytest.mark.parametrize("words", HELD_OUT)
def test_splits_of_ones_own_that_do_not_fit_are_refused(rows, words):
    write_rows(rows.parent / "more", "jsonl", some_texts(3))
    settings = {key: str(rows.parent / name) for key, name in HELD_OUT[words].items()}
    assert words in refused(rows, **settings)


def test_a_large_text_file_is_cut_into_documents_at_line_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "PART", 100)
    text = "".join(f"line {i}\n" for i in range(3000))
    (tmp_path / "long.txt").write_text(text)
    corpus = Text(str(tmp_path / "long.txt"), 16, "byte").corpus
    parts = [part for split in SPLITS for part in documents_of(corpus, split)]
    assert len("".join(parts)) == len(text) and all(part.endswith("\n") and len(part) < 120 for part in parts)
    for name, part in zip(corpus.names["test"], documents_of(corpus, "test"), strict=True):
        assert text[int(name.split(":")[1]) :].startswith(part)


def test_it_is_prepared_once_and_again_when_a_file_changes(rows, monkeypatch):
    first = Text(str(rows), 16, "byte").fingerprint
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "prepare_in_process", None)
        assert Text(str(rows), 16, "byte").fingerprint == first
    file = rows / "a.jsonl"
    text = file.read_text()
    file.write_text(text.replace("ant", "tan"))
    assert Text(str(rows), 16, "byte").fingerprint != first, "an edit of the same size"
    file.write_text(text)
    assert Text(str(rows), 16, "byte").fingerprint == first, "the same text at another time"


PREPARE = """
import sys
from ablate.data import prepare
prepare.LARGE = 0
from ablate.data.language import Text
print(Text(sys.argv[1], 16, "char").fingerprint)
"""


def test_a_killed_preparation_leaves_no_process_and_is_made_again(tmp_path, empty_cache):
    folder = write_rows(tmp_path / "many", "jsonl", some_texts(3_000))
    command = [sys.executable, "-c", PREPARE, str(folder)]
    process = subprocess.Popen(command)
    while not list(empty_cache.glob("*.making/datasets/*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while running(str(empty_cache)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(str(empty_cache))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "preparing the text, once" in done.stderr
    assert [path.suffix for path in empty_cache.glob("corpus-*") if path.is_dir()] == [""]
    assert done.stdout.strip() == Text(str(folder), 16, "char").fingerprint


def running(argument: str) -> list[str]:
    """The processes that prepare a corpus whose command line has an argument."""
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        if argument in command and "ablate.data.prepare" in command:
            commands.append(command)
    return commands


def refused(path: Path, **more: Any) -> str:
    return refusal(Text, str(path), 16, "byte", **more)


def test_an_error_of_the_process_is_a_line(rows, monkeypatch):
    monkeypatch.setattr(prepare, "prepare_in_process", PROCESS)
    with open(rows / "a.jsonl", "a") as file:
        file.write("no JSON\n")
    assert "is no line of JSON" in refused(rows)


def test_a_text_without_enough_documents_is_refused(tmp_path):
    assert "too few documents" in refused(write_rows(tmp_path / "rows", "jsonl", some_texts(2)))


@contextmanager
def room(size: int) -> Iterator[None]:
    """Files of at most `size` bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("limit", [0, 10**9], ids=["large", "small"])
def test_a_full_disk_is_a_line_and_the_text_is_prepared_later(rows, monkeypatch, limit):
    monkeypatch.setattr(prepare, "LARGE", limit)
    monkeypatch.setattr(prepare, "prepare_in_process", PROCESS)
    with room(6000):
        message = refused(rows)
    assert "cannot be written in" in message and "make room" in message
    assert Text(str(rows), 16, "byte").fingerprint


def test_a_refused_command_does_not_prepare(rows, empty_cache):
    words = ["data=text", f"data.path={rows}", "scale=tiny", "data.context=16", "norm=ln,rms"]
    with pytest.raises(PlanError):
        plan_study([*words, "ffn.hiden=8"])
    assert not list(empty_cache.glob("corpus-*"))
    plan_study([*words, "train.steps=4", "optim.warmup=1"])
    assert list(empty_cache.glob("corpus-*/index.json"))


def test_the_command_prepares(rows, empty_cache, capsys):
    words = ["prepare", "data=text", f"data.path={rows}", "scale=tiny", "data.context=16"]
    assert main(words) == 0 and "byte LM on rows: " in capsys.readouterr().out
    (ids,) = empty_cache.glob("corpus-*/train.bin")
    whole = ids.read_bytes()
    ids.write_bytes(b"")
    assert main(words) == 0 and ids.read_bytes() == whole, "a file that was cut is made again"


@pytest.mark.parametrize(
    ("words", "message"),
    [(["data=copy"], "has no text to prepare"), (["data=text", "data.path=nowhere"], "does not exist")],
)
def test_what_cannot_be_prepared_is_a_line(words, message, capsys):
    assert main(["prepare", *words]) == 2 and message in capsys.readouterr().err
