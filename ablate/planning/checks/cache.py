"""A cache on disk of what the checks found, by everything that it depends on."""

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


def cached(kind: str, depends: Any, make: Callable[[], Record]) -> Record:
    """A record from the cache, or newly made; a damaged one is made again."""
    file = cache_file(kind, depends)
    found = read_cached(file)
    if found is None:
        found = make()
        write_cached(file, found)
    return found


def cache_file(kind: str, depends: Any) -> Path:
    """The file of a record that depends on this, on torch and on ablate's own code."""
    content = json.dumps([kind, depends, torch_version(), _own_code()], sort_keys=True)
    return cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"


def read_cached(file: Path) -> Record | None:
    """The record of a file; None where there is none, or a damaged one."""
    with contextlib.suppress(Corrupt, OSError):
        return read_json(file)
    return None


def write_cached(file: Path, record: Record) -> None:
    """Write a record; a full disk is ignored, since it can be made again."""
    with contextlib.suppress(OSError):
        write_json(file, record)


@functools.cache
def _own_code() -> str:
    return hashlib.sha256(b"".join(AS_IMPORTED[file] for file in sorted(AS_IMPORTED))).hexdigest()
