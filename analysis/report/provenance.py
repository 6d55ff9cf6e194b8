"""Where the numbers of a report come from: the command, versions, commits, devices, and hashes of what was read."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from ablate import words
from ablate.results import Corrupt, Run
from analysis.case import Case

Rows = list[tuple[str, str]]


def provenance(case: Case, folder: Path) -> Rows:
    """A name and a text per fact; what is not known is left out."""
    manifest = case.study.manifest
    versions = ", ".join(f"{name} {version}" for name, version in (manifest.get("versions") or {}).items())
    rows = [
        ("study", manifest["study"]),
        ("study file", manifest.get("experiment")),
        ("source", manifest.get("source")),
        ("command", manifest.get("command")),
        ("planned", manifest.get("created")),
        ("planned last", manifest.get("updated") if manifest.get("updated") != manifest.get("created") else None),
        ("versions", versions),
        *_of_runs(case),
        ("claims, SHA-256", manifest.get("claims_hash")),
        *((f"{path.name}, SHA-256", hashed(path)) for path in sorted(folder.glob("*.csv"))),
        ("analysis source, SHA-256", source()),
    ]
    return [(name, str(text)) for name, text in rows if text]


def _of_runs(case: Case) -> Rows:
    """What the results on disk say of commits, devices, versions and data, with the number of runs where they differ."""
    found: dict[str, Counter[str]] = {name: Counter() for name in ("commit", "device", "versions of runs", "data")}
    for path in case.study.runs.get("path", []):
        result = _result(case.results, path)
        git, versions = result.get("git") or {}, result.get("versions") or {}
        if git.get("commit"):
            found["commit"][str(git["commit"]) + " with changes that were not committed" * bool(git.get("dirty"))] += 1
        if result.get("device"):
            found["device"][str(result["device"])] += 1
        if versions:
            found["versions of runs"][", ".join(f"{name} {version}" for name, version in versions.items())] += 1
        if result.get("data_fingerprint"):
            found["data"][str(result["data_fingerprint"])] += 1
    return [(name, _counted(counter)) for name, counter in found.items()]


def _counted(found: Counter[str]) -> str:
    if len(found) <= 1:
        return "".join(found)
    return "; ".join(f"{text} ({words.counted(n, 'run')})" for text, n in found.most_common())


def _result(results: Path, path: Any) -> dict[str, Any]:
    try:
        return (Run(results, path).result() if isinstance(path, str) else None) or {}
    except (Corrupt, OSError):  # the study's notes say so already
        return {}


def hashed(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def source() -> str:
    """The SHA-256 over all files of the analysis, by name."""
    package = Path(__file__).parents[1]
    files = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    told = "".join(f"{path.relative_to(package).as_posix()} {hashed(path)}\n" for path in files)
    return hashlib.sha256(told.encode()).hexdigest()
