"""ablate analyse [STUDY]: figures, tables and report of a study, the newest by default.

Exit codes: 0 written; 2 nothing to analyse, or the folder cannot be written, with one line that says why.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ablate import formatting
from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import echo
from ablate.runs.manifest import studies
from ablate.runs.tables import named_rows
from analysis.cli import arguments as arguments_

if TYPE_CHECKING:
    from analysis.case import Case

COMMANDS = {name: f"analysis.cli.{name}" for name in ("export", "verify")}
EPILOG = Path(__file__).with_name("help.txt").read_text("utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Analyse one study; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in COMMANDS:
        return importlib.import_module(COMMANDS[arguments[0]]).main(arguments[1:])
    parser = Parser("ablate analyse", "Figures, tables and report of a study.")
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    arguments_.add_arguments(parser)
    valued = {name for action in parser._actions if action.nargs != 0 for name in action.option_strings}
    pairs = itertools.pairwise(["", *arguments])
    words = [word for before, word in pairs if word.startswith(("style=", "sort=")) and before not in valued]
    given = parser.parse_args(arguments_.as_options([word for word in arguments if word not in words]))
    each = [word.split("=", 1) for word in words]
    given.words = {key: ",".join(value for other, value in each if other == key) for key, _ in each}
    return conclude(parser.prog, given.json, lambda: _analyse(given))


def _analyse(given: argparse.Namespace) -> Outcome:
    study = arguments_.study_of(given)
    folder = arguments_.folder_of(study, given.results_dir, given.to)
    case = arguments_.case(study, folder)
    from ablate import evidence
    from analysis.case.figures_yaml import CHOICES, FILE
    from analysis.cli import output  # slow to import, and not needed for error messages

    for key, value in given.words.items():
        if value not in CHOICES[key]:
            raise Refused(f"{key}={value}: no such {key}; {formatting.instead(value, CHOICES[key])}")
    case = case._replace(words=given.words)
    files, old = output.write(case, folder)
    if not (given.study or study.manifest.source):
        others = "; others: `ablate studies`" * (len(studies(given.results_dir)) > 1)
        echo(f"newest study: {study.manifest.study}{others}")
    echo("\n".join(_lines(case)))
    for key, value in case.words.items():
        echo(f"{key}={value} is kept in {folder / FILE}")
    if old:
        echo(f"removed, of an earlier analysis: {', '.join(old)}")
    echo(f"{formatting.counted(len(files), 'file')} in {folder}; to read: {files[-1]}")
    plain = case.plain or case  # with keys, for other programs
    tables = {"cells": plain.cells, "effects": plain.effects, "claims": plain.claims, "notes": study.notes}
    tables |= {"ladder": plain.further["ladder"]} if "ladder" in plain.further else {}
    tables["replicated"] = evidence.replication(study.manifest, case.claims)
    return Outcome(0, {"study": study.manifest.study, **tables, "folder": folder, "files": files, "removed": old})


def _lines(case: Case) -> list[str]:
    """The claims, the multipliers of a ladder, the verdicts on effects, then notes on them."""
    from ablate import evidence
    from analysis.prose import prose
    from analysis.writing import tables

    study, manifest = case.study, case.study.manifest
    claimed = [*evidence.claim_lines(manifest, case.claims), *evidence.ladder_lines(evidence.ladder(study))]
    found = {"claimed": claimed, "judged": tables.judged, "rows_of": named_rows}
    found["tables"] = {"": case.effects, "effects on the seconds of a training step": evidence.speed(study)}
    together = evidence.families(manifest, int(case.effects["family"].sum()))
    found["remarks"] = [*filter(None, [together]), *tables.remarks(study)]
    return prose("printed.txt", m=manifest, **found)
