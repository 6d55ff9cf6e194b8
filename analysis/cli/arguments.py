"""The arguments that select runs, shared by the commands of the analysis."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.config.errors import Refused
from ablate.config.subcommands import Parser
from ablate.runs.kept_tables import holds_tables
from ablate.runs.manifest import refusing, study_folder
from ablate.runs.study import Study
from analysis.sources import Request, read

if TYPE_CHECKING:
    from analysis.case import Case

# Options that may be written as the keys of a study: metric=val/loss.
SETTINGS = ("metric", "at", "ends")


def case(study: Study, folder: Path) -> Case:
    """The case of a study whose figures go to `folder`.  Raises `Refused` if its manifest is invalid."""
    from analysis.case import case_of

    place = study_folder(study.results, study.manifest.study) if study.results else folder
    with contextlib.nullcontext() if study.manifest.source else refusing(place):
        return case_of(study, folder)


def add_arguments(parser: Parser) -> None:
    """Add the arguments that select a study or imported runs, and the output folder."""
    meaning = "its name, or a folder with its tables (default: the newest)"
    parser.add_argument("study", nargs="?", metavar="STUDY", help=meaning)
    add_imported(parser)
    parser.add_argument("--to", metavar="FOLDER", type=Path, help="where to write (default: RESULTS/figures/STUDY)")


def add_imported(parser: Parser) -> None:
    """Add the arguments that select imported runs."""
    runs = parser.add_argument_group("runs of other programs")
    logs = "a CSV (cell or factors, seed, metrics), or a folder of logs"
    runs.add_argument("--runs", metavar="PATH", type=Path, help=logs)
    runs.add_argument("--wandb", metavar="ENTITY/PROJECT", help="runs on W&B")
    words: dict[str, Any] = {"type": _words, "default": ()}
    runs.add_argument("--factors", metavar="A,B", **words, help="columns or settings that are compared")
    metrics = "the metric to compare by, e.g. test/loss"
    runs.add_argument("--metric", dest="metrics", metavar="NAME", **words, help=metrics)
    direction = runs.add_mutually_exclusive_group()
    direction.add_argument("--lower", action="store_true", default=None, help="less of the metric is better")
    direction.add_argument("--higher", action="store_false", dest="lower", help="more of the metric is better")
    reference = "values to compare with (default: what is called a baseline)"
    runs.add_argument("--reference", metavar="A=X,B=Y", type=_pairs, default=(), help=reference)
    margin = "the difference that does not matter, in the metric's unit"
    runs.add_argument("--margin", metavar="X", type=positive_number, help=margin)
    runs.add_argument("--group", default="", help="of W&B, the runs of this group alone")
    names = "seed and factors in the runs' names: '{norm}-s{seed}', with * for any text"
    runs.add_argument("--names", metavar="PATTERN", default="", help=names)
    runs.add_argument("--seed-from", metavar="KEY", default="", help="the column or setting that is the seed")
    runs.add_argument("--step-from", metavar="COLUMN", default="", help="what counts the training steps")
    runs.add_argument("--unpaired", action="store_true", help="runs of one seed share nothing, or have no seeds")
    point = "also at=best: the point of a curve that counts (default: last)"
    runs.add_argument("--at", choices=["last", "best"], default="", help=point)
    ends = "also ends=own: where runs that end at different steps are compared (default: common)"
    runs.add_argument("--ends", choices=["common", "own"], default="", help=ends)


def as_options(words: list[str]) -> list[str]:
    """The words of a command line, with metric=val/loss, at=best and the like as options."""
    return [f"--{word}" if word.partition("=")[0] in SETTINGS and "=" in word else word for word in words]


def study_of(options: argparse.Namespace) -> Study:
    """The study that a command's arguments name.  Raises `Refused`."""
    request = Request(**{name: value for name, value in vars(options).items() if name in Request._fields})
    sources = {"STUDY": options.study, "--runs": options.runs, "--wandb": options.wandb}
    named = [name for name, value in sources.items() if value]
    if len(named) > 1:
        raise Refused(f"{' and '.join(named)} are different runs; leave all but one out")
    if options.runs:
        from analysis.sources.files import read_runs

        return read_runs(options.runs, request)
    if options.wandb:
        from analysis.sources.wandb_api import read_wandb

        return read_wandb(options.wandb, request)
    if request != Request():
        raise Refused(
            "--factors, --metric, --reference and the like are for runs of other programs, named by --runs or --wandb"
        )
    return read(options.results_dir, options.study)


def folder_of(study: Study, results: Path, to: Path | None) -> Path:
    """The folder that a study's output is written to: `to`, or RESULTS/figures/STUDY.  Raises `Refused`, also where
    imported runs would overwrite the figures of a study of ablate with the same name."""
    name = study.manifest.study
    folder = to or results / "figures" / name
    if study.manifest.source and not to and (results / "studies" / name).is_dir():
        raise Refused(f"{folder} is for the study {name} itself, not for runs of other programs; write --to FOLDER")
    if holds_tables(folder):
        raise Refused(f"{folder} holds a study's tables, which must stay as they are; write --to another FOLDER")
    if not to and not folder.resolve().is_relative_to(results.resolve()):
        raise Refused(f"{folder} is a link that leads out of {results}; write --to FOLDER")
    return folder


def positive_number(text: str) -> float:
    """A finite number above 0.  Raises ValueError."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for word in re.split(r",(?=[^,=]+=)", text):  # levels may have commas
        name, _, level = word.partition("=")
        if not level.strip():
            raise argparse.ArgumentTypeError(f"write FACTOR=LEVEL,FACTOR=LEVEL in place of {text}")
        pairs.append((name.strip(), level.strip()))
    return tuple(pairs)
