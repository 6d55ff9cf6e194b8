"""The figures of a study as parts of the page."""

from __future__ import annotations

import struct
from pathlib import Path

from analysis import figures
from analysis.case import Case
from analysis.report import page
from analysis.report.blocks import Figure

PIXELS = 134  # of the page, per inch of a figure


def pictures(case: Case, folder: Path) -> dict[str, Figure]:
    """The figures that were drawn into the folder, in their order, by name."""
    says, tables = {kind.name: kind.says for kind in figures.KINDS}, figures.tables(case)
    inches = figures.edits(case).width
    files = {name: folder / f"{name}.png" for name in tables}
    return {
        name: picture(file, inches, says[name], tables[name].attrs["caption"])
        for name, file in files.items()
        if file.exists()
    }


def picture(file: Path, inches: float, says: str, caption: list[str]) -> Figure:
    """A PNG of this width with what it shows; its height follows from its own proportions."""
    content = file.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    shown = round(PIXELS * inches)
    told = ". ".join(line.rstrip(".") for line in [says, *caption] if line)
    return Figure(page.picture(content), shown, round(shown * height / width), says[:1].upper() + says[1:], told)
