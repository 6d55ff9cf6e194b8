"""The file of a run's logged steps, as training writes it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ablate.results.atomic import finite, no_link
from ablate.results.checksum import Sum

Row = dict[str, float]  # a logged step: step, tokens, seconds, and metrics by name


class MetricsWriter:
    """Appends one JSON object per logged step, flushed; starts by cutting the file at `offset` bytes."""

    def __init__(self, path: Path, offset: int = 0, check: Callable[[], None] = lambda: None):
        check()  # who lost the run meanwhile, in a long setup say, must not cut what its successor has logged
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a buffer: what a full disk refused must not be tried again when the file is closed.
        self.file: IO[bytes] = open(path, "r+b" if path.exists() else "w+b", buffering=0, opener=no_link)  # noqa: SIM115
        self.check = check
        self.file.truncate(offset)
        self.bytes, self.sum = offset, hashlib.sha256(self.file.read(offset))  # and so on: no file is read twice
        self.file.seek(offset)

    def write(self, row: Row) -> None:
        """Append one row and hand it to the operating system; raises what `check` does."""
        self.check()
        left = json.dumps(finite(row), allow_nan=False).encode() + b"\n"
        while left:
            taken = self.file.write(left)
            self.sum.update(left[:taken])
            self.bytes += taken
            left = left[taken:]

    def offset(self) -> int:
        """Bytes that are safely on disk, for the checkpoint to remember."""
        os.fsync(self.file.fileno())
        return self.file.tell()

    def written(self) -> Sum:
        """What the file holds, as a result keeps it."""
        return Sum(bytes=self.bytes, sha256=self.sum.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self.file.close()
