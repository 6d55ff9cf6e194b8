"""The code of how-to pages."""

import re
from pathlib import Path

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def code(page: str, language: str) -> list[str]:
    """The blocks of one language in a how-to page."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
