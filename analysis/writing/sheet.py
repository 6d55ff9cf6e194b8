"""A table for reading, independent of its format: Markdown here, LaTeX in `latex`, HTML in the report."""

import re
from typing import NamedTuple

from ablate.formatting import visible


class Sheet(NamedTuple):
    """Rows of texts with a header; `name` is the file name, `title` the caption, `notes` the sentences below it."""

    name: str
    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold only numbers, to be right-aligned."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.head)
        missing = ("", "–")
        return [any(map(_number, each)) and all(_number(text) or text in missing for text in each) for each in columns]


def _number(text: str) -> bool:
    return re.fullmatch(r"[<+−×]?\s?[\d,]*\.?\d+(e[-−]?\d+)?( %)?", text) is not None


def markdown(sheet: Sheet) -> str:
    """A sheet as a Markdown table with its notes below."""
    rows = [[inline(text).replace("|", "\\|") for text in row] for row in [sheet.head, *sheet.rows]]
    rule = "|" + "".join(" ---: |" if right else " --- |" for right in sheet.numeric)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    table = ["\n".join([lines[0], rule, *lines[1:]])] * bool(sheet.rows)
    return "\n".join(f"{part}\n" for part in [*table, *map(paragraph, sheet.notes)])


def inline(text: str) -> str:
    """Text escaped for use within a line of Markdown."""
    text = visible(re.sub(r"\s+", " ", text))
    return re.sub(r"([\\`*$]|<(?=[A-Za-z/!?])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|!(?=\[)|(?<=\])\()", r"\\\1", text)


def paragraph(text: str) -> str:
    """Text escaped for use as a Markdown paragraph, so that its start is no heading, list or quote."""
    return re.sub(r"^(?:(?=[#>]|[-+] )|(\d+)(?=[.)] ))", r"\1\\", inline(text))
