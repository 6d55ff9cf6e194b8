"""What checks found, kept on disk by everything that it depends on, so that the next command need not find it again."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt
from ablate.data.corpus import cache_folder
from ablate.results.atomic import read_json, write_json
from ablate.results.code_hash import AS_IMPORTED
from ablate.results.versions import torch_version

Record = dict[str, Any]


def kept_json(kind: str, what: Any, make: Callable[[], Record]) -> Record:
    """A record from the cache, by everything that it depends on, or newly made; one that is damaged is made again."""
    file = kept_file(kind, what)
    found = read_kept(file)
    if found is None:
        found = make()
        write_kept(file, found)
    return found


def kept_file(kind: str, what: Any) -> Path:
    """Where a record is kept that depends on this, on torch and on our own code."""
    content = json.dumps([kind, what, torch_version(), own_code()], sort_keys=True)
    return cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"


def read_kept(file: Path) -> Record | None:
    """A record that is kept whole, or None."""
    with contextlib.suppress(Corrupt, OSError):
        return read_json(file)
    return None


def write_kept(file: Path, record: Record) -> None:
    """Keep a record."""
    with contextlib.suppress(OSError):  # of a full disk, say: it will be made again
        write_json(file, record)


@functools.cache
def own_code() -> str:
    """Hash of the code that finds what is kept, and of all that it uses."""
    return hashlib.sha256(b"".join(AS_IMPORTED[file] for file in sorted(AS_IMPORTED))).hexdigest()
