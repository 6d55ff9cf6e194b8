"""Documents in files, read piece by piece: text, lines of JSON (also .gz and .zst), and Parquet."""

import glob
import gzip
import io
import mmap
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ablate.config.errors import one_line
from ablate.config.extra import extra
from ablate.config.files import parse_json
from ablate.formatting import instead

PIECE = 64 << 20  # bytes of a file that one process reads at a time
PART = 1 << 16  # bytes; a text file of a large corpus is cut at line ends into documents of about this size
ROWS = 512  # rows of a table in memory at a time
BUFFER = 1 << 20  # bytes of a Parquet file read at a time
PACKING = 3  # bytes of text per byte of a compressed file, about
PACKED = (".gz", ".zst")
CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))  # control characters, rare in text


class Document(NamedTuple):
    """A named piece of text."""

    name: str
    text: bytes


class Part(NamedTuple):
    """A part of a file: bytes, row groups of a Parquet file, or rows of a dataset."""

    file: str
    start: int
    stop: int


class Given(NamedTuple):
    """Documents in memory."""

    title: str
    found: Sequence[Document]

    @property
    def words(self) -> str:
        """The words of the command line that chose it, for errors."""
        return self.title


@dataclass(frozen=True)
class Files:
    """The documents of a file, of all files in a folder, or of those that match a glob pattern: each text file, and the
    text in `column` of each line of JSON and each row of a Parquet file."""

    path: str
    column: str = "text"

    @property
    def title(self) -> str:
        """A name for the corpus."""
        return Path(self.path).stem.strip("*").removesuffix(".jsonl") or "text"

    @property
    def words(self) -> str:
        """The words of the command line that chose it, for errors."""
        return f"data.path={self.path}"

    @cached_property
    def _files(self) -> list[Path]:
        if not self.path:
            raise ValueError("data.path is empty; write data.path=FILE, FOLDER or 'GLOB'")
        root = Path(self.path).expanduser()
        try:
            return find_files(root)
        except OSError as error:
            raise ValueError(f"data.path={str(root)[:200]} cannot be read ({error.strerror})") from None

    @cached_property
    def _base(self) -> Path:
        root = Path(self.path).expanduser()
        return root if root.is_dir() else Path(os.path.commonpath([file.parent for file in self._files]))

    def absolute(self) -> "Files":
        """The same documents, whatever the current folder."""
        return Files(os.path.abspath(Path(self.path).expanduser()), self.column)

    def files(self) -> list[Path]:
        """The files that hold it."""
        return self._files

    listed = files

    def size(self) -> int:
        """About how many bytes of text it has, judging from its files."""
        return sum(_size(file) for file in self._files)

    def pieces(self) -> list[list[Part]]:
        """Parts of files, in the order of the documents, of about `PIECE` bytes together."""
        found, room = list[list[Part]](), 0
        for file in self._files:
            for ends in pairwise(_cuts(file)):
                if room <= 0:
                    found.append([])
                    room = PIECE
                found[-1].append(Part(str(file), *ends))
                room -= min(PIECE, file.stat().st_size)
        return found

    def documents(self, part: Part, cut: bool = True) -> Iterator[Document]:
        """The documents of a part that are not empty; long text files `cut` into parts.  Raises ValueError."""
        file = Path(part.file)
        name, kind = file.relative_to(self._base).as_posix(), _kind(file)
        try:
            if kind == "text":
                parts = _parts(file, part) if cut and file.stat().st_size > 2 * PART else [("", file.read_bytes())]
            else:
                parts = (_rows if kind == "parquet" else _lines)(file, part, self.column)
            for place, text in parts:
                if text.strip():
                    yield Document(name + place, _checked(text, file))
        except OSError as error:
            raise ValueError(f"data.path: {file} cannot be read ({error.strerror or one_line(error)[:120]})") from None


def find_files(root: Path, key: str = "data.path") -> list[Path]:
    """The files of a path, the value of `key`, sorted, without hidden files in folders."""
    if root.is_file():
        return [root]
    if root.is_dir():
        below = (file for file in sorted(root.rglob("*")) if file.is_file())
        return [file for file in below if not any(part.startswith(".") for part in file.relative_to(root).parts)]
    files = sorted(path for match in glob.glob(str(root), recursive=True) if (path := Path(match)).is_file())
    if not files:
        raise ValueError(f"{key}={root} does not exist; write {key}=FILE, FOLDER or 'GLOB'")
    return files


def _checked(text: bytes, file: Path) -> bytes:
    if b"\0" in text or len(text.translate(None, CONTROL)) < 0.9 * len(text):
        raise ValueError(f"data.path: {file} is binary, not text; name text files, in a folder with a 'GLOB'")
    return text


def _kind(file: Path) -> str:
    suffixes = [suffix for suffix in file.suffixes if suffix not in PACKED]
    return {".jsonl": "lines", ".ndjson": "lines", ".parquet": "parquet"}.get(suffixes[-1] if suffixes else "", "text")


def _size(file: Path) -> int:
    if _kind(file) == "parquet":
        groups = _opened(file).metadata
        return sum(groups.row_group(i).total_byte_size for i in range(groups.num_row_groups))
    return file.stat().st_size * (PACKING if file.suffix in PACKED else 1)


def _cuts(file: Path) -> list[int]:
    """Where the pieces of a file begin, and the end of the last."""
    length = file.stat().st_size
    if _kind(file) == "parquet":
        groups = _opened(file).metadata
        ends = accumulate(groups.row_group(i).total_byte_size for i in range(groups.num_row_groups))
        last = {end // PIECE: i + 1 for i, end in enumerate(ends)}  # of the groups that end in each `PIECE` bytes
        return [0, *last.values()]
    if not length or file.suffix in PACKED or (_kind(file) == "text" and length <= 2 * PART):
        return [0, length or 1]
    return [*range(0, length, PIECE), length]


def _parts(file: Path, part: Part) -> Iterator[tuple[str, bytes]]:
    """The documents of a long text that begin within a part: from one multiple of `PART` to the next, each moved to
    the next line end, or without one to the next character."""
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:

        def begin(at: int) -> int:
            if at in (0, len(text)) or at > len(text):
                return min(at, len(text))
            if (end := text.find(b"\n", at, at + PART)) >= 0:
                return end + 1
            return next((i for i in range(at, min(at + 4, len(text))) if text[i] & 0xC0 != 0x80), at)

        for at in range(part.start, part.stop, PART):
            yield f":{at}", text[begin(at) : begin(at + PART)]


def _lines(file: Path, part: Part, column: str) -> Iterator[tuple[str, bytes]]:
    """The texts of the lines of JSON that begin within a part."""
    packed = file.suffix in PACKED
    try:
        with _stream(file) as stream:
            at = max(0, part.start - 1)
            if part.start:
                stream.seek(at)
                at += len(stream.readline())  # belongs to the part before
            while (packed or at < part.stop) and (line := stream.readline()):
                if line.strip():
                    yield f":{at}", _field(line, column, f"{file} at byte {at}")
                at += len(line)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"data.path: {file} is cut short or damaged ({error})") from None


def _stream(file: Path) -> BinaryIO:
    if file.suffix == ".zst":
        arrow = extra("pyarrow", f"data.path={file}")
        return io.BufferedReader(arrow.CompressedInputStream(str(file), "zstd"))
    return gzip.open(file) if file.suffix == ".gz" else open(file, "rb")  # type: ignore[return-value]


def _field(line: bytes, column: str, where: str) -> bytes:
    try:
        row = parse_json(line)
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


def _opened(file: Path) -> Any:
    parquet = extra("pyarrow.parquet", f"data.path={file}")
    try:
        return parquet.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)  # else a row group is in memory whole
    except Exception as error:  # pyarrow's errors, of any content
        raise ValueError(f"data.path: {file} is no Parquet file ({one_line(error)[:120]})") from None


def _rows(file: Path, part: Part, column: str) -> Iterator[tuple[str, bytes]]:
    """The texts of the rows in a part of a file."""
    opened = _opened(file)
    if column not in opened.schema_arrow.names:
        raise ValueError(f"data.column={column} is not in {file}; {instead(column, opened.schema_arrow.names)}")
    at = sum(opened.metadata.row_group(i).num_rows for i in range(part.start))
    groups = range(part.start, part.stop)
    try:
        for batch in opened.iter_batches(ROWS, row_groups=groups, columns=[column]):
            for text in batch.column(0).to_pylist():
                yield f":{at}", as_bytes(text, column, str(file))
                at += 1
    except Exception as error:
        if type(error) is ValueError:  # of as_bytes; pyarrow has its own kinds
            raise
        raise ValueError(f"data.path: {file} is cut short or damaged ({one_line(error)[:120]})") from None
