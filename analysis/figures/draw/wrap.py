"""Widths of texts in figures and line wrapping, from the font's metrics."""

import functools
import re
import warnings
from collections.abc import Iterator

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

SIZE = 6.5  # points, of names, results and legends
PIXELS = 1.04  # factor by which rounding of letters to pixels widens a text


@functools.cache
def width_of(text: str, size: float = SIZE) -> float:
    """The width in inches of the longest line of a text at a size in points."""
    font = FontProperties(family="DejaVu Sans", size=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that the font lacks also warn when they are drawn
        widths = [text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in text.split("\n")]
    return float(max(widths)) * PIXELS * size / 100 / 72


def fold(text: str, inches: float, size: float = SIZE) -> str:
    """A text wrapped to a width in inches: at spaces, in long words after a hyphen or a dot, or else anywhere."""
    lines = [""]
    for word in re.findall(r"\s*\S+", text):
        joined = (lines[-1] + word).lstrip()
        if width_of(joined, size) <= inches:
            lines[-1] = joined
        else:
            lines += _pieces(word.lstrip(), inches, size)
    return "\n".join(line for line in lines if line)


def _pieces(word: str, inches: float, size: float) -> Iterator[str]:
    line = ""
    for part in re.split(r"(?<=[-.=_/])", word):
        if line and width_of(line + part, size) > inches:
            yield line
            line = ""
        line += part
        while len(line) > 1 and width_of(line, size) > inches:
            fits = next(n for n in range(len(line) - 1, 0, -1) if n == 1 or width_of(line[:n], size) <= inches)
            yield line[:fits]
            line = line[fits:]
    yield line
