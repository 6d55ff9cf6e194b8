"""`data=text`: files, folders and patterns, and one clear line for everything that is no text."""

import bz2
import gzip
import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest
from corpora import write_rows

from ablate.data.documents import Document, Files
from ablate.data.language import Text

PROSE = "It was a bright cold day in April, and the clocks were striking thirteen.\n" * 40


def read_documents(path: str) -> list[Document]:
    """All documents of a path, each text file whole."""
    source = Files(path)
    return [document for split, file in source.parts() for document in source.documents(split, file)]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with texts of many kinds, and things that are none."""
    root = tmp_path / "library"
    for name in ("b.txt", "a.md", "deep/er/c.txt", "deep/b.txt", ".hidden", ".git/objects.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n{PROSE}")
    (root / "empty.txt").write_text("")
    (root / "blank.txt").write_text(" \n\t\n")
    return root


def test_a_file(library: Path) -> None:
    (document,) = read_documents(str(library / "b.txt"))
    assert document.name == "b.txt" and document.text == (library / "b.txt").read_bytes()
    task = Text(str(library / "b.txt"), 16, "byte")
    assert task.name == "b" and task.title == "byte LM on b"


def test_a_folder_is_read_in_order_without_hidden_and_empty_files(library: Path) -> None:
    names = [document.name for document in read_documents(str(library))]
    assert names == ["a.md", "b.txt", "deep/b.txt", "deep/er/c.txt"]


def test_a_pattern(library: Path) -> None:
    found = read_documents(str(library / "**" / "*.txt"))
    assert [document.text.split(b"\n")[0] for document in found] == [b"b.txt", b"deep/b.txt", b"deep/er/c.txt"]
    assert [document.text.split(b"\n")[0] for document in read_documents(str(library / "*.txt"))] == [b"b.txt"]
    names = [document.name for document in read_documents(str(library / "**" / "b.txt"))]
    assert len(names) == len(set(names)) == 2, "losses are kept per document, under its name"


def test_home_and_relative_paths(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(library))
    assert len(read_documents("~/b.txt")) == len(read_documents("~/b*.txt")) == 1
    monkeypatch.chdir(library)
    assert len(read_documents("b.txt")) == len(read_documents("*.md")) == 1
    assert len(read_documents("deep")) == 2


def test_odd_names(tmp_path: Path) -> None:
    for name in ("odd [1].txt", "a b.txt", "ü.txt", "100%.txt"):
        (tmp_path / name).write_text(PROSE)
        assert read_documents(str(tmp_path / name))[0].name == name


ROWS = [f"{i}: {PROSE[i:]}" for i in range(30)]
ARRAY = json.dumps([{"text": row} for row in ROWS], indent=1)


@pytest.mark.parametrize(
    "kind", ["jsonl", "json", "ndjson", "jsonl.gz", "json.gz", "jsonl.bz2", "json.xz", "jsonl.zst"]
)
def test_lines_of_json_are_documents_whatever_the_file_is_called(tmp_path: Path, kind: str) -> None:
    folder = write_rows(tmp_path / "rows", kind, ROWS)
    assert [document.text.decode() for document in read_documents(str(folder))] == ROWS


# The ending of a file's name, its content, and the texts that are read.
CONTENTS: dict[str, tuple[str, bytes, list[str]]] = {
    "an array of objects": ("json", ARRAY.encode(), ROWS),
    "another JSON file": ("json", b'{\n "name": "a"\n}', ['{\n "name": "a"\n}']),
    "lines of JSON in UTF-16": ("jsonl", '{"text": "é"}\n{"text": "b"}\n'.encode("utf-16"), ["é", "b"]),
    "UTF-16": ("txt", f"é {PROSE}".encode("utf-16"), [f"é {PROSE}"]),
    "UTF-16 of the other order": ("txt", b"\xfe\xff" + PROSE.encode("utf-16-be"), [PROSE]),
    "gzip": ("txt.gz", gzip.compress(PROSE.encode()), [PROSE]),
    "bzip2": ("txt.bz2", bz2.compress(PROSE.encode()), [PROSE]),
    "xz": ("txt.xz", lzma.compress(PROSE.encode()), [PROSE]),
    "line ends of Windows": ("txt", PROSE.replace("\n", "\r\n").encode(), [PROSE.replace("\n", "\r\n")]),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_contents_are_read_as_what_they_are(tmp_path: Path, case: str) -> None:
    ending, content, texts = CONTENTS[case]
    file = tmp_path / f"a.{ending}"
    file.write_bytes(content)
    assert [document.text.decode() for document in read_documents(str(file))] == texts


def test_a_column_of_a_json_file_is_not_ignored(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "rows", "json", ROWS)
    with pytest.raises(ValueError, match=r"data\.column=txt is not in .*did you mean text\?"):
        Text(str(folder), 16, "byte", column="txt")


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "jsonl.bz2", "jsonl.xz", "jsonl.zst", "parquet"])
def test_rows_that_cannot_be_read_are_a_line(tmp_path: Path, kind: str) -> None:
    folder = write_rows(tmp_path / "rows", kind, ROWS)
    for column, said in (("txt", "did you mean text?"), ("id", "data.column=id")):
        with pytest.raises(ValueError) as caught:
            Text(str(folder), 16, "byte", column=column)
        assert said in str(caught.value)
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    message = refused(str(folder))
    assert any(word in message for word in ("cut short", "no line of JSON", "no Parquet", "cannot be read")), message


@pytest.mark.parametrize("line", ["[" * 100_000, '{"text": "a"}\n[1]'])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.jsonl").write_text(line)
    assert "JSON" in refused(str(tmp_path / "bad.jsonl")) or "object" in refused(str(tmp_path / "bad.jsonl"))


PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 9
# What lies where a text is asked for, by the names of its files ("" is the path itself), and what the refusal says.
BAD: dict[str, tuple[dict[str, bytes], str]] = {
    "missing": ({}, "does not exist"),
    "empty": ({"": b""}, ""),
    "blank": ({"": b" \n\t \r\n"}, ""),
    "a folder of hidden files": ({".secret": PROSE.encode()}, ""),
    "a folder with a binary": ({"good.txt": PROSE.encode(), "picture.png": PICTURE}, "picture.png"),
    "binary with zeros": ({"": PROSE.encode() + b"\0\1\2"}, "binary"),
    "binary without zeros": ({"": bytes(range(1, 32)) * 50}, "binary"),
    "UTF-16 without its mark": ({"": PROSE.encode("utf-16-le")}, "binary"),
    "too short": ({"": b"x"}, "too short"),
    "too short to hold out": ({"": b"x" * 100}, "too short"),
}


def refused(path: str, tokenizer: str = "byte") -> str:
    """What is said of a path that cannot be used: one line that names data.path or the file."""
    with pytest.raises(ValueError) as caught:
        Text(path, 64, tokenizer)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    assert "data.path" in message or Path(path).name in message, message
    return message


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_text_is_refused(tmp_path: Path, kind: str) -> None:
    files, said = BAD[kind]
    for name, content in files.items():
        file = tmp_path / "input.txt" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    assert said in refused(str(tmp_path / "input.txt"))
    refused(str(tmp_path / "input.txt"), "char")


def test_what_names_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not exist" in refused(str(tmp_path / "*.txt"))
    (tmp_path / "folder.txt").mkdir()
    refused(str(tmp_path / "*.txt"))
    refused("it was a bright cold day " * 40)
    (tmp_path / "a.txt").write_text(PROSE)
    monkeypatch.chdir(tmp_path)
    refused("")  # `data.path=` is a slip, and must not read the folder that the user happens to be in


def test_non_utf8_needs_bytes(tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes(PROSE.encode() + "café".encode("latin-1") + PROSE.encode())
    message = refused(str(file), "char")
    assert "latin.txt" in message and "data.tokenizer=byte" in message
    assert Text(str(file), 16, "byte").vocab == 256


def test_what_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, and a path below a closed folder; root reads everything, so modes would not do."""
    file = tmp_path / "private.txt"
    file.write_text(PROSE)
    stat = os.stat

    def denied(*_: object, **__: object) -> Any:
        raise PermissionError(13, "Permission denied", str(file))

    with monkeypatch.context() as patch:
        patch.setattr("ablate.data.documents.open_text", denied)
        message = refused(str(file))
    assert "private.txt" in message and "Permission denied" in message
    monkeypatch.setattr(os, "stat", lambda path, *a, **k: (denied if str(path) == str(file) else stat)(path, *a, **k))
    refused(str(file))
