"""Which trained models still lack tests at lengths that are asked for: what the files of their runs say."""

from __future__ import annotations

from pathlib import Path

from ablate.config.errors import Corrupt
from ablate.results.records import Manifest
from ablate.results.run import Run


def lacking(run: Run, lengths: list[int]) -> list[int]:
    """The lengths that a run has not been tested at, or of which the file cannot be read."""
    try:
        known = run.evaluation()
    except Corrupt:
        return lengths
    return [length for length in lengths if f"test/loss@{length}" not in known]


def untested(results: Path, manifest: Manifest, statuses: dict[str, str]) -> dict[str, list[int]]:
    """Path of each run that is done but lacks lengths that its cell asks for, and which."""
    lengths = {cell.id: cell.config.eval.lengths for cell in manifest.cells}
    done = [run for run in manifest.runs if statuses.get(run.path) == "done" and lengths[run.cell]]
    found = {run.path: lacking(Run(results, run.path), lengths[run.cell]) for run in done}
    return {path: lacks for path, lacks in found.items() if lacks}
