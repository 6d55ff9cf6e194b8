"""Documents in files: text, lines of JSON (also .gz and .zst), and Parquet."""

import glob
import gzip
import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from ablate.config.errors import one_line
from ablate.config.extra import extra
from ablate.formatting import instead

ROWS = 512  # rows of a table in memory at a time
PACKED = (".gz", ".zst")
CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))  # control characters, rare in text


class Document(NamedTuple):
    """A named piece of text."""

    name: str
    text: bytes


class Source(Protocol):
    """A set of documents on disk."""

    @property
    def title(self) -> str:
        """A name for the corpus."""

    @property
    def words(self) -> str:
        """The words of the command line that chose it, for errors."""

    def documents(self) -> Iterator[Document]:
        """The documents that are not empty.  Raises ValueError for what is no text."""


class Given(NamedTuple):
    """Documents in memory."""

    title: str
    found: Sequence[Document]

    @property
    def words(self) -> str:
        """See Source."""
        return self.title


@dataclass(frozen=True)
class Files:
    """The documents of a file, of all files in a folder, or of those that match a glob pattern: each text file, and the
    text in `column` of each line of JSON and each row of a Parquet file."""

    path: str
    column: str = "text"

    @property
    def title(self) -> str:
        """See Source."""
        return Path(self.path).stem.strip("*").removesuffix(".jsonl") or "text"

    @property
    def words(self) -> str:
        """See Source."""
        return f"data.path={self.path}"

    def documents(self) -> Iterator[Document]:
        """See Source."""
        if not self.path:
            raise ValueError("data.path is empty; write data.path=FILE, FOLDER or 'GLOB'")
        root = Path(self.path).expanduser()
        try:
            files = find_files(root)
        except OSError as error:
            raise ValueError(f"data.path={str(root)[:200]} cannot be read ({error.strerror})") from None
        base = root if root.is_dir() else Path(os.path.commonpath([file.parent for file in files]))
        for file in files:
            for place, text in READERS.get(_kind(file), _whole)(file, self.column):
                if text.strip():
                    yield Document(file.relative_to(base).as_posix() + place, checked(text, file))


def find_files(root: Path) -> list[Path]:
    """The files of a path, sorted, without hidden files in folders."""
    if root.is_file():
        return [root]
    if root.is_dir():
        below = (file for file in sorted(root.rglob("*")) if file.is_file())
        return [file for file in below if not any(part.startswith(".") for part in file.relative_to(root).parts)]
    files = sorted(Path(match) for match in glob.glob(str(root), recursive=True))
    if not any(file.is_file() for file in files):
        raise ValueError(f"data.path={root} does not exist; write data.path=FILE, FOLDER or 'GLOB'")
    return [file for file in files if file.is_file()]


def checked(text: bytes, file: Path) -> bytes:
    """A text as it is.  Raises ValueError if it is binary."""
    if b"\0" in text or len(text.translate(None, CONTROL)) < 0.9 * len(text):
        raise ValueError(f"data.path: {file} is binary, not text; name text files, in a folder with a 'GLOB'")
    return text


def _kind(file: Path) -> str:
    suffixes = [suffix for suffix in file.suffixes if suffix not in PACKED]
    return suffixes[-1] if suffixes else ""


def _whole(file: Path, column: str) -> Iterator[tuple[str, bytes]]:
    try:
        yield "", file.read_bytes()
    except OSError as error:
        raise ValueError(f"data.path: {file} cannot be read ({error.strerror})") from None


def _lines(file: Path, column: str) -> Iterator[tuple[str, bytes]]:
    """The texts of the lines of JSON, each named by the byte at which its line begins."""
    try:
        with _stream(file) as stream:
            at = 0
            for line in stream:
                if line.strip():
                    yield f":{at}", _field(line, column, f"{file} at byte {at}")
                at += len(line)
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"data.path: {file} is cut short or damaged ({error})") from None
    except OSError as error:  # of the file and of a damaged .zst
        raise ValueError(f"data.path: {file} cannot be read ({one_line(error)[:120]})") from None


def _stream(file: Path) -> BinaryIO:
    if file.suffix == ".zst":
        arrow = extra("pyarrow", f"data.path={file}")
        return io.BufferedReader(arrow.CompressedInputStream(str(file), "zstd"))
    return gzip.open(file) if file.suffix == ".gz" else open(file, "rb")  # type: ignore[return-value]


def _field(line: bytes, column: str, where: str) -> bytes:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"data.path: {where} is no line of JSON ({one_line(error)[:80]})") from None
    if not isinstance(row, dict) or column not in row:
        there = instead(column, row) if isinstance(row, dict) else "each line must be an object"
        raise ValueError(f"data.column={column} is not in {where}; {there}")
    return as_bytes(row[column], column, where)


def as_bytes(text: Any, column: str, where: str) -> bytes:
    """The text of a row, empty where it has none.  Raises ValueError if it is no text."""
    if not isinstance(text, str | None):
        raise ValueError(f"data.column={column} of {where} holds something else than text; name a column of strings")
    return (text or "").encode(errors="replace")  # JSON may hold half of a character


def _rows(file: Path, column: str) -> Iterator[tuple[str, bytes]]:
    """The texts of a Parquet file's rows, each named by its number."""
    for at, text in enumerate(_column(file, column)):
        yield f":{at}", as_bytes(text, column, str(file))


def _column(file: Path, column: str) -> Iterator[Any]:
    parquet, why = extra("pyarrow.parquet", f"data.path={file}"), f"data.path: {file} is"
    try:
        opened = parquet.ParquetFile(file)
        names = opened.schema_arrow.names
        batches = opened.iter_batches(ROWS, columns=[column]) if column in names else ()
        for batch in batches:
            yield from batch.column(0).to_pylist()
    except ValueError as error:
        raise ValueError(f"{why} no Parquet file, or damaged ({one_line(error)[:120]})") from None
    except Exception as error:  # pyarrow's other errors
        raise ValueError(f"{why} cut short or damaged ({one_line(error)[:120]})") from None
    if column not in names:
        raise ValueError(f"data.column={column} is not in {file}; {instead(column, names)}")


READERS = {".jsonl": _lines, ".ndjson": _lines, ".parquet": _rows}
