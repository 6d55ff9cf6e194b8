"""Python's keywords as words of the command line, so that one reader and one set of checks serve both."""

import pathlib
from collections.abc import Mapping, Sequence

from ablate.config.errors import PlanError, Problem
from ablate.config.schema import WHOLE
from ablate.config.study_file import value_text

ONE_VALUE = (*WHOLE, "eval")  # the first parts of keys that cannot be swept: of these, a list is their value
HOW = 'write each as a separate string, as in ablate.run("norm=ln,rms", seeds=5)'


def words_of(words: Sequence[str], keys: Mapping[str, object]) -> list[str]:
    """Words as they are, and keywords as KEY=VALUE.

    A list sweeps, as commas do: norm=["ln", "rms"] is norm=ln,rms; of a key of the whole study it is the value:
    seeds=[3, 7].  A tuple is a value that is a list: **{"optim.betas": (0.9, 0.95)}.  Values are strings, numbers,
    booleans, None, paths, and lists and mappings of these.  Raises PlanError with all that is none.
    """
    problems = [Problem("", f"{word!r} is no word; {HOW}") for word in words if not isinstance(word, str)]
    found = [word for word in words if isinstance(word, str)]
    for key, value in keys.items():
        try:
            found.append(f"{key}={_swept(key, value)}")
        except ValueError as error:
            problems.append(Problem(key, str(error)))
    if problems:
        raise PlanError(problems)
    return found


def _swept(key: str, value: object) -> str:
    """What stands behind the = of a key."""
    if not isinstance(value, list | range) or key.lstrip("+").partition(".")[0] in ONE_VALUE:
        return value_text(_plain(value))
    if not value:
        raise ValueError("is an empty list; write at least one value")
    return ",".join(value_text(_plain(each)) for each in value)


def _plain(value: object) -> object:
    """A value in the types that files hold.  Raises ValueError for what they cannot."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(each) for each in value]
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if (item := getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:  # a number of NumPy or torch
        value = item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    shown = repr(value).partition("\n")[0][:40]
    raise ValueError(f"{shown} cannot be written down; write a string, a number, True or False, or a list of these")
