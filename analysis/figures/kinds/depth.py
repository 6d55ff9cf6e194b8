"""Depth: the final metric against the number of layers, with the runs that failed to train."""

import pandas

from analysis.case import Case
from analysis.figures.draw.lines import draw_lines, lines
from analysis.figures.kind import Kind

DEPTH = "model.layers"


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell, see `lines`; None for a study of one depth."""
    return lines(case, DEPTH)


KIND = Kind("the final metric against the number of layers", table, draw_lines)
