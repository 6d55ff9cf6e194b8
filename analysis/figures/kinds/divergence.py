"""Divergence: the share of runs that diverged, per cell."""

import pandas
from matplotlib.figure import Figure

from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import style
from analysis.figures.draw.axes import dots_by_cell, name_x, stacked
from analysis.figures.kind import MOST, Kind, Page

COLUMNS = ["cell", "name", "share", "low", "high", "diverged", "ended"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell: the share of diverged runs among the done and diverged ones, with its Wilson interval.  None if
    no run diverged.  Failed and missing runs are not counted."""
    known = case.cells
    if not known["diverged"].any():
        return None
    ended = known["diverged"] + known["done"]
    made = known.rename(columns={"diverged_low": "low", "diverged_high": "high"})
    made = made.assign(ended=ended, share=known["diverged"] / ended.where(ended > 0))[COLUMNS]
    # Limit the rows by divergence, not by score as other figures do.
    first = made.sort_values("diverged", ascending=False, kind="stable").index[:MOST]
    left = f"{MOST} of {len(made)} configurations shown, those that diverged most; cells.csv has all" * (
        len(made) > MOST
    )
    made = made[made.index.isin(first)]
    measure = "share of runs that diverged, of those that ended; Wilson 95 % intervals, not corrected"
    made.attrs = {"caption": [measure, left]}
    return made.reset_index(drop=True)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A point and an interval per cell from 0 to 1."""
    results = [f"{row.diverged} of {row.ended}" if row.ended else "none ended" for row in named_rows(table)]
    drawn, (axis,) = stacked(table, page, [(table["name"], results)])
    shown = table.assign(y=range(len(table))).dropna(subset="share")
    shades = [page.encodings[cell].colour for cell in shown["cell"]]
    axis.hlines(shown["y"], shown["low"], shown["high"], colors=shades, lw=1.4)
    dots_by_cell(axis, shown, "share", page, False, s=22, linewidth=0, clip_on=False, zorder=3)
    axis.set(xlim=(0, 1), ylabel="")
    name_x(axis, "share of runs that diverged", page)
    axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axis.axvline(0, color=style.INK, lw=0.6)
    return drawn


KIND = Kind("which variants diverge, and how often", table, draw, most=MOST)
