"""What lies on disk, at hand: `ablate.load("results/studies/<study>")`, `ablate.load("results/runs/<cell>/<key>")`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path

from ablate.formatting.suggest import instead
from ablate.python.shown_study import Study
from ablate.results.choose import studies
from ablate.results.kept_tables import holds_tables, read_tables
from ablate.results.study import load_study
from ablate.training.load import LoadedRun, load_run


def load(path: str | Path, user: Iterable[str] = ()) -> LoadedRun | Study:
    """A run by its folder, or a study by its folder, that of its kept tables, or its name in `results`, or where
    ABLATE_RESULTS says.

    `user` names the packages of your own that a run's model may be built from: files allow none.  What is damaged is
    left out, with a warning.  Raises FileNotFoundError where there is neither, `Corrupt` where it cannot be read.
    """
    results = Path(os.environ.get("ABLATE_RESULTS", "results"))
    for folder in (Path(path).resolve(), (results / "studies" / path).resolve()):
        if any((folder / name).exists() for name in ("config.yaml", "result.json")):
            return load_run(folder, user)
        if holds_tables(folder) or (folder / "manifest.json").exists():
            kept = holds_tables(folder)
            return _told(Study.of(read_tables(folder) if kept else load_study(folder.parents[1], folder.name)))
    beside = Path(path).parent
    there = studies(beside.parent if beside.name == "studies" else results)
    raise FileNotFoundError(
        f"{path} is no run and no study; name a folder results/runs/<cell>/s<seed>-<key> or results/studies/<study>"
        + f"; {instead(Path(path).name, there)}" * bool(there)
    )


def _told(study: Study) -> Study:
    for note in study.notes:
        warnings.warn(note, stacklevel=3)
    return study
