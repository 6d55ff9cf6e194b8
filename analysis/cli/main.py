"""ablate analyse [STUDY]: figures, tables and report of a study, the newest by default.

Exit codes: 0 written; 2 nothing to analyse, or the folder cannot be written, with one line that says why.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from functools import partial
from typing import TYPE_CHECKING

from ablate import formatting
from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import echo
from ablate.runs import naming
from ablate.runs.manifest import studies
from ablate.runs.tables import named_rows
from analysis.cli import arguments as arguments_

if TYPE_CHECKING:
    from analysis.case import Case

COMMANDS = {name: f"analysis.cli.{name}" for name in ("export", "verify")}
EFFECTS = 16  # effects, and remarks, that are printed; files have all
REMARKS = 12
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
    style = "also style=acl: default, neurips, icml, acl, slides; kept in figures.yaml"
    parser.add_argument("--style", metavar="STYLE", help=style)
    parser.add_argument("--sort", metavar="effect", help="also sort=effect: rows of figures by effect; kept there, too")
    given = parser.parse_args(arguments_.as_options(arguments))
    return conclude(parser.prog, given.json, lambda: _analyse(given))


def _analyse(given: argparse.Namespace) -> Outcome:
    study = arguments_.study_of(given)
    folder = arguments_.folder_of(study, given.results_dir, given.to)
    case = arguments_.case(study, folder)
    from ablate import evidence
    from analysis.case.figures_yaml import CHOICES, FILE
    from analysis.writing import output  # slow to import, and not needed for error messages

    words = {key: getattr(given, key) for key in CHOICES if getattr(given, key)}
    for key, value in words.items():
        if value not in CHOICES[key]:
            raise Refused(f"{key}={value}: no such {key}; {formatting.instead(value, CHOICES[key])}")
    case = case._replace(words=words)
    files, old = output.write(case, folder)
    if not (given.study or study.manifest.source):
        others = "; others: `ablate studies`" if len(studies(given.results_dir)) > 1 else ""
        echo(f"newest study: {study.manifest.study}{others}")
    echo("\n".join(lines(case)))
    for key, value in words.items():
        echo(f"{key}={value} is kept in {folder / FILE}")
    if old:
        echo(f"removed, of an earlier analysis: {', '.join(old)}")
    echo(f"{formatting.counted(len(files), 'file')} in {folder}; to read: {files[-1]}")
    plain = case.plain or case  # with keys, for other programs
    tables = {"cells": plain.cells, "effects": plain.effects, "claims": plain.claims, "notes": study.notes}
    if "ladder" in plain.further:
        tables["ladder"] = plain.further["ladder"]
    tables["replicated"] = evidence.replication(study.manifest, case.claims)
    return Outcome(0, {"study": study.manifest.study, **tables, "folder": folder, "files": files, "removed": old})


def lines(case: Case) -> list[str]:
    """That runs are missing, the claims, the multipliers of a ladder, the verdicts on effects, then notes on them."""
    from ablate import evidence
    from analysis.writing.tables import difference, remarks, unfinished

    study = case.study
    manifest = study.manifest
    interim = unfinished(study)
    texts = [interim, *evidence.claim_lines(manifest, case.claims), *evidence.ladder_lines(evidence.ladder(study))]
    speed = evidence.speed(study)
    for heading, table in (("", case.effects), ("effects on the seconds of a training step", speed)):
        if table.empty:
            continue
        texts.append(heading)
        shown = evidence.headline(table)
        for row in named_rows(evidence.decided_first(shown).head(EFFECTS)):
            verdict = formatting.verdict(row, partial(naming.assigned, manifest))
            grounds = "; ".join(filter(None, [verdict, evidence.also_words(row.also)]))
            texts.append(f"{row.label}  {difference(row)}  {formatting.over(row)}  {grounds}")
        texts.append(more(len(shown) - EFFECTS, "effect"))
    together = evidence.families(manifest, int(case.effects["family"].sum()))
    notes = [text for text in (together, *remarks(study)) if text and text != interim]
    texts += [*notes[:REMARKS], more(len(notes) - REMARKS, "remark")]
    return [text for text in texts if text]


def more(count: int, noun: str) -> str:
    """A line on what the files have besides; "" if that is nothing."""
    return f"… {formatting.counted(count, f'more {noun}')} in the files" if count > 0 else ""
