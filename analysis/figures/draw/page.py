"""The page of a figure: width, colours, encodings and labels, with the user's changes from figures.yaml."""

import io
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import pandas
from matplotlib.figure import Figure

from ablate import formatting
from ablate.results import naming
from ablate.results.records import Manifest
from analysis.case.figures_yaml import Edits
from analysis.figures.draw import style
from analysis.figures.draw.style import fold


class ShownFigure(Figure):
    """A figure that a notebook shows, without pyplot."""

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file, matplotlib.rc_context(style.RC):
            self.savefig(file, format="png", dpi=style.DPI)
            return file.getvalue()


class Page(NamedTuple):
    """The manifest of the study, the width in inches, and the encoding of variants and cells."""

    manifest: Manifest
    width: float
    colours: dict[tuple[str, str], str]  # by (factor, level as text)
    encodings: dict[str, style.Encoding]  # by cell id
    caption: bool = False  # whether captions are drawn into the image

    def label(self, name: object, factor: str = "") -> str:
        """The name of a key, or of a level of `factor`."""
        return naming.named(self.manifest, name, factor) if factor else naming.key_name(self.manifest, str(name))

    def colour(self, factor: str, level: object) -> str:
        """The colour of a variant; INK for other rows."""
        return self.colours.get((factor, formatting.show(level)), style.INK)

    def figure(self, table: pandas.DataFrame, height: float, more: Sequence[str] = ()) -> Figure:
        """An empty figure with title, caption if enabled, and `more`; `height` excludes this text."""
        lines = [table.attrs["title"], *(table.attrs["caption"] if self.caption else []), *more]
        text = "\n".join(fold(line, 0.98 * self.width - 0.02, 7) for line in lines if line)
        drawn = ShownFigure(figsize=(self.width, height + 0.13 * (text.count("\n") + 1)), layout="constrained")
        drawn.suptitle(text, x=0.01, ha="left")
        return drawn

    @property
    def narrow(self) -> bool:
        """Whether the page is one column of two, so that panels are stacked."""
        return self.width < 4.5


def page_of(manifest: Manifest, edits: Edits) -> Page:
    """The page of a study with the user's figures.yaml."""
    colours = style.colours(manifest) | edits.colours
    return Page(manifest, edits.width, colours, style.encodings(manifest, colours), edits.caption)
