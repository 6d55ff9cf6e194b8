"""What a part of the page is made of; `templates/blocks.html` says how each is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from analysis.writing.sheet import Sheet


class Heading(NamedTuple):
    """A heading inside a part."""

    text: str


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Listing(NamedTuple):
    """Sentences, one below the other."""

    lines: Sequence[str]


class Findings(NamedTuple):
    """What a reader came for: sentences, each with whether it is decided, and more of them, folded."""

    lines: Sequence[tuple[str, bool]]
    more: Sequence[tuple[str, bool]]


class Facts(NamedTuple):
    """A name and a text per row."""

    rows: Sequence[tuple[str, str]]


class Table(NamedTuple):
    """A table with those of its notes that were not said before; a folded one shows its title until it is opened."""

    sheet: Sheet
    notes: Sequence[str] = ()
    folded: bool = False


class Runs(NamedTuple):
    """A table to sort and to search; `status` is the column that says how a run ended, `statuses` what it may say."""

    sheet: Sheet
    status: int
    statuses: Sequence[str]


class Figure(NamedTuple):
    """A picture with its caption, and what it shows in one sentence (`alt`) for who cannot see it."""

    source: str
    width: int
    height: int
    caption: str
    alt: str


class Curves(NamedTuple):
    """The interactive learning curves; `data` is their JSON."""

    data: Markup
    axes: Sequence[str]
    alt: str
    note: str


Block = Heading | Text | Listing | Findings | Facts | Table | Runs | Figure | Curves


class Part(NamedTuple):
    """A question and what answers it; `anchor` is its place in the page."""

    anchor: str
    heading: str
    blocks: list[Block]
