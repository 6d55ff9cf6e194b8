"""How wide a text is in a figure, and where it is broken into lines: by the font's own widths, not by a guess."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import FT2Font, LoadFlags

SIZE = 6.5  # points: of names, results and legends
PIXELS = 1.04  # how much wider a text gets where its letters are fitted to pixels


@functools.cache
def _font() -> FT2Font:
    return get_font(findfont(FontProperties(family="DejaVu Sans")))


@functools.cache
def _advance(character: str) -> float:
    """The width of a character in units of its size; that of a square for one that the font lacks."""
    font = _font()
    if not font.get_char_index(ord(character)):
        return 1.0
    font.set_size(100, 72)
    return float(font.load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance) / 65536 / 100


def width_of(text: str, size: float = SIZE) -> float:
    """The inches that the longest line of a text takes at a size in points."""
    return max(sum(map(_advance, line)) for line in text.split("\n")) * PIXELS * size / 72


def fold(text: str, inches: float, size: float = SIZE) -> str:
    """A text in lines of so many inches: broken at spaces, in long words behind a hyphen or a dot, at last anywhere."""
    lines = [""]
    for word in re.findall(r"\s*\S+", text):
        joined = (lines[-1] + word).lstrip()
        if width_of(joined, size) <= inches:
            lines[-1] = joined
        else:
            lines += _pieces(word.lstrip(), inches, size)
    return "\n".join(line for line in lines if line)


def _pieces(word: str, inches: float, size: float) -> Iterator[str]:
    """A word in pieces that fit a line each."""
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
