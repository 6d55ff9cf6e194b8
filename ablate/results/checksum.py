"""Checksums of what the software wrote, so that damage is noticed when it is read.  Nothing here needs torch."""

import functools
import hashlib
import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

from ablate.config.regular_files import regular
from ablate.config.typed_json import Record, record

SEAL = "sha256"  # the entry of a JSON object that holds the digest of all others
NO_COMMENT = b"\0\0"  # the last two bytes of a zip archive: how long the comment behind them is
LENGTH = 64  # of a digest in hexadecimal digits


@record
class Sum(Record):
    """What a result keeps of a file beside it: how many bytes it has, and their digest."""

    bytes: int
    sha256: str


def digest(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sum_of(data: bytes) -> Sum:
    """How many bytes there are, and their digest."""
    return Sum(bytes=len(data), sha256=digest(data))


def seal_of(value: dict[str, Any]) -> str:
    """The digest of what a JSON object says, its own seal left out, however it is laid out."""
    content = {key: item for key, item in value.items() if key != SEAL}
    return digest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def sealed_archive(data: bytes) -> bytes:
    """A zip archive, as `torch.save` writes it, with its digest as the archive's comment.

    Raises ValueError for what is none.
    """
    if not data.endswith(NO_COMMENT):
        raise ValueError("no zip archive without a comment")
    return data.removesuffix(NO_COMMENT) + struct.pack("<H", LENGTH) + digest(data).encode()


def unsealed_archive(data: bytes) -> bytes:
    """The archive that was sealed.

    Raises ValueError where its digest does not fit, and, before anything is unpacked, where it unpacks to more.
    """
    archive = data[: -LENGTH - len(NO_COMMENT)] + NO_COMMENT
    if digest(archive).encode() != data[-LENGTH:]:
        raise ValueError("its checksum does not fit: it is damaged")
    with zipfile.ZipFile(io.BytesIO(archive)) as parts:
        if sum(part.file_size for part in parts.infolist()) > len(archive):
            raise ValueError("it unpacks to more than it holds: no run wrote it")
    return archive


def wrong(file: Path, written: Sum) -> str:
    """How a file is not what was written, in a few words; "" where it is.  Raises OSError where it cannot be read."""
    status = file.stat()
    if status.st_size != written.bytes:
        return f"it has {status.st_size:,} bytes, and {written.bytes:,} were written"
    if _digest_of(file, status.st_mtime_ns, status.st_size, status.st_ino) != written.sha256:
        return "its checksum does not fit: it was changed after it was written"
    return ""


@functools.lru_cache(maxsize=100_000)
def _digest_of(file: Path, *_: int) -> str:
    """The digest of a file, taken once for each state of it."""
    with open(file, "rb", opener=regular) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
