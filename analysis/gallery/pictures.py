"""The figures of a committed study: the one that mirrors the paper's, effects, claims; PNG beside what is plotted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib
import pandas

from analysis import figures
from analysis.case import Case
from analysis.escape import csv_text
from analysis.figures.draw import style
from analysis.figures.draw.page import Page, page_of
from analysis.figures.stamp import Stamp, drawing_hash, metadata, read_stamp, stamp_of

COMMAND = "ablate analyse gallery"
DIGITS = 10  # of a plotted number that are equal on all machines; sums may be made in another order


def tables(case: Case) -> dict[str, pandas.DataFrame]:
    """What each figure plots, by its name: the study's own first, then effects and claims, of those that it has."""
    wanted = [name for name in dict.fromkeys([case.study.manifest.figure, "effects", "claims"]) if name]
    found = figures.tables(case, dataclasses.replace(figures.edits(case), figures=wanted))
    return {name: found[name] for name in wanted if name in found}


def plotted(table: pandas.DataFrame) -> str:
    """A figure's table as CSV, the same on all machines."""
    return csv_text(table.map(lambda value: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value))


def draw(case: Case, shown: dict[str, pandas.DataFrame], folder: Path) -> list[Path]:
    """Draw the figures whose files are not of these tables, or not of the drawing code of today; those files."""
    page, files = page_of(case.study.manifest, figures.edits(case)), []
    with matplotlib.rc_context(style.RC):
        for name, table in shown.items():
            stamped, file = stamp(case, name, table, page), folder / f"{name}.png"
            if not _current(file, stamped):
                style.save_png(figures.KINDS[name].draw(table, page), file, metadata(stamped))
                files.append(file)
    return files


def stamp(case: Case, name: str, table: pandas.DataFrame, page: Page) -> Stamp:
    """What the file of a figure says of itself."""
    return stamp_of(name, table, page, case.study) | {"command": COMMAND, "drawing": drawing_hash()}


def _current(file: Path, stamped: Stamp) -> bool:
    """Whether a figure needs no drawing: other versions of matplotlib, and code that draws nothing, make no new one."""
    try:
        there = read_stamp(file.read_bytes()) or {}
    except FileNotFoundError:
        return False
    return all(there.get(key) == stamped[key] for key in ("table", "drawing"))
