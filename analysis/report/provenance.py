"""What identifies a report's numbers and the code that made them."""

from __future__ import annotations

import hashlib
from pathlib import Path


def hashes(folder: Path) -> list[tuple[str, str]]:
    """SHA-256 of every table in the folder of a study, and of the analysis itself."""
    tables = [(f"SHA-256 of {file.name}", hashed(file)) for file in sorted(folder.glob("*.csv"))]
    return [*tables, ("SHA-256 of the analysis", source())]


def hashed(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def source() -> str:
    """The SHA-256 over all files of the analysis, by name."""
    package = Path(__file__).parents[1]
    files = sorted(file for file in package.rglob("*") if file.suffix in (".py", ".html", ".css", ".js", ".yaml"))
    told = "".join(f"{file.relative_to(package).as_posix()} {hashed(file)}\n" for file in files)
    return hashlib.sha256(told.encode()).hexdigest()
