"""Texts in aligned columns, as lines."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]], numeric: bool = False) -> list[str]:
    """Rows of texts as lines of equal columns, two spaces apart; where `numeric`, all but the first end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def aligned(row: Sequence[str]) -> str:
        first, *rest = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        if numeric:
            rest = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest]).rstrip()

    return [aligned(row) for row in rows]
