"""`data=text`: files, folders and patterns, and one clear line for everything that is no text."""

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import pytest
from corpora import refusal, write_rows

from ablate.data.documents import Document, Files
from ablate.data.language import Text

PROSE = "It was a bright cold day in April, and the clocks were striking thirteen.\n" * 40


def read_documents(path: Path | str) -> list[Document]:
    """All documents of a path, each text file whole."""
    source = Files(str(path))
    return [document for split, part in source.parts() for document in source.documents(split, part)]


@pytest.fixture
def library(tmp_path) -> Path:
    """A folder with texts of many kinds, and things that are none."""
    root = tmp_path / "library"
    for name in ("b.txt", "a.md", "deep/er/c.txt", "deep/b.txt", ".hidden", ".git/objects.txt", "odd [1] ü 100%.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n{PROSE}")
    (root / "empty.txt").write_text("")
    (root / "blank.txt").write_text(" \n\t\n")
    return root


# What data.path names in that folder, which is the home and the current one, and the documents in order.
PATHS: dict[str, list[str]] = {
    "": ["a.md", "b.txt", "deep/b.txt", "deep/er/c.txt", "odd [1] ü 100%.txt"],
    "b.txt": ["b.txt"],
    "~/b.txt": ["b.txt"],
    "~/b*.txt": ["b.txt"],
    "deep": ["b.txt", "er/c.txt"],
    "**/b.txt": ["b.txt", "deep/b.txt"],
    "odd [1] ü 100%.txt": ["odd [1] ü 100%.txt"],
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_a_file_a_folder_or_a_pattern(library, path, monkeypatch):
    monkeypatch.setenv("HOME", str(library))
    monkeypatch.chdir(library)
    documents = read_documents(path or library)
    assert [document.name for document in documents] == PATHS[path]
    assert all(document.text.split(b"\n")[0].decode().endswith(document.name) for document in documents)


ROWS = [f"{i}: {PROSE[i:]}" for i in range(30)]
LINES = ["jsonl", "json", "ndjson", "jsonl.gz", "json.xz", "jsonl.bz2"]


@pytest.mark.parametrize("kind", LINES)
def test_lines_of_json_are_documents_whatever_the_file_is_called(tmp_path, kind):
    folder = write_rows(tmp_path / "rows", kind, ROWS)
    assert [document.text.decode() for document in read_documents(folder)] == ROWS


# The ending of a file's name, its content, and the texts that are read.
CONTENTS: dict[str, tuple[str, bytes, list[str]]] = {
    "lines of JSON in UTF-16": ("jsonl", '{"text": "é"}\n{"text": "b"}\n'.encode("utf-16"), ["é", "b"]),
    "UTF-16": ("txt", f"é {PROSE}".encode("utf-16"), [f"é {PROSE}"]),
    "gzip": ("txt.gz", gzip.compress(PROSE.encode()), [PROSE]),
    "bzip2": ("txt.bz2", bz2.compress(PROSE.encode()), [PROSE]),
    "xz": ("txt.xz", lzma.compress(PROSE.encode()), [PROSE]),
    "line ends of Windows": ("txt", PROSE.replace("\n", "\r\n").encode(), [PROSE.replace("\n", "\r\n")]),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_contents_are_read_as_what_they_are(tmp_path, case):
    ending, content, texts = CONTENTS[case]
    file = tmp_path / f"a.{ending}"
    file.write_bytes(content)
    assert [document.text.decode() for document in read_documents(file)] == texts


def refused(path: Path | str, **settings: Any) -> str:
    """The line that refuses a text, which names data.path or the file."""
    message = refusal(Text, **{"path": str(path), "context": 64, "tokenizer": "byte"} | settings)
    assert "data." in message or Path(path).name in message, message
    return message


@pytest.mark.parametrize("kind", LINES)
def test_rows_that_cannot_be_read_are_a_line(tmp_path, kind):
    folder = write_rows(tmp_path / "rows", kind, ROWS)
    assert "did you mean text?" in refused(folder, column="txt")
    assert "data.column=id" in refused(folder, column="id")
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    message = refused(folder)
    assert any(words in message for words in ("cut short", "no line of JSON")), message


PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 9
# What lies where a text is asked for, by the names of its files ("" is the path itself), and what the refusal says.
BAD: dict[str, tuple[dict[str, bytes], str]] = {
    "missing": ({}, "does not exist"),
    "a folder of hidden files": ({".secret": PROSE.encode()}, "is empty"),
    "a folder with a binary": ({"good.txt": PROSE.encode(), "picture.png": PICTURE}, "picture.png"),
    "binary with zeros": ({"": PROSE.encode() + b"\0\1\2"}, "binary"),
    "binary without zeros": ({"": bytes(range(1, 32)) * 50}, "binary"),
    "UTF-16 without its mark": ({"": PROSE.encode("utf-16-le")}, "binary"),
    "too short": ({"": b"x"}, "too short"),
    "a line that is deep": ({"a.jsonl": b"[" * 100_000}, "no line of JSON"),
    "a line that is no object": ({"a.jsonl": b'{"text": "a"}\n[1]'}, "is no object"),
    "an array of objects": ({"a.json": b'[{"text": "a"}, {"text": "b"}]'}, "write one a line (jq -c '.[]'"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_text_is_refused(tmp_path, kind):
    files, words = BAD[kind]
    for name, content in files.items():
        file = tmp_path / "input" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    assert words in refused(tmp_path / "input")


def test_an_empty_path_is_refused_and_not_the_current_folder(library, monkeypatch):
    monkeypatch.chdir(library)
    assert "is empty" in refused("")
