"""Tables and lines as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of texts as an HTML table; what they hold is shown as it is."""
    lines = [_line("th", heads), *(_line("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def note(lines: Iterable[str]) -> str:
    """Lines of text as a paragraph."""
    return f"<p>{'<br>'.join(map(escape, lines))}</p>"


def _line(tag: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"
