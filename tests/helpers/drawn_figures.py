"""A figure with its table, and the lines that are in it."""

from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis import figures
from analysis.case import Case
from analysis.case.figures_yaml import Edits
from analysis.figures.kind import page_of


def drawn(name: str, case: Case, **edits: Any) -> tuple[pandas.DataFrame, Figure]:
    """A figure with its table."""
    edited = Edits(figures=[name], **edits)
    table = figures.tables(case, edited)[name]
    return table, figures.KINDS[name].draw(table, page_of(case.study.manifest, edited))


def has_line(axis: Axes, x: Any, y: Any) -> bool:
    """Whether a line, a stretch or a dot with these coordinates is drawn."""
    lines = [np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float) for line in axis.lines]
    for collection in axis.collections:
        if isinstance(collection, LineCollection):
            lines += collection.get_segments()
    wanted = np.column_stack([np.atleast_1d(x), np.atleast_1d(y)]).astype(float)
    return any(line.shape == wanted.shape and np.allclose(line, wanted) for line in lines)
