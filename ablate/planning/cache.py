"""A cache of what checks find; it depends on torch's version and on ablate's code."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt
from ablate.data.corpus import cache_folder
from ablate.planning.checks import child
from ablate.runs.code_digest import SOURCES
from ablate.runs.files import read_json, write_json
from ablate.runs.key import torch_version

Facts = dict[str, Any]
OWN_CODE = hashlib.sha256(b"".join(SOURCES.values())).hexdigest()


def file_of(kind: str, depends: Any) -> Path:
    """The file of a record."""
    content = json.dumps([kind, depends, torch_version(), OWN_CODE], sort_keys=True)
    return cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"


def read_cache(kind: str, depends: Any) -> Facts:
    """A record.  Raises OSError if there is none, Corrupt if it is damaged."""
    return read_json(file_of(kind, depends))


def write_cache(kind: str, depends: Any, record: Facts) -> None:
    """Keep a record, unless the disk is full.  A process that has run user code, which may have changed anything in it,
    keeps none."""
    if child.channel is None:
        with contextlib.suppress(OSError):
            write_json(file_of(kind, depends), record)


def cached(kind: str, depends: Any, make: Callable[[], Facts]) -> Facts:
    """A record from the cache, or newly made."""
    with contextlib.suppress(Corrupt, OSError):
        return read_cache(kind, depends)
    record = make()
    write_cache(kind, depends, record)
    return record
