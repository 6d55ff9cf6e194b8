"""Texts of 64 MB and more: equal in every format, held out by content, prepared once, also after a kill."""

import json
import os
import random
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

import numpy as np
import pytest
from corpora import decoded, write_rows

from ablate.cli.data import main
from ablate.config import extra
from ablate.config.errors import PlanError
from ablate.data import documents, prepare
from ablate.data.corpus import SPLITS, Corpus
from ablate.data.documents import Files
from ablate.data.language import HuggingFace, Text
from ablate.data.split import place
from ablate.planning.plan import plan_study

pytest.importorskip("datasets")
WORDS = ["ant", "bee", "crow", "dingo", "élan", "fox", "gnu", "hare", "ibis", "jay", "kite", "lynx"]


def texts(count: int = 300, seed: int = 0) -> list[str]:
    """Documents that share nothing."""
    pick = random.Random(seed)
    return [" ".join(f"{pick.choice(WORDS)}{pick.randrange(900)}" for _ in range(60)) for _ in range(count)]


@pytest.fixture(autouse=True)
def every_text_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache; everything counts as large, and is prepared in this process."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepare, "LARGE", 0)
    monkeypatch.setattr(prepare, "prepare_in_process", prepare.prepare)
    monkeypatch.setattr(prepare, "cores", lambda: 1)


def streams(corpus: Corpus) -> dict[str, list[int]]:
    """The ids of each split."""
    return {split: corpus.tokens[split][:].tolist() for split in SPLITS}


def documents_of(corpus: Corpus, split: str) -> list[str]:
    """The texts of a split."""
    return decoded(corpus, corpus.tokens[split][:]).split("\0")[:-1]


@pytest.mark.parametrize("kind", ["txt", "jsonl.gz", "parquet"])
def test_every_format_gives_the_batches_of_lines_of_json(tmp_path: Path, kind: str) -> None:
    first = Text(str(write_rows(tmp_path / "lines", "jsonl", texts())), 16, "byte")
    other = Text(str(write_rows(tmp_path / "other", kind, texts())), 16, "byte")
    assert streams(other.corpus) == streams(first.corpus)
    assert other.batch(3, 7, 8).targets.equal(first.batch(3, 7, 8).targets)
    assert other.yardsticks == first.yardsticks


@pytest.mark.parametrize("tokenizer", ["byte", "char", "word", "bpe"])
def test_documents_are_held_out_by_their_content_and_none_is_lost(tmp_path: Path, tokenizer: str) -> None:
    corpus = Text(str(write_rows(tmp_path / "rows", "jsonl", texts())), 16, tokenizer).corpus
    found = {split: documents_of(corpus, split) for split in SPLITS}
    if tokenizer == "word":  # does not encode spaces
        assert sum(map(len, found.values())) == 300
        return
    assert sorted(text for split in SPLITS for text in found[split]) == sorted(texts())
    for split in SPLITS:
        assert {place(sha256(text.encode()).digest()) for text in found[split]} == {split}
    lengths = np.diff([0, *corpus.ends["train"].tolist()])
    assert len(lengths) == len(found["train"]) and len(corpus.names["test"]) == len(found["test"])
    line = (tmp_path / "rows" / "a.jsonl").read_bytes()[int(corpus.names["test"][0].split(":")[1]) :].split(b"\n")[0]
    assert json.loads(line)["text"] == found["test"][0], "a document is named by its place in the file"


def test_given_splits_are_used_as_they_are_in_large_and_small_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"train": texts(50), "val": texts(9, 1), "test": [*texts(9, 2), texts(50)[0]]}  # with a copy
    paths = {split: str(write_rows(tmp_path / split, "jsonl", rows)) for split, rows in given.items()}
    for limit in (0, 10**9):
        monkeypatch.setattr(prepare, "LARGE", limit)
        task = Text(paths["train"], 16, "byte", validation=paths["val"], test=paths["test"])
        for split in SPLITS:
            assert documents_of(task.corpus, split) == given[split]
        assert task.notes == [prepare.GIVEN]
    with pytest.raises(ValueError, match="write both, or neither"):
        Text(paths["train"], 16, "byte", test=paths["test"])
    with pytest.raises(ValueError, match="no file to train on"):
        Text(paths["val"], 16, "byte", validation=paths["val"], test=paths["test"])
    whole = Text(f"{tmp_path}/*/*.jsonl", 16, "byte", validation=paths["val"], test=paths["test"])
    assert documents_of(whole.corpus, "train") == given["train"], "a held-out file is not trained on"


def test_given_splits_of_a_dataset_are_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    given = {"train": texts(50), "validation": texts(9, 1), "test": texts(9, 2)}
    parts = {split: datasets.Dataset.from_dict({"text": rows}) for split, rows in given.items()}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    for limit in (0, 10**9):
        monkeypatch.setattr(prepare, "LARGE", limit)
        task = HuggingFace(
            str(tmp_path / "saved"), None, "train", "text", 16, "byte", validation="validation", test="test"
        )
        assert [documents_of(task.corpus, split) for split in SPLITS] == list(given.values())


def test_rows_of_a_dataset_are_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    datasets.Dataset.from_dict({"text": texts()}).save_to_disk(str(tmp_path / "saved"), num_shards=3)
    task = HuggingFace(str(tmp_path / "saved"), None, "train", "text", 16, "byte")
    lines = Text(str(write_rows(tmp_path / "rows", "jsonl", texts())), 16, "byte")
    assert streams(task.corpus) == streams(lines.corpus)
    monkeypatch.setattr("ablate.data.rows.from_disk", None)  # a second plan loads no library
    again = HuggingFace(str(tmp_path / "saved"), None, "train", "text", 16, "byte")
    assert again.fingerprint == task.fingerprint


@pytest.mark.parametrize("text", ["one line é of a text\n" * 500, "é" * 4000, f"{'a' * 1300}\n" * 9])
def test_a_text_file_is_cut_at_line_ends_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(documents, "PART", 500)
    file = tmp_path / "a.txt"
    file.write_text(text)
    parts = [document.text.decode() for document in Files(str(file)).documents("train", file, cut=True)]
    assert "".join(parts) == text and len(parts) > 3
    assert all(part.endswith("\n") or len(part) >= 500 for part in parts[:-1])


def test_ids_are_the_same_however_they_lie_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_rows(tmp_path / "rows", "jsonl", texts())
    expected = Text(str(folder), 16, "char")
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    monkeypatch.setattr(prepare, "SHARD", 30_000)
    monkeypatch.setattr(prepare, "cores", lambda: 2)
    task = Text(str(folder), 16, "char")
    assert task.corpus.folder and len(list(task.corpus.folder.glob("train-*.npy"))) > 2
    assert streams(task.corpus) == streams(expected.corpus)
    assert task.batch(0, 1, 4).targets.equal(expected.batch(0, 1, 4).targets)


def test_a_prepared_text_is_read_from_its_index_until_its_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_rows(tmp_path / "rows", "txt", texts(150))
    first = Text(str(folder), 16, "byte")
    assert first.notes == ["near-copies of held-out documents are not searched for in the training text, "
                           "since it has 64 MB or more"]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "prepare_in_process", None)
        patch.setattr(Files, "documents", None)
        assert Text(str(folder), 16, "byte").fingerprint == first.fingerprint
    file = folder / "00000.txt"
    text = file.read_text()
    file.write_text(text[::-1])
    assert Text(str(folder), 16, "byte").fingerprint != first.fingerprint, "an edit of the same size"
    file.write_text(text)
    assert Text(str(folder), 16, "byte").fingerprint == first.fingerprint, "the same text at another time"


PREPARE = """
import sys
from ablate.data import documents, prepare
prepare.LARGE = 0
from ablate.data.language import Text
print(Text(sys.argv[1], 16, "char").fingerprint)
"""


def test_a_killed_preparation_leaves_no_process_and_is_made_again(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "rows", "jsonl", texts(3_000))
    command = [sys.executable, "-c", PREPARE, str(folder)]
    process = subprocess.Popen(command)
    cache = tmp_path / "cache"
    while not list(cache.glob("*.making/datasets/*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while running(str(cache)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(str(cache))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "preparing the text, once" in done.stderr
    assert [path.suffix for path in cache.glob("corpus-*") if path.is_dir()] == [""]
    assert done.stdout.strip() == Text(str(folder), 16, "char").fingerprint


def running(argument: str) -> list[str]:
    """The processes whose command line has an argument."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        if argument in command and "ablate.data.prepare" in command:
            found.append(command)
    return found


def refused(path: Path, **more: Any) -> str:
    """The line that refuses a text."""
    with pytest.raises(ValueError) as caught:
        Text(**{"path": str(path), "context": 16, "tokenizer": "byte", **more})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_error_of_the_process_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepare, "LARGE", 0)
    folder = write_rows(tmp_path / "rows", "jsonl", texts(60))
    with open(folder / "a.jsonl", "a") as file:
        file.write("no JSON\n")
    assert "is no line of JSON" in refused(folder)
    monkeypatch.setattr(extra.importlib.util, "find_spec", lambda name: None)
    why = refused(folder)
    assert "a text of 64 MB or more, needs datasets, which is not installed" in why


def test_a_text_without_enough_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too few documents"):
        Text(str(write_rows(tmp_path / "rows", "jsonl", texts(2))), 16, "byte")


@contextmanager
def room(size: int) -> Iterator[None]:
    """Files of at most `size` bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("large", [True, False])
def test_a_full_disk_is_a_line_and_the_text_is_prepared_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepare, "LARGE", 0 if large else 10**9)
    folder = write_rows(tmp_path / "rows", "jsonl", texts(300))
    with room(6000):
        why = refused(folder)
    assert "cannot be written in" in why and "make room" in why
    assert Text(str(folder), 16, "byte").verified()


def test_a_text_is_not_prepared_for_a_command_with_other_mistakes(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "rows", "jsonl", texts(600))
    words = ["data=text", f"data.path={folder}", "scale=tiny", "data.context=16", "norm=ln,rms"]
    for mistake in ("ffn.hiden=8", "optim.lr=-1"):
        with pytest.raises(PlanError) as caught:
            plan_study([*words, mistake])
        (problem,) = caught.value.problems
        assert problem.key in mistake
    assert not list((tmp_path / "cache").glob("corpus-*"))
    plan_study([*words, "train.steps=4", "optim.warmup=1"])
    assert list((tmp_path / "cache").glob("corpus-*/index.json"))


def test_the_command_prepares_and_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_rows(tmp_path / "rows", "jsonl", texts(600))
    words = ["prepare", "data=text", f"data.path={folder}", "scale=tiny", "data.context=16"]
    assert main([*words, "--verify"]) == 0
    printed = capsys.readouterr().out
    assert "byte LM on rows: " in printed and "all files are as they were written" in printed
    (shard,) = (tmp_path / "cache").glob("corpus-*/train-0.npy")
    status = shard.stat()
    data = bytearray(shard.read_bytes())
    data[-3] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert main(words) == 0 and main([*words, "--verify"]) == 1
    assert "differ from the index" in capsys.readouterr().out
    shard.write_bytes(b"")
    assert main([*words, "--verify"]) == 0, "a shard that was cut is made again"
    assert main(["prepare", "data=copy"]) == 2 and "has no text to prepare" in capsys.readouterr().err
    assert main(["prepare", "data=text", "data.path=nowhere"]) == 2 and "does not exist" in capsys.readouterr().err
