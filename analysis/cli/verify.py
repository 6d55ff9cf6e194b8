"""ablate analyse verify FILE: whether a figure still matches the results on disk.

Exit codes: 0 it matches; 1 it does not; 2 it cannot be checked.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

from ablate.config.errors import Refused
from ablate.config.files import read_regular
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import visible
from ablate.formatting.streams import echo
from ablate.runs.kept_tables import holds_tables
from ablate.runs.manifest import choose_study
from analysis import figures, sources
from analysis.case import Case
from analysis.case.figures_yaml import FILE
from analysis.cli import arguments as arguments_
from analysis.figures.kind import page_of
from analysis.figures.stamp import Stamp, read_stamp, stamp_of
from analysis.prose import prose

LARGEST = 2**28  # bytes of a figure


def main(arguments: list[str] | None = None) -> int:
    """Verify one file; returns the exit code."""
    parser = Parser("ablate analyse verify", "Whether a figure still is what the results on disk give.")
    parser.add_argument("file", metavar="FILE", type=Path, help="a PDF or PNG that ablate analyse has made")
    arguments_.add_imported(parser)
    held = "A figure in RESULTS/figures/STUDY is held against RESULTS, one beside a study's tables against those"
    parser.epilog = f"{held}, unless --results-dir says otherwise; one of other programs' runs against those named."
    usual = Path(parser.get_default("results_dir"))
    given = parser.parse_args(
        arguments_.as_options(sys.argv[1:] if arguments is None else arguments),
        argparse.Namespace(results_dir=None, study=None),
    )
    return conclude(parser.prog, given.json, lambda: _verify(given, usual))


def _verify(given: argparse.Namespace, usual: Path) -> Outcome:
    file, stamped = given.file, _stamped(given.file)
    case = _case(stamped, given, usual)
    name, edits = stamped["figure"], dataclasses.replace(figures.edits(case), figures=[stamped["figure"]])
    if name not in figures.KINDS:
        raise Refused(f"this version has no figure {name}")
    table = figures.tables(case, edits).get(name)  # None if the study no longer has data for it
    now = None if table is None else stamp_of(name, table, page_of(case.study.manifest, edits), case.study)
    changed = _changed(stamped, now, case) if now and stamped.get("runs") and now.get("runs") else None
    differences = prose("verify.txt", was=stamped, now=now, changed=changed)
    echo("\n".join(f"{file}: {line}" for line in differences or [f"matches {stamped['study']}"]))
    return Outcome(1 if differences else 0, {"file": file, "study": stamped["study"], "differences": differences})


def _stamped(file: Path) -> Stamp:
    try:
        data = read_regular(file, LARGEST)
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror})") from None
    found = read_stamp(data)
    if found is None:
        raise Refused(f"{file} is no figure of ablate analyse, or its metadata have been removed")
    return {key: visible(text) for key, text in found.items()}


def _case(stamped: Stamp, given: argparse.Namespace, usual: Path) -> Case:
    """The figure's study in its current state, with figures.yaml: the imported runs that the command names, whichever
    the stamp names; else tables saved in the figure's folder or the one above; else of the results.  Raises `Refused`
    if they are gone or damaged."""
    file, results = given.file, given.results_dir
    above = [*file.resolve().parents, Path()]

    def edits(results: Path, study: str) -> Path:
        return file.parent if (file.parent / FILE).exists() else results / "figures" / study

    if stamped.get("source") or given.runs or given.wandb:
        if not given.runs and not given.wandb:
            why = f"shows runs of other programs ({stamped['source']}); name them as for ablate analyse: --runs FILE …"
            raise Refused(f"{file} {why}")
        given.results_dir = results or usual  # it holds the cache of W&B runs
        study = arguments_.study_of(given)
        return arguments_.case(study, edits(given.results_dir, study.manifest.study))
    saved = None if results else next((each for each in file.resolve().parents[:2] if holds_tables(each)), None)
    if saved and (study := sources.read_saved(saved)).manifest.study == stamped["study"]:
        return arguments_.case(study, saved)
    # The results whose figures/STUDY contains the file.
    there = above[1].name == "figures" and (above[2] / "studies" / stamped["study"] / "manifest.json").is_file()
    results = results or (above[2] if there else usual)
    name = choose_study(results, stamped["study"])
    return arguments_.case(sources.read(results, name), edits(results, name))


def _changed(stamped: Stamp, now: Stamp, case: Case) -> dict[str, list[str]]:
    """The runs that have changed, are new or are gone."""
    both = ([run.rsplit(":", 1) for run in each["runs"].split(",")] for each in (stamped, now))
    before, after = ({run[0]: run[-1] for run in each} for each in both)
    labels = {cell.id: cell.label for cell in case.study.manifest.cells}
    kinds = {
        "changed": [run for run in after if run in before and before[run] != after[run]],
        "new": [run for run in after if run not in before],
        "gone": [run for run in before if run not in after],
    }
    parts = {how: [run.rpartition("/") for run in runs] for how, runs in kinds.items() if runs}
    return {how: [f"{labels.get(cell, cell)} seed {seed}" for cell, _, seed in runs] for how, runs in parts.items()}
