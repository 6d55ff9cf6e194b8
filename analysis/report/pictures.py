"""The figures of a study as parts of the page."""

from __future__ import annotations

import struct
from pathlib import Path

from analysis.case import Case
from analysis.report import page
from analysis.report.blocks import Figure

WIDTH = 736  # CSS pixels

SAYS = {
    "effects": "Effects with simultaneous intervals and their verdicts",
    "curves": "Learning curves: mean over seeds with a band of one SD",
    "seeds": "Every run as a dot; lines join the runs of a seed",
}


def pictures(case: Case, folder: Path) -> dict[str, Figure]:
    """The figures in their order, by name; what is not drawn is left out."""
    files = {name: folder / f"{name}.png" for name in SAYS}
    return {name: picture(file, SAYS[name], []) for name, file in files.items() if file.exists()}


def picture(file: Path, says: str, caption: list[str]) -> Figure:
    """A PNG with what it shows; its height follows from its own proportions."""
    width, height = struct.unpack(">II", file.read_bytes()[16:24])
    lines = [line for line in [says, *caption] if line]
    return Figure(page.picture(file), WIDTH, round(WIDTH * height / width), lines, ". ".join(lines))
