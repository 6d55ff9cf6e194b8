"""ablate analyse export [STUDY]: runs.csv and curves.parquet, for use in other programs.

runs.csv has a row per run and can be read by `--runs`; curves.parquet has a row per logged step; both have a column per
factor.  In CSV, texts that a spreadsheet would run as a formula begin with an apostrophe.  Exit codes: 0 written; 2
refused in one line.
"""

import argparse
import sys

from ablate.config.extra import installed
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import show
from ablate.formatting.streams import echo
from ablate.runs.files import write_atomic
from analysis.cli import arguments as arguments_
from analysis.writing.tables import damage, runs_csv, write_csv


def main(arguments: list[str] | None = None) -> int:
    """Write a study's runs and curves; returns the exit code."""
    parser = Parser("ablate analyse export", "Runs and curves of a study as tables: runs.csv and curves.parquet.")
    arguments_.add_arguments(parser)
    options = parser.parse_args(arguments_.as_options(sys.argv[1:] if arguments is None else arguments))
    return conclude(parser.prog, options.json, lambda: _export(options))


def _export(options: argparse.Namespace) -> Outcome:
    installed("pyarrow", "curves.parquet", "export")
    study = arguments_.study_of(options)
    folder = arguments_.folder_of(study, options.results_dir, options.to)
    folder.mkdir(parents=True, exist_ok=True)
    files = [write_csv(runs_csv(study), folder / "runs.csv")]
    if len(study.curves):
        curves = study.curves.copy()
        for name in study.manifest.factors:
            if name in curves and curves[name].dtype == object:  # a Parquet column has one type
                curves[name] = curves[name].map(show)
        files.append(write_atomic(folder / "curves.parquet", curves.to_parquet(index=False)))
    echo("\n".join([*map(str, files), *damage(study)]))
    return Outcome(0, {"study": study.manifest.study, "files": files, "notes": study.notes})
