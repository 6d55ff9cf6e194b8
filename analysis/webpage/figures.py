"""The figures of a study as parts of the page."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

from analysis import figures
from analysis.case import Case
from analysis.webpage.blocks import Figure
from analysis.writing.sections import captioned

PIXELS = 134  # of the page, per inch of a figure


def pictures(case: Case, folder: Path) -> dict[str, Figure]:
    """The figures of this case that were written into the folder, in their order, by name."""
    inches = figures.edits(case).width
    return {
        name: picture(folder / f"{name}.png", inches, figures.KINDS[name].says, table.attrs["caption"])
        for name, table in case.drawn.items()
    }


def picture(file: Path, inches: float, says: str, caption: list[str]) -> Figure:
    """A PNG of this width with what it shows; its height follows from its own proportions."""
    content = file.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    shown = round(PIXELS * inches)
    told = captioned(says, caption)
    source = "data:image/png;base64," + base64.b64encode(content).decode()
    return Figure(source, shown, round(shown * height / width), told, captioned(says, []))
