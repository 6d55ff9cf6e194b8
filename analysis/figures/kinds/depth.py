"""Depth: the final metric against the number of layers, with the runs that failed to train."""

from functools import partial

from analysis.figures.draw.lines import draw_lines, lines
from analysis.figures.kind import Kind

DEPTH = "model.layers"
KIND = Kind("the final metric against the number of layers", partial(lines, x=DEPTH), draw_lines)
