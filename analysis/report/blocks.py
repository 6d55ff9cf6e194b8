"""What a section of the report is made of; `templates/blocks.html` says how each kind is written."""

from __future__ import annotations

from typing import Any, NamedTuple

from markupsafe import Markup

from analysis.sheet import Sheet


class Text(NamedTuple):
    """A paragraph."""

    text: str
    strong: bool = False
    kind = "text"


class Listing(NamedTuple):
    """Sentences, one below the other; strong ones are what a reader came for."""

    lines: list[str]
    strong: bool = False
    kind = "list"


class Heading(NamedTuple):
    """A heading inside a section."""

    text: str
    kind = "heading"


class Table(NamedTuple):
    """A table; a folded one shows its title until it is opened."""

    sheet: Sheet
    folded: bool = False
    kind = "sheet"


class Facts(NamedTuple):
    """A name and a text per row."""

    rows: list[tuple[str, str]]
    kind = "facts"


class Figure(NamedTuple):
    """A picture with its caption; `alt` says the same to who cannot see it."""

    source: str
    width: int
    height: int
    caption: str
    alt: str
    kind = "figure"


class Curves(NamedTuple):
    """The interactive learning curves; `data` is their JSON."""

    data: Markup
    axes: list[str]
    alt: str
    note: str
    kind = "curves"


class Row(NamedTuple):
    """A run of the table of runs: `values` are numbers, `texts` its path and error where any run has one."""

    label: str
    seed: str
    status: str
    mark: str
    values: list[str]
    texts: list[str]


class Runs(NamedTuple):
    """Every run, sortable."""

    head: list[str]
    rows: list[Row]
    statuses: list[str]
    kind = "runs"


Block = Text | Listing | Heading | Table | Facts | Figure | Curves | Runs


class Section(NamedTuple):
    """A question and what answers it; `anchor` is its place in the page."""

    anchor: str
    heading: str
    blocks: list[Any]
