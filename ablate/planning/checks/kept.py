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
from ablate.config.groups import PACKAGE
from ablate.data.corpus import cache_folder
from ablate.results.atomic import read_json, write_json

Record = dict[str, Any]


def kept_json(kind: str, what: Any, make: Callable[[], Record]) -> Record:
    """A record from the cache, by everything that it depends on, or newly made; one that is damaged is made again."""
    content = json.dumps([kind, what, torch.__version__, own_code()], sort_keys=True)
    file = cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(Corrupt, OSError, KeyError):
        found = read_json(file)
        if found.pop("keys") == sorted(found):  # all of it is there
            return found
    found = make()
    with contextlib.suppress(OSError):  # of a full disk, say: it will be made again
        write_json(file, found | {"keys": sorted(found)})
    return found


@functools.cache
def own_code() -> str:
    """Hash of the code that finds what is kept, and of all that it uses."""
    sources = [file.read_bytes() for file in sorted(PACKAGE.rglob("*.py"))]
    return hashlib.sha256(b"".join(sources)).hexdigest()
