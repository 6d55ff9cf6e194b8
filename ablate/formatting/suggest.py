"""What to write instead of a name that is not there."""

import difflib
from collections.abc import Iterable

MOST = 12  # names that are listed


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The name among those that there are which is most like this one, if any is."""
    return next(iter(difflib.get_close_matches(name, list(choices), 1)), None)


def instead(name: str, choices: Iterable[str]) -> str:
    """What to write instead of a name that is not there, as the end of a line: the nearest one, else what there is."""
    there = list(dict.fromkeys(choices))
    if near := nearest(name, there):
        return f"did you mean {near}?"
    return f"there are {', '.join(there[:MOST])}" + ", …" * (len(there) > MOST) if there else "there is none"
