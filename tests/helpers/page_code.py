"""The code of how-to pages."""

import re
from pathlib import Path

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def code(page: str, language: str) -> list[str]:
    """The blocks of one language in a how-to page."""
    return blocks((HOW_TO / page).read_text(encoding="utf-8"), language)


def blocks(text: str, language: str) -> list[str]:
    """The blocks of one language in Markdown; "" for those without a language."""
    every = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [content for name, content in every if name == language]
