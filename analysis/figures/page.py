"""What a figure needs beside its table: width, colours, looks and names, as the user has them in figures.yaml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas
from matplotlib.figure import Figure

from ablate import words
from analysis.figures import style
from analysis.figures.edits import Edits


class Page(NamedTuple):
    """The manifest of the study, the width in inches, what stands for names, and the look of variants and cells."""

    manifest: dict[str, Any]
    width: float
    names: dict[str, str]  # of factors and levels, what to write instead
    colours: dict[tuple[str, str], str]  # of (factor, level as text)
    looks: dict[str, style.Look]  # of cell ids

    def label(self, text: object) -> str:
        """A text with the user's names for factors and levels; for columns that `relabelled` has not done already."""
        return relabelled(str(text), self.names)

    def colour(self, factor: str, level: object) -> str:
        """The colour of a variant, ink for what is none."""
        return self.colours.get((factor, words.show(level)), style.INK)

    def figure(self, table: pandas.DataFrame, height: float, more: Sequence[str] = ()) -> Figure:
        """An empty figure with the title and the caption of its table, and more; `height` in inches without them."""
        return style.figure(self.width, [table.attrs["title"], *table.attrs["caption"], *more], height)

    @property
    def narrow(self) -> bool:
        """Whether panels must stand below each other: one column of two."""
        return self.width < 4.5


def page_of(manifest: dict[str, Any], edits: Edits) -> Page:
    """The page of a study with the edits of its user."""
    colours = style.colours(manifest) | edits.colours
    return Page(manifest, edits.width, edits.labels, colours, style.looks(manifest, colours))


def relabelled(text: str, names: dict[str, str]) -> str:
    """A text in which whole words that are names of factors and levels are replaced, each once."""
    if not names:
        return text
    longest = sorted(names, key=len, reverse=True)
    pattern = r"(?<![\w.-])(" + "|".join(map(re.escape, longest)) + r")(?![\w-]|\.\w)"
    return re.sub(pattern, lambda found: names[found[1]], text)
