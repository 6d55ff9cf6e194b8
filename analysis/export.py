"""python -m analysis export [STUDY]: runs.csv and curves.parquet, to go on with elsewhere.

runs.csv has a row per run and is read again by `--runs`; curves.parquet has a row per logged step.  In CSV a text that
a spreadsheet would run as a formula has an apostrophe before it.  Exit codes: 0 written; 2 refused in one line.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pandas

from ablate import evidence, words
from ablate.command import Parser, Refused, conclude
from ablate.results import Study, write_atomic
from analysis import load
from analysis.safe import written

FIRST = ("cell", "label", "seed", "status")
SHAPE = ("batches", "params", "flops_per_token")
LAST = ("overfits", "seconds", "path", "error")
ITS_OWN = {"steps", "device", "torch", "ended", "commit", "dirty"}  # what a report says of runs, and no table needs


def main(arguments: list[str] | None = None) -> int:
    """Write a study's runs and curves; the exit code."""
    parser = Parser("python -m analysis export", "Runs and curves of a study as tables: runs.csv and curves.parquet.")
    load.add_arguments(parser)
    parser.add_argument("--to", metavar="FOLDER", type=Path, help="where to write (default: RESULTS/figures/STUDY)")
    given = parser.parse_args(arguments)
    return conclude(parser.prog, lambda: _export(given))


def _export(given: argparse.Namespace) -> int:
    if importlib.util.find_spec("pyarrow") is None:
        raise Refused("curves.parquet needs pyarrow, which is missing: pip install 'ablate[export]'")
    study = load.study_of(given)
    folder = load.folder_of(given, study)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{written(runs_table(study), folder / 'runs.csv')}  {words.counted(len(study.runs), 'run')}")
    if study.curves.empty:
        print("no curves: nothing was logged")
    else:
        write_atomic(folder / "curves.parquet", study.curves.to_parquet(index=False))
        print(f"{folder / 'curves.parquet'}  {words.counted(len(study.curves), 'logged step')}")
    print("\n".join(f"damaged: {note}" for note in study.notes), end="\n" * bool(study.notes))
    return 0


def runs_table(study: Study) -> pandas.DataFrame:
    """A row per run: cell, seed, status, factors, what was chosen for a matched cell, budget, metrics, where it is.

    Cells stand in the study's order, so that a reader who takes first levels for the reference takes the study's.
    """
    runs, factors = study.runs, list(study.manifest["factors"])
    chosen = {cell["id"]: evidence.matched(study.manifest, cell) for cell in study.manifest["cells"]}
    added = pandas.DataFrame([chosen[cell] for cell in runs["cell"]], index=runs.index)
    metrics = [name for name in runs if name not in {*FIRST, *factors, *SHAPE, *LAST, *ITS_OWN}]
    table = runs.join(added)
    return table[[name for name in (*FIRST, *factors, *SHAPE, *added, *metrics, *LAST) if name in table]]
