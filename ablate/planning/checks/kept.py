"""What checks found, kept on disk by everything that it depends on, so that the next command need not find it again."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any

import torch

from ablate.config.errors import Corrupt
from ablate.data.corpus import cache_folder
from ablate.results.atomic import read_json, write_json
from ablate.results.code_hash import AS_IMPORTED

Record = dict[str, Any]


def kept_json(kind: str, what: Any, make: Callable[[], Record]) -> Record:
    """A record from the cache, by everything that it depends on, or newly made; one that is damaged is made again."""
    content = json.dumps([kind, what, torch.__version__, own_code()], sort_keys=True)
    file = cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(Corrupt, OSError):
        return read_json(file)
    found = make()
    with contextlib.suppress(OSError):  # of a full disk, say: it will be made again
        write_json(file, found)
    return found


@functools.cache
def own_code() -> str:
    """Hash of the code that finds what is kept, and of all that it uses."""
    return hashlib.sha256(b"".join(AS_IMPORTED[file] for file in sorted(AS_IMPORTED))).hexdigest()
