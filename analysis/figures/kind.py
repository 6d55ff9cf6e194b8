"""A kind of figure: the table that it draws, and how; and the page, with the user's changes from figures.yaml."""

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
import pandas
from matplotlib.backends.backend_pdf import Op, PdfFile, PdfPages
from matplotlib.figure import Figure

from ablate import formatting
from ablate.runs import naming
from ablate.runs.records import Manifest
from analysis.case import Case
from analysis.case.figures_yaml import LETTERS, STYLES, Edits
from analysis.figures.draw import style

MOST = 24  # rows or cells of a readable figure


class LargePage(PdfFile):
    """A PDF whose pages, with all letters and lines, are `scale` times as large as the figures on them."""

    scale = 1.0

    def newPage(self, width: float, height: float) -> None:
        """See PdfFile."""
        super().newPage(width * self.scale, height * self.scale)
        self.output(self.scale, 0, 0, self.scale, 0, 0, Op.concat_matrix)


class ShownFigure(Figure):
    """A figure that a notebook shows, without pyplot; files have it `scale` times as large."""

    scale = 1.0

    def savefig(self, fname: Any, **options: Any) -> None:
        """See Figure."""
        if (options.get("format") or str(fname).rpartition(".")[2]) != "pdf":
            super().savefig(fname, **options | {"dpi": self.scale * (options.get("dpi") or self.dpi)})
            return
        with PdfPages(fname) as pages:
            pages._file = LargePage(fname, metadata=options.pop("metadata", None))
            pages._file.scale = self.scale
            super().savefig(pages, **options | {"format": "pdf"})

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file, matplotlib.rc_context(style.RC):
            self.savefig(file, format="png", dpi=style.DPI)
            return file.getvalue()


class Page(NamedTuple):
    """The manifest of the study, the width in inches as laid out, and the encoding of variants and cells."""

    manifest: Manifest
    width: float
    colours: dict[tuple[str, str], str]  # by (factor, level as text)
    encodings: dict[str, style.Encoding]  # by cell id
    caption: bool = False  # whether captions are drawn into the image
    style: str = "default"

    def label(self, name: object, factor: str = "") -> str:
        """The name of a key, or of a level of `factor`."""
        return naming.named(self.manifest, name, factor) if factor else naming.key_name(self.manifest, str(name))

    def colour(self, factor: str, level: object) -> str:
        """The colour of a variant; INK for other rows."""
        return self.colours.get((factor, formatting.show(level)), style.INK)

    def figure(self, table: pandas.DataFrame, height: float, more: Sequence[str] = ()) -> Figure:
        """An empty figure with title, caption if enabled, and `more`; `height` excludes this text."""
        lines = [table.attrs["title"], *(table.attrs["caption"] if self.caption else []), *more]
        text = "\n".join(style.fold(line, 0.98 * self.width - 0.02, 7) for line in lines if line)
        height = max(height + 0.13 * (text.count("\n") + 1), STYLES[self.style].shape * self.width)
        drawn = ShownFigure(figsize=(self.width, height), layout="constrained")
        drawn.scale = STYLES[self.style].letters / LETTERS
        drawn.suptitle(text, x=0.01, ha="left")
        return drawn

    @property
    def narrow(self) -> bool:
        """Whether the page is one column of two, so that panels are stacked."""
        return self.width < 4.5


def page_of(manifest: Manifest, edits: Edits) -> Page:
    """The page of a study with the user's figures.yaml."""
    colours = style.colours(manifest) | edits.colours
    encodings = style.encodings(manifest, colours)
    return Page(manifest, edits.width / edits.scale, colours, encodings, edits.caption, edits.style)


class Kind(NamedTuple):
    """A kind of figure: what it shows in one sentence, the table it draws, the drawing.

    `table` returns everything that is plotted, or None if a study has no data for it; its `attrs` hold `caption` (lines
    that state the band and n) and other values for the drawing, as JSON.  Equal tables give equal figures.
    The columns `cell` (an id), or `factor` and `level` (text), identify a row for the user's subset and order; other
    text is for display, see `naming.named`.  At most `most` cells, or effects, are drawn.  A message says
    what a study without data for it `needs`.
    """

    says: str
    table: Callable[[Case], pandas.DataFrame | None]
    plot: Callable[[pandas.DataFrame, Page], Figure]
    most: int = MOST
    needs: str = ""

    def draw(self, table: pandas.DataFrame, page: Page) -> Figure:
        """The figure of a table; if the user's subset is empty, a message instead."""
        if len(table):
            return self.plot(table, page)
        return style.nothing(page.figure(table, 0.9), table.attrs.get("empty", "nothing left by the subset"))
