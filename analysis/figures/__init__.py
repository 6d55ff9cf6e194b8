"""The figures of a study, chosen by its content; each kind is a table and a function that draws it."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pandas
from matplotlib.figure import Figure

from ablate import formatting
from ablate.config.errors import Refused
from ablate.formatting import instead, visible
from ablate.formatting.streams import echo
from ablate.runs.files import write_atomic
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows
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

PANELS = 6  # of a figure with a panel per stratum
UNITS = {"cell": "configurations", "label": "lines", "facet": "panels"}  # what is shown or left out as a whole


def edits(case: Case) -> Edits:
    """The user's figures.yaml of a study.  Raises `Refused`."""
    return edits_of(case.folder / FILE, case.study.manifest, list(KINDS))


def tables(case: Case, edited: Edits | None = None) -> dict[str, pandas.DataFrame]:
    """The table of each figure of a study, by name, with the user's subset and order.  Raises `Refused`."""
    edited = edited or edits(case)
    result = {}
    for name, kind in KINDS.items():
        if edited.figures is None or name in edited.figures:
            table = kind.table(case)
            if table is not None:
                result[name] = select(table, case, edited, kind.most)
    return result


def plot(case: Case, name: str) -> Figure:
    """One figure of a study.  Raises `Refused` for an unknown kind, and if the study has no data for it."""
    if name not in KINDS:
        raise Refused(f"{name}: no such figure; {instead(name, KINDS)}")
    edited = edits(case)
    drawn = tables(case, dataclasses.replace(edited, figures=[name]))
    if name not in drawn:
        available = tables(case, dataclasses.replace(edited, figures=None))
        needs = f", which needs {KINDS[name].needs}" if KINDS[name].needs else ""
        raise Refused(f"{case.study.manifest.study} has no data for the figure {name}{needs}; {instead('', available)}")
    return KINDS[name].draw(drawn[name], page_of(case.study.manifest, edited))


def write(case: Case, folder: Path) -> list[Path]:
    """Draw all figures of a study as PDF and PNG, with a text file for each caption.  Raises `Refused`."""
    edited = edits(case)
    manifest = case.study.manifest
    page = page_of(manifest, edited)
    case.drawn.update(tables(case, edited))
    write_defaults(case.folder / FILE, manifest, case.drawn, style.colours(manifest))
    files = []
    missing: set[str] = set()
    for name, table in case.drawn.items():
        figure = KINDS[name].draw(table, page)
        missing |= style.missing_letters(figure)
        files += style.save(figure, folder, name, metadata(stamp_of(name, table, page, case.study)))
        text = "\n".join([table.attrs["title"], *table.attrs["caption"], ""])
        files.append(write_atomic(folder / f"{name}.txt", "\n".join(map(visible, text.split("\n"))).encode()))
    if edited.figures is None and len(case.study.curves) and "curves" not in case.drawn:
        echo(f"no figure curves, which needs {curves.KIND.needs}")
    if missing:
        echo(f"no installed font has {''.join(sorted(missing))}: figures show boxes; install one, e.g. Noto Sans CJK")
    return files


def select(table: pandas.DataFrame, case: Case, edited: Edits, most: int) -> pandas.DataFrame:
    """The rows that are shown, in the user's order; the caption says what is left out: of too many, effects with the
    largest p, and the last configurations of the plan.  Lines that join cells are shown or left out as a whole."""
    manifest = case.study.manifest
    caption = [line for line in table.attrs.get("caption", []) if line]
    title = table.attrs.get("title") or style.title(manifest)
    shown = table
    if "cell" in table or "level" in table:
        if "cell" in table:
            unit = table[table.attrs.get("unit", "cell")]
            chosen = table[table["cell"].isin(shown_cells(manifest, edited))]
        else:
            unit = table.index.to_series()
            is_chosen = [is_in_subset(row, edited) for row in named_rows(table)]
            chosen = table[pandas.Series(is_chosen, table.index, dtype=bool)]
        if unit.name == "facet":
            most = PANELS
        if "p" in table:
            chosen = chosen.sort_values("p", kind="stable")
        units = unit[chosen.index].unique()[:most]
        shown = table[table.index.isin(chosen.index) & unit.isin(units)]
        if len(units) < unit.nunique():
            total = f"{unit.nunique()} {UNITS.get(str(unit.name), 'rows')}"
            caption.append(f"{len(units)} of {total} shown; tables have all, subset in figures.yaml chooses")
    if edited.order or edited.sort:
        shown = ordered(shown, manifest, edited)
    shown = shown.reset_index(drop=True)
    shown.attrs = table.attrs | {"title": title, "caption": caption}
    return shown


def is_in_subset(row: Any, edited: Edits) -> bool:
    """Whether the levels of a row of effects, and of its stratum, are in the user's subset."""
    for factor, level in factor_levels(row):
        if level not in edited.levels.get(factor, [level]) and not level.startswith(formatting.PER):
            return False
    return True


def factor_levels(row: Any) -> list[tuple[str, str]]:
    """The factors of a row of effects with their levels."""
    return list(zip(str(row.factor).split(" x "), formatting.levels_of(row), strict=False))


def ordered(table: pandas.DataFrame, manifest: Manifest, edited: Edits) -> pandas.DataFrame:
    """The rows in the user's order of levels, or by their effect, within each group of rows; those that it does not
    mention come last, as they stand."""
    levels = {}
    for cell in manifest.cells:
        levels[cell.id] = [(name, formatting.show(level)) for name, level in cell.levels.items()]
    keys = []
    places_of_groups: dict[str, int] = {}  # groups stay in their order
    for row in named_rows(table):
        group = ""
        pairs = []
        if "cell" in table:
            pairs = levels.get(row.cell, [])
        elif "level" in table:
            pairs = factor_levels(row)
            group = str([getattr(row, name, "") for name in ("facet", "family", "stratum", "kind", "factor")])
        places = []
        for factor, level in pairs:
            order = edited.order.get(factor, [])
            places.append(order.index(level) if level in order else len(order))
        is_by_effect = edited.sort and "level" in table and not math.isnan(row.mean)
        place_of_group = places_of_groups.setdefault(group, len(places_of_groups))
        keys.append((place_of_group, places, row.mean if is_by_effect else 0.0))
    return table.iloc[sorted(range(len(table)), key=lambda row: keys[row])]
