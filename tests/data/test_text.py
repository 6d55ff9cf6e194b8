"""`data=text`: files, folders and patterns, and one clear line for everything that is no text."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.data.text import Text, read_documents

PROSE = "It was a bright cold day in April, and the clocks were striking thirteen.\n" * 40


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


@pytest.mark.parametrize("name", ["odd [1].txt", "a b.txt", "ü.txt", "100%.txt"])
def test_odd_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PROSE)
    assert read_documents(str(tmp_path / name))[0].name == name


Make = Callable[[Path], object]


def nothing(file: Path) -> None:
    """Leave the path without a file."""


def empty_folder(file: Path) -> None:
    file.mkdir()


def hidden_alone(file: Path) -> None:
    file.mkdir()
    (file / ".secret").write_text(PROSE)


def folder_with_a_binary(file: Path) -> None:
    file.mkdir()
    (file / "good.txt").write_text(PROSE)
    (file / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 9)


BAD: dict[str, Make] = {
    "missing": nothing,
    "empty": lambda file: file.write_bytes(b""),
    "blank": lambda file: file.write_bytes(b" \n\t \r\n"),
    "an empty folder": empty_folder,
    "a folder of hidden files": hidden_alone,
    "a folder with a binary": folder_with_a_binary,
    "binary with zeros": lambda file: file.write_bytes(PROSE.encode() + b"\0\1\2"),
    "binary without zeros": lambda file: file.write_bytes(bytes(range(1, 32)) * 50),
    "UTF-16": lambda file: file.write_bytes(PROSE.encode("utf-16")),
    "too short": lambda file: file.write_bytes(b"short"),
    "too short to hold out": lambda file: file.write_bytes(b"x" * 100),
    "one byte": lambda file: file.write_bytes(b"x"),
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
    file = tmp_path / "input.txt"
    BAD[kind](file)
    message = refused(str(file))
    refused(str(file), "char")
    if "binary" in kind:
        assert "binary" in message
    if kind.startswith("too short"):
        assert "too short" in message
    if "folder with" in kind:
        assert "picture.png" in message


def test_a_pattern_without_a_match_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refused(str(tmp_path / "*.txt"))
    (tmp_path / "folder.txt").mkdir()
    refused(str(tmp_path / "*.txt"))


def test_an_empty_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`data.path=` is a slip, and must not read the folder that the user happens to be in."""
    (tmp_path / "a.txt").write_text(PROSE)
    monkeypatch.chdir(tmp_path)
    refused("")


def test_text_in_place_of_a_path_is_refused() -> None:
    refused("it was a bright cold day " * 40)


def test_non_utf8_needs_bytes(tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes(PROSE.encode() + "café".encode("latin-1") + PROSE.encode())
    message = refused(str(file), "char")
    assert "latin.txt" in message and "data.tokenizer=byte" in message
    assert Text(str(file), 16, "byte").vocab == 256


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "private.txt"
    file.write_text(PROSE)

    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)  # root reads everything, so a mode would not do
    message = refused(str(file))
    assert "private.txt" in message and "Permission denied" in message


def test_a_path_below_a_closed_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, closed = os.stat, tmp_path / "closed" / "text.txt"

    def denied(path: object, *args: object, **kwargs: object) -> os.stat_result:
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", denied)
    refused(str(closed))
