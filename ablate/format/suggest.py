"""What to write instead of a name that is not there."""

from __future__ import annotations

import difflib


def close(word: str, choices: list[str]) -> str:
    """What to write instead of a misspelt word, as the end of a line."""
    near = difflib.get_close_matches(word, choices, 1)
    if near and len(choices) > 12:
        return f"; did you mean {near[0]}?"
    return f"; write one of {', '.join(sorted(set(choices)))}"


def resembling(name: str, there: list[str]) -> str:
    """What to write instead of a name that is not there."""
    near = difflib.get_close_matches(name, there, n=3, cutoff=0.4)
    if near:
        return f"did you mean {', '.join(near)}?"
    return f"there are {', '.join(there[:8])}" + ", …" * (len(there) > 8)


def near(word: str, choices: list[str]) -> str:
    """What to write instead of a word that is no choice."""
    found = difflib.get_close_matches(word, choices, 1)
    return f"; did you mean {found[0]}?" if found else f"; there are {', '.join(choices) or 'none'}"
