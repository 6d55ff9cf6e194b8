"""What a kind of figure is: which table it draws, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas
from matplotlib.figure import Figure

from analysis.case import Case


class Page(NamedTuple):
    """What a figure needs beside its table: the manifest of the study and the width in inches."""

    manifest: dict[str, Any]
    width: float


class Kind(NamedTuple):
    """A figure: its name, what it shows in one sentence, the table it draws, the drawing.

    `table` gives all that is plotted, None where a study holds nothing of it; `attrs` of the table has `caption` (lines
    that state the band and n) and whatever else the drawing says.  Equal tables give equal figures.
    """

    name: str
    says: str
    table: Callable[[Case], pandas.DataFrame | None]
    draw: Callable[[pandas.DataFrame, Page], Figure]
