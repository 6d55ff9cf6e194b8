"""Atomic writes, which survive a kill, and checksums, which detect damage when files are read."""

import functools
import hashlib
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ablate.config.errors import Corrupt
from ablate.config.files import parse_json, read_regular, regular, unreadable
from ablate.config.typed_json import Record, T, parse

SEAL = "sha256"  # the entry of a JSON object with the digest of all others


class Sum(Record):
    """Size and digest of a file, as a run's result records them."""

    bytes: int
    sha256: str


def no_link(path: str, flags: int) -> int:
    """An opener for files that are written in place.  It refuses symbolic links, which may lead out of the results."""
    return regular(path, flags | os.O_NOFOLLOW)


def write_atomic(path: Path, data: bytes, check: Callable[[], None] = lambda: None) -> Path:
    """Replace a file atomically: a reader, also after a kill, sees the old or the new one.  `check` may raise first.
    Returns the file."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:16]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb", opener=no_link) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        check()
        os.replace(temporary, path)
        return path
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: dict[str, Any], check: Callable[[], None] = lambda: None) -> Sum:
    """Write `value` atomically as strict JSON with its checksum; numbers that are not finite become null.  Returns size
    and digest of the file."""
    content = finite(value)
    content.pop(SEAL, None)
    content[SEAL] = seal_of(content)
    data = json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"
    write_atomic(path, data, check)
    return sum_of(data)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object that `write_json` wrote.  Raises `Corrupt` if it is none or was changed, and FileNotFoundError."""
    try:
        value = parse_json(read_regular(path).decode())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise Corrupt(f"{path} is not readable as JSON ({error})") from None
    if not isinstance(value, dict):
        raise Corrupt(f"{path} holds no JSON object")
    if value.pop(SEAL, None) != seal_of(value):
        raise Corrupt(f"{path} is damaged: it was changed after it was written (its checksum does not fit)")
    return value


def read_record(kind: type[T], file: Path) -> T:
    """The record in a file that `write_json` wrote.  Raises `Corrupt` and FileNotFoundError."""
    try:
        return parse(kind, read_json(file))
    except ValueError as error:
        raise Corrupt(f"{file} {error}") from None


def set_aside(path: Path) -> Path:
    """Rename a corrupt file to the first free `<name>.corrupt[-n]` in its folder, and return the new path."""
    target = path.with_name(f"{path.name}.corrupt")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.corrupt-{number}")
    return path.rename(target)


def finite(value: Any) -> Any:
    """A value as it is read back from JSON, in which every number that is not finite is None."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=plain))


def plain(value: Any) -> str | float:
    """A text or number of another library, such as torch's version or NumPy's numbers, as Python's own."""
    return str(value) if isinstance(value, str) else float(value)


def digest(data: bytes) -> str:
    """The SHA-256 of bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sum_of(data: bytes) -> Sum:
    """Size and digest of bytes."""
    return Sum(bytes=len(data), sha256=digest(data))


def seal_of(value: dict[str, Any]) -> str:
    """The digest of a JSON object that has no seal, independent of layout and order of keys."""
    return digest(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def file_digest(file: Path) -> str:
    """The digest of a file, cached until its time, size or inode changes."""
    status = file.stat()
    return digest_at(file, status.st_mtime_ns, status.st_size, status.st_ino)


@functools.lru_cache(maxsize=100_000)
def digest_at(file: Path, *stamp: int) -> str:
    """The digest of a file that had this stamp."""
    with open(file, "rb", opener=regular) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
