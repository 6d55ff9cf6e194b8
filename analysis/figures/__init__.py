"""The figures of a study, chosen by its content; each kind is a table and a function that draws it."""

import dataclasses
import re
import warnings
from pathlib import Path

import pandas
from matplotlib.figure import Figure

from ablate.config.errors import Refused
from ablate.formatting import instead
from ablate.formatting.streams import echo
from analysis.case import Case
from analysis.case.figures_yaml import FILE, Edits, edits_of, shown_cells, write_defaults
from analysis.figures import (
    curves,
    diagnostics,
    forest,
    interactions,
    ladder,
    lines,
    mirror,
    pareto,
    seeds,
    solved,
    style,
    waterfall,
)
from analysis.figures.kind import Kind, Page, page_of
from analysis.figures.stamp import metadata, stamp_of

__all__ = ["KINDS", "Edits", "Kind", "Page", "edits", "page_of", "plot", "tables", "write"]

KINDS: dict[str, Kind] = {  # in the order of the report
    "ladder": ladder.KIND,
    "effects": forest.EFFECTS,
    "claims": forest.CLAIMS,
    "mirror": mirror.KIND,
    "waterfall": waterfall.KIND,
    "interactions": interactions.KIND,
    "seeds": seeds.KIND,
    "curves": curves.KIND,
    "solved": solved.KIND,
    "sensitivity": lines.SENSITIVITY,
    "extrapolation": lines.EXTRAPOLATION,
    "width": lines.WIDTH,
    "pareto": pareto.KIND,
    "diagnostics": diagnostics.KIND,
}

MOST = 24  # lines or configurations of a readable figure
GLYPH = "Glyph .* missing from font"  # Matplotlib's warning, for each letter and figure


def edits(case: Case) -> Edits:
    """The user's figures.yaml of a study.  Raises `Refused`."""
    return edits_of(case.folder / FILE, case.study.manifest, list(KINDS))


def tables(case: Case, edited: Edits | None = None) -> dict[str, pandas.DataFrame]:
    """The table of each figure that a study has data for, by name.  Raises `Refused`."""
    edited = edited or edits(case)
    result = {}
    for name, kind in KINDS.items():
        if edited.figures is None or name in edited.figures:
            table = kind.table(case)
            if table is not None and len(table):
                result[name] = readable(table, case)
    return result


def plot(case: Case, name: str) -> Figure:
    """One figure of a study.  Raises `Refused` for an unknown kind, and if the study has no data for it."""
    if name not in KINDS:
        raise Refused(f"{name}: no such figure; {instead(name, KINDS)}")
    edited = edits(case)
    drawn = tables(case, dataclasses.replace(edited, figures=[name]))
    if name not in drawn:
        available = tables(case, dataclasses.replace(edited, figures=None))
        raise Refused(f"{case.study.manifest.study} has no data for the figure {name}; {instead('', available)}")
    return KINDS[name].draw(drawn[name], page_of(case.study.manifest, edited))


def write(case: Case, folder: Path) -> list[Path]:
    """Draw all figures of a study as PDF and PNG.  Raises `Refused`."""
    edited = edits(case)
    manifest = case.study.manifest
    page = page_of(manifest, edited)
    case.drawn.update(tables(case, edited))
    write_defaults(case.folder / FILE, manifest, case.drawn, style.colours(manifest))
    files = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", GLYPH)
        for name, table in case.drawn.items():
            figure = KINDS[name].draw(table, page)
            files += style.save(figure, folder, name, metadata(stamp_of(name, table, page, case.study)))
    if any(re.match(GLYPH, str(warning.message)) for warning in caught):
        echo("no installed font has some letters of labels, which are drawn as boxes; install e.g. Noto Sans CJK")
    return files


def readable(table: pandas.DataFrame, case: Case) -> pandas.DataFrame:
    """The table with the study's title and, of many lines (`label`) or configurations (`cell`), the first ones; the
    caption says how many.  Of a ladder it has the configurations at its learning rate."""
    manifest = case.study.manifest
    caption = [line for line in table.attrs.get("caption", []) if line]
    shown = table
    if "cell" in table:
        shown = shown[shown["cell"].isin(shown_cells(manifest))]
        unit = "label" if "label" in table else "cell"
        names = shown[unit].unique()
        if len(names) > MOST:
            shown = shown[shown[unit].isin(names[:MOST])]
            caption.append(f"{MOST} of {len(names)} shown; tables have all")
    shown = shown.reset_index(drop=True)
    shown.attrs = table.attrs | {"title": style.title(manifest), "caption": caption}
    return shown
