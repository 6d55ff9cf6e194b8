"""ablate analyse verify FILE: whether a figure still shows the results on disk.

It compares the runs that the figure was drawn from, not how it was drawn: another version of ablate or of figures.yaml
changes no result.  Exit codes: 0 the results are the same; 1 they are not; 2 it cannot be checked.
"""

import argparse
import sys
from pathlib import Path

from ablate import formatting
from ablate.config.errors import Refused
from ablate.config.files import read_regular
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import visible
from ablate.formatting.streams import echo
from ablate.runs.kept_tables import holds_tables
from ablate.runs.manifest import studies
from ablate.runs.study import Study
from analysis import sources
from analysis.cli import arguments as arguments_
from analysis.figures.stamp import Stamp, read_stamp, run_hashes

LARGEST = 2**28  # bytes of a figure
NAMED = 6  # runs that a line names


def main(arguments: list[str] | None = None) -> int:
    """Verify one file; returns the exit code."""
    parser = Parser("ablate analyse verify", "Whether a figure still shows the results on disk.")
    parser.add_argument("file", metavar="FILE", type=Path, help="a PDF or PNG that ablate analyse has made")
    arguments_.add_imported(parser)
    words = arguments_.as_options(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(words, argparse.Namespace(study=None))
    return conclude(parser.prog, options.json, lambda: _verify(options))


def _verify(options: argparse.Namespace) -> Outcome:
    stamp = stamp_in(options.file)
    differences = changes(stamp, study_of(stamp, options))
    for line in differences or [f"matches {stamp['study']}"]:
        echo(f"{options.file}: {line}")
    return Outcome(1 if differences else 0, {"file": options.file, "study": stamp["study"], "differences": differences})


def stamp_in(file: Path) -> Stamp:
    """The stamp of a figure.  Raises `Refused`."""
    try:
        stamp = read_stamp(read_regular(file, LARGEST))
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror})") from None
    if stamp is None or "runs" not in stamp:
        raise Refused(f"{file} is no figure of ablate analyse that names its runs; name a PDF or PNG as it was written")
    return {key: visible(text) for key, text in stamp.items()}


def study_of(stamp: Stamp, options: argparse.Namespace) -> Study:
    """The figure's study as it is now: the imported runs that the command names, whatever the stamp says; else the
    results or the tables in whose folder the figure lies; else of --results-dir.  Raises `Refused`."""
    if options.runs or options.wandb:
        return arguments_.study_of(options)
    if stamp.get("source"):
        why = f"shows runs of other programs ({stamp['source']}); name them as for ablate analyse: --runs FILE …"
        raise Refused(f"{options.file} {why}")
    for folder in options.file.resolve().parents[:3]:  # FOLDER/effects.pdf, or RESULTS/figures/STUDY/effects.pdf
        if stamp["study"] in studies(folder):
            return sources.read(folder, stamp["study"])
        if holds_tables(folder):
            study = sources.read_saved(folder)
            if study.manifest.study == stamp["study"]:
                return study
    return sources.read(options.results_dir, stamp["study"])


def changes(stamp: Stamp, study: Study) -> list[str]:
    """The differences between the runs of a stamp and those of a study, as a line; [] if there are none."""
    before = hashes_by_run(stamp["runs"])
    after = hashes_by_run(run_hashes(study))
    labels = {cell.id: cell.label for cell in study.manifest.cells}
    names = []
    for run in before | after:
        if before.get(run) != after.get(run):
            cell, _, seed = run.rpartition("/")
            names.append(f"{labels.get(cell, cell)} seed {seed}")
    runs = formatting.counted(len(names), "run")
    return [f"{runs} changed, new or gone: {formatting.first_of(names, NAMED)}"] if names else []


def hashes_by_run(text: str) -> dict[str, str]:
    """The hash of each run "cell/seed"."""
    hashes = {}
    for part in text.split(","):
        run, _, digest = part.rpartition(":")
        hashes[run] = digest
    return hashes
