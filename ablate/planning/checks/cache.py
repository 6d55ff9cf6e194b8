"""A cache on disk of the results of checks, by everything that they depend on."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from typing import Any

from ablate.config.errors import Corrupt
from ablate.data.corpus import cache_folder
from ablate.results.atomic import read_json, write_json
from ablate.results.code_hash import AS_IMPORTED
from ablate.results.run_key import torch_version

Record = dict[str, Any]

OWN_CODE = hashlib.sha256(b"".join(AS_IMPORTED[file] for file in sorted(AS_IMPORTED))).hexdigest()


def cached(kind: str, depends: Any, make: Callable[[], Record]) -> Record:
    """A record from the cache, or newly made; besides `depends` it depends on torch's version and ablate's code.  A
    damaged record is made again; a full disk is ignored."""
    content = json.dumps([kind, depends, torch_version(), OWN_CODE], sort_keys=True)
    file = cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(Corrupt, OSError):
        return read_json(file)
    found = make()
    with contextlib.suppress(OSError):
        write_json(file, found)
    return found
