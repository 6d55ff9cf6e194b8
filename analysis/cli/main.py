"""ablate analyse [STUDY]: figures, tables and report of a study, the newest by default.

Exit codes: 0 written; 2 nothing to analyse, or the folder cannot be written, with one line that says why.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING

from ablate import formatting
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import echo
from ablate.runs.tables import named_rows
from analysis.cli import arguments as arguments_

if TYPE_CHECKING:
    from analysis.case import Case

COMMANDS = {name: f"analysis.cli.{name}" for name in ("export", "verify")}
EFFECTS = 16  # effects that are printed; files have all
EPILOG = """also:
  ablate analyse export [STUDY]   runs.csv and curves.parquet, for other programs
  ablate analyse verify FILE      whether a figure still shows the results on disk"""


def main(arguments: list[str] | None = None) -> int:
    """Analyse one study; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in COMMANDS:
        return importlib.import_module(COMMANDS[arguments[0]]).main(arguments[1:])
    parser = Parser("ablate analyse", "Figures, tables and report of a study.")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    arguments_.add_arguments(parser)
    options = parser.parse_args(arguments_.as_options(arguments))
    return conclude(parser.prog, options.json, lambda: _analyse(options))


def _analyse(options: argparse.Namespace) -> Outcome:
    study = arguments_.study_of(options)
    folder = arguments_.folder_of(study, options.results_dir, options.to)
    case = arguments_.case(study, folder)
    from ablate import evidence
    from analysis.writing import output  # slow to import, and not needed for error messages

    files = output.write(case, folder)
    if not (options.study or study.manifest.source):
        echo(f"newest study: {study.manifest.study}")
    echo("\n".join(lines(case)))
    echo(f"{formatting.counted(len(files), 'file')} in {folder}; to read: {files[-1]}")
    plain = case.plain or case  # with keys, for other programs
    tables = {"cells": plain.cells, "effects": plain.effects, "claims": plain.claims, "notes": study.notes}
    if "ladder" in plain.further:
        tables["ladder"] = plain.further["ladder"]
    tables["replicated"] = evidence.replication(study.manifest, case.claims)
    return Outcome(0, {"study": study.manifest.study, **tables, "folder": folder, "files": files})


def lines(case: Case) -> list[str]:
    """That runs are missing, the claims, the multipliers of a ladder, the verdicts on effects, then notes on them."""
    from ablate import evidence
    from analysis.writing.tables import difference, remarks, unfinished

    study = case.study
    manifest = study.manifest
    interim = unfinished(study)
    texts = [interim, *evidence.claim_lines(manifest, case.claims), *evidence.ladder_lines(evidence.ladder(study))]
    tables = {"": case.effects}
    if "speed" in case.further:
        tables["effects on the seconds of a training step"] = case.further["speed"]
    for heading, table in tables.items():
        if table.empty:
            continue
        texts.append(heading)
        shown = evidence.headline(table)
        for row in named_rows(evidence.decided_first(shown).head(EFFECTS)):
            verdict = formatting.verdict(row)
            grounds = "; ".join(filter(None, [verdict, evidence.also_words(row.also)]))
            texts.append(f"{row.label}  {difference(row)}  {formatting.over(row)}  {grounds}")
        if len(shown) > EFFECTS:
            texts.append(f"… {formatting.counted(len(shown) - EFFECTS, 'more effect')} in the files")
    together = evidence.families(manifest, int(case.effects["family"].sum()))
    notes = [text for text in (together, *remarks(study)) if text != interim]
    return [text for text in (*texts, *notes) if text]
