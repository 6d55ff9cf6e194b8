"""Texts that a spreadsheet would run as formulas, written so that it does not."""

import re
from typing import Any

RISKY = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def quoted(value: Any) -> Any:
    """A text that would be read as a formula, with an apostrophe before it; all else as it is.

    Numbers stay numbers.  A text that has such an apostrophe of its own gets another, so that `unquoted` is exact.
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if RISKY.match(value.lstrip("'")) else value


def unquoted(value: Any) -> Any:
    """What `quoted` was given."""
    return value[1:] if isinstance(value, str) and value.startswith("'") and RISKY.match(value.lstrip("'")) else value
