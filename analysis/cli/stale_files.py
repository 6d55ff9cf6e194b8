"""Files of an earlier analysis that this one does not write are taken away, lest they pass for results of today."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from ablate.config.errors import Corrupt
from ablate.results.atomic import read_json, write_json

RECORD = ".written.json"


def clear(folder: Path, files: Iterable[Path]) -> list[str]:
    """Remove what the last analysis wrote here and this one has not, unless it was changed since; the names."""
    try:
        known = read_json(folder / RECORD)
    except (FileNotFoundError, Corrupt):
        return []
    written = {file.name for file in files}
    others = {folder / Path(name).name: digest for name, digest in known.items() if name not in written}
    old = sorted(file for file, digest in others.items() if file.is_file() and _digest(file) == digest)
    for file in old:
        file.unlink()
    return [file.name for file in old]


def remember(folder: Path, files: Iterable[Path]) -> None:
    """Keep which files were written, each with a hash, for the next analysis."""
    write_json(folder / RECORD, {file.name: _digest(file) for file in files})


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
