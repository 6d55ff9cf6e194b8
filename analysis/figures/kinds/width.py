"""Width: the final metric against the model's width, a panel per value of another numeric factor, such as context."""

import pandas

from analysis.case import Case
from analysis.figures.draw.lines import draw_lines, lines, swept
from analysis.figures.kind import Kind

WIDTH = "model.dim"
FIRST = "data.context"  # preferred for the panels if several numbers vary


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell, see `lines`; None for a study of one width."""
    others = sorted((name for name in swept(case.study.manifest) if name != WIDTH), key=lambda name: name != FIRST)
    return lines(case, WIDTH, others[:1])


KIND = Kind("the final metric against the model's width", table, draw_lines)
