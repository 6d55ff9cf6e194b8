"""The figures of a study, chosen by its content; each kind is a table and a function that draws it."""

import dataclasses
from importlib import import_module
from pathlib import Path

import matplotlib
import pandas
from matplotlib.figure import Figure

from ablate.config.errors import Refused
from ablate.formatting import instead, visible
from ablate.results.atomic import write_atomic
from analysis.case import Case
from analysis.case.figures_yaml import FILE, Edits, edits_of, write_defaults
from analysis.figures.draw import style
from analysis.figures.draw.page import page_of
from analysis.figures.kind import Kind, Page
from analysis.figures.stamp import metadata, stamp_of
from analysis.figures.subset import select

__all__ = ["KINDS", "Edits", "Kind", "Page", "edits", "plot", "tables", "write"]

# In the order of the report.
ORDER = "effects claims mirror waterfall main_effects interactions placebos proxy divergence looks seeds curves solved"
ORDER += " sensitivity extrapolation depth width pareto diagnostics"
KINDS: dict[str, Kind] = {name: import_module(f"analysis.figures.kinds.{name}").KIND for name in ORDER.split()}


def edits(case: Case) -> Edits:
    """The user's figures.yaml of a study.  Raises `Refused`."""
    return edits_of(edits_file(case), case.study.manifest, list(KINDS), case.words)


def edits_file(case: Case) -> Path:
    """The path of a study's figures.yaml."""
    return case.folder / FILE


def tables(case: Case, given: Edits | None = None) -> dict[str, pandas.DataFrame]:
    """The table of each figure of a study, by name, with the user's subset and order.  Raises `Refused`."""
    given = given or edits(case)
    found = {}
    for name in [name for name in KINDS if given.figures is None or name in given.figures]:
        table = KINDS[name].table(case)
        if table is not None:
            found[name] = select(table, case, given, KINDS[name].most)
    return found


def plot(case: Case, name: str) -> Figure:
    """One figure of a study.  Raises `Refused` for an unknown kind, and if the study has no data for it."""
    if name not in KINDS:
        raise Refused(f"{name}: no such figure; {instead(name, KINDS)}")
    given = dataclasses.replace(edits(case), figures=[name])
    with matplotlib.rc_context(style.RC):
        drawn = tables(case, given)
        if name not in drawn:
            there = tables(case, dataclasses.replace(given, figures=None))
            raise Refused(f"{case.study.manifest.study} has no data for the figure {name}; {instead('', there)}")
        return KINDS[name].draw(drawn[name], page_of(case.study.manifest, given))


def write(case: Case, folder: Path) -> list[Path]:
    """Draw all figures of a study as PDF and PNG, with a text file for each caption.  Raises `Refused`."""
    given = edits(case)
    manifest, files = case.study.manifest, []
    page = page_of(manifest, given)
    with matplotlib.rc_context(style.RC):
        case.drawn.update(tables(case, given))
        write_defaults(edits_file(case), manifest, case.drawn, style.colours(manifest), case.words)
        for name, table in case.drawn.items():
            drawn = KINDS[name].draw(table, page)
            files += style.save(drawn, folder, name, metadata(stamp_of(name, table, page, case.study)))
            files.append(folder / f"{name}.txt")
            text = "\n".join(map(visible, [table.attrs["title"], *table.attrs["caption"], ""]))
            write_atomic(files[-1], text.encode())
    return files
