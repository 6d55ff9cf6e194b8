"""What identifies a report's numbers and the code that made them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from analysis.figures.stamp import source_hash


def hashes(folder: Path) -> list[tuple[str, str]]:
    """SHA-256 of every table in the folder of a study, and of the analysis itself."""
    tables = [(f"SHA-256 of {file.name}", hashed(file)) for file in sorted(folder.glob("*.csv"))]
    return [*tables, ("hash of the analysis", f"{source_hash()} (also in the metadata of every figure)")]


def hashed(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
