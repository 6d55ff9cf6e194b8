"""Texts in files, read as streams: plain text and lines of JSON, also compressed; and Python's own source."""

import bz2
import codecs
import glob
import gzip
import io
import lzma
import os
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from ablate.config.errors import one_line
from ablate.config.files import parse_json
from ablate.formatting import instead

PART = 1 << 16  # characters; a text file of a large corpus is cut at line ends into documents of about this size
ROWS = 512  # rows of a table in memory at a time
RATIO = 3  # bytes of text per byte of a compressed file, about
LINES = (".jsonl", ".ndjson", ".json")  # how the names of files with lines of JSON end
ENCODINGS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # by how a file begins
CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))  # control characters, rare in text
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeError)

NOT_SOURCE = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings", "_bundled"}
GENERATED = ("_sysconfigdata", "topics.py")
LARGEST = 100_000  # bytes at which a file of the standard library is cut: about 1 % of it


class Document(NamedTuple):
    """A named piece of text."""

    name: str
    text: bytes


@dataclass(frozen=True)
class Files:
    """The documents of a file, of all files in a folder, or of those that match a glob pattern: each text file, and the
    text in `column` of each line of JSON.  `validation` and `test` name held-out files in the same way."""

    path: str
    column: str = "text"
    validation: str | None = None
    test: str | None = None

    @property
    def title(self) -> str:
        """A name for the corpus."""
        name = Path(self.path).stem.strip("*")
        for suffix in LINES:
            name = name.removesuffix(suffix)
        return name or "text"

    @property
    def words(self) -> str:
        """The words of the command line that chose it, for errors."""
        return f"data.path={self.path}"

    @cached_property
    def splits(self) -> dict[str, list[Path]]:
        """The files of each split; those of `train` alone if the text is to be split.  Raises ValueError."""
        if not self.path:
            raise ValueError("data.path is empty; write data.path=FILE, FOLDER or 'GLOB'")
        train = find_files(self.path, "data.path")
        if self.validation is None or self.test is None:
            refuse_one_split(self.validation, self.test)
            return {"train": train}
        val = find_files(self.validation, "data.validation")
        test = find_files(self.test, "data.test")
        held_out = {file.resolve() for file in [*val, *test]}
        if len(held_out) < len(val) + len(test):
            raise ValueError("data.validation and data.test share a file; write different ones")
        train = [file for file in train if file.resolve() not in held_out]
        if not train:
            raise ValueError(f"{self.words} has no file to train on beside those of data.validation and data.test")
        return {"train": train, "val": val, "test": test}

    def recipe(self) -> dict[str, Any]:
        """What the text depends on: the files with their sizes and times, and the column."""
        files = {}
        for split in self.splits:
            files[split] = [[str(file.absolute()), *stamp(file)] for file in self.splits[split]]
        return {"files": files, "column": self.column}

    def size(self) -> int:
        """About how many bytes of text it has, judging from the sizes of its files."""
        size = 0
        for _, (file, _) in self.parts():
            size += file.stat().st_size * (RATIO if file.suffix in OPENERS else 1)
        return size

    def parts(self) -> list[tuple[str, Any]]:
        """The split of each file, and the file with its name in the corpus."""
        parts: list[tuple[str, Any]] = []
        for split, path in {"train": self.path, "val": self.validation, "test": self.test}.items():
            files = self.splits.get(split, [])
            root = Path(path or "").expanduser()
            if files and not root.is_dir():
                root = Path(os.path.commonpath([file.parent for file in files]))
            for file in files:
                parts.append((split, (file, file.relative_to(root).as_posix())))
        return parts

    def documents(self, split: str, part: tuple[Path, str], cut: bool = False) -> Iterator[Document]:
        """The documents of a file that are not empty; a text file is one, or many if it is to be `cut`.  Raises
        ValueError."""
        file, name = part
        try:
            for place, text in read_texts(file, self.column, cut):
                if text.strip():
                    refuse_binary(text, file)
                    yield Document(name + place, text)
        except UNREADABLE as error:
            why = f"it may be cut short or damaged ({one_line(error)[:120]})"
            raise ValueError(f"data.path: {file} cannot be read; {why}") from None


def refuse_one_split(validation: str | None, test: str | None) -> None:
    """Raise ValueError if only one of the held-out splits is named."""
    if validation != test:
        raise ValueError("data.validation and data.test are splits of their own; write both, or neither")


def find_files(path: str, key: str) -> list[Path]:
    """The files of a path, the value of `key`, sorted, without hidden files in folders.  Raises ValueError."""
    root = Path(path).expanduser()
    try:
        if root.is_file():
            return [root]
        if root.is_dir():
            files = [file for file in root.rglob("*") if file.is_file() and "/." not in f"/{file.relative_to(root)}"]
        else:
            files = [Path(match) for match in glob.glob(str(root), recursive=True) if Path(match).is_file()]
            if not files:
                raise ValueError(f"{key}={root} does not exist; write {key}=FILE, FOLDER or 'GLOB'")
        return sorted(files)
    except OSError as error:
        raise ValueError(f"{key}={str(root)[:200]} cannot be read ({error.strerror})") from None


def stamp(file: Path) -> list[int]:
    """The size and the time of a file."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns]


def has_lines(file: Path) -> bool:
    """Whether a file holds lines of JSON, by the last part of its name that is no compression."""
    suffixes = [suffix for suffix in file.suffixes if suffix not in OPENERS]
    return bool(suffixes) and suffixes[-1] in LINES


def refuse_binary(text: bytes, file: Path) -> None:
    """Raise ValueError for bytes that are no text."""
    if b"\0" in text or len(text.translate(None, CONTROL)) < 0.9 * len(text):
        how = "name text files, in a folder with a 'GLOB'; data=hf reads Parquet"
        raise ValueError(f"data.path: {file} is binary, not text; {how}")


def read_texts(file: Path, column: str, cut: bool) -> Iterator[tuple[str, bytes]]:
    """The texts of a file, each with its place in it."""
    if has_lines(file):
        yield from read_lines(file, column)
    elif cut:
        yield from cut_text(file)
    else:
        with open_text(file) as stream:
            yield "", stream.read().encode(errors="surrogateescape")


OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def open_text(file: Path) -> TextIO:
    """A file as text; bytes that are no UTF-8 are kept as surrogates."""
    stream = OPENERS.get(file.suffix, open)(file, "rb")
    encoding = ENCODINGS.get(stream.peek(2)[:2], "utf-8")
    return io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="\n")


def cut_text(file: Path) -> Iterator[tuple[str, bytes]]:
    """A text cut at line ends into documents of about `PART` characters, with their first bytes."""
    start = 0
    with open_text(file) as stream:
        while text := stream.read(PART):
            text += stream.readline(PART)  # the rest of the line, if it ends soon
            document = text.encode(errors="surrogateescape")
            yield f":{start}", document
            start += len(document)


def read_lines(file: Path, column: str) -> Iterator[tuple[str, bytes]]:
    """The texts in lines of JSON, with the first bytes of the lines."""
    start = 0
    with open_text(file) as stream:
        for text in stream:
            line = text.encode(errors="surrogateescape")
            if line.strip():
                where = f"{file} at byte {start}"
                try:
                    row = parse_json(line)
                except ValueError as error:
                    raise ValueError(f"data.path: {where} is no line of JSON ({one_line(error)[:80]})") from None
                if not isinstance(row, dict):
                    raise ValueError(f"data.path: {where} is no object; write one a line (jq -c '.[]' does so)")
                if column not in row:
                    raise ValueError(f"data.column={column} is not in {where}; {instead(column, row)}")
                yield f":{start}", as_bytes(row[column], column, where)
            start += len(line)


def as_bytes(text: Any, column: str, where: str) -> bytes:
    """The text of a row, empty where it has none.  Raises ValueError if it is no text."""
    if not isinstance(text, str | None):
        raise ValueError(f"data.column={column} of {where} holds something else than text; name a column of strings")
    return (text or "").encode(errors="replace")  # JSON may hold half of a character


class StandardLibrary(Files):
    """The modules of the running Python's standard library, each cut at `LARGEST` bytes.  Python's version is in the
    name, since versions differ in text."""

    def __init__(self) -> None:
        super().__init__(sysconfig.get_path("stdlib"))

    @property
    def title(self) -> str:
        """A name for the corpus."""
        return f"stdlib-{sys.version_info.major}.{sys.version_info.minor}"

    @cached_property
    def splits(self) -> dict[str, list[Path]]:
        """All of its files, which are to be split."""
        paths: list[Path] = []
        for folder, below, files in os.walk(self.path):
            below[:] = [name for name in below if name not in NOT_SOURCE]  # site-packages can hold a million files
            paths += [Path(folder, name) for name in files if name.endswith(".py") and not name.startswith(GENERATED)]
        return {"train": sorted(paths)}

    def documents(self, split: str, part: tuple[Path, str], cut: bool = False) -> Iterator[Document]:
        """The beginning of a file that is not empty."""
        file, name = part
        text = file.read_bytes()
        if len(text) > LARGEST:
            text = text[: text.rfind(b"\n", 0, LARGEST) + 1]
        if text.strip() and b"\0" not in text:
            yield Document(name, text)
