"""Which study is meant, read from disk; what cannot be read is refused in one line."""

from __future__ import annotations

import difflib
from pathlib import Path

from ablate.results import Corrupt, Study, load_study, newest_study, study_folder

NEEDED = ("factors", "reference", "seeds", "tasks", "cells")


class Refused(Exception):
    """The analysis cannot start; the message says why in one line."""


def read(results: Path, name: str | None) -> Study:
    """The study called `name`, the newest one without a name.  Raises `Refused`."""
    chosen = _choose(results, name)
    manifest = study_folder(results, chosen) / "manifest.json"
    try:
        study = load_study(results, chosen)
    except Corrupt as error:
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"{manifest} cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{manifest}, or a result of its runs, is damaged ({type(error).__name__}: {error})") from None
    missing = [key for key in NEEDED if key not in study.manifest]
    if missing:
        raise Refused(f"{manifest} has no {', '.join(missing)}")
    return study


def _choose(results: Path, name: str | None) -> str:
    if not results.is_dir():
        raise Refused(f"no results folder at {results}: run a sweep first, or name the folder with --results-dir")
    there = sorted(path.parent.name for path in (results / "studies").glob("*/manifest.json"))
    newest = newest_study(results)
    if newest is None:
        raise Refused(f"no study in {results}: run a sweep first, or name another folder with --results-dir")
    if name is None or name in there:
        return name or newest
    near = difflib.get_close_matches(name, there, n=3, cutoff=0.4)
    hint = (
        f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(there[:8])}" + ", …" * (len(there) > 8)
    )
    raise Refused(f"no study {name} in {results}: {hint}")
