"""Whether the files of an ended run are those that its result was written with."""

from __future__ import annotations

from pathlib import Path

from ablate.config.errors import Corrupt
from ablate.results.checksum import Sum, wrong
from ablate.results.result import Result


def verify(result: Result, file: Path) -> None:
    """Raise `Corrupt` unless a file beside a result is the one that it was written with, where it names one."""
    if written := _written(result, file):
        verify_sum(file, written, "the run is damaged")


def verify_sum(file: Path, written: Sum, without: str) -> None:
    """Raise `Corrupt` unless a file is what was written; `without` says what is amiss where it is gone."""
    try:
        how = wrong(file, written)
    except FileNotFoundError:
        raise Corrupt(f"{file} is gone: {without}") from None
    except OSError as error:
        raise Corrupt(f"{file} cannot be read ({error.strerror})") from None
    if how:
        raise Corrupt(f"{file} is damaged: {how}", file)


def verify_kept(result: Result, file: Path) -> None:
    """Raise `Corrupt` where weights were set aside as damaged; those that somebody removed are no damage.

    They are large: whether each byte is right is seen when they are used.
    """
    if _written(result, file) and not file.exists() and any(file.parent.glob(f"{file.name}.corrupt*")):
        raise Corrupt(f"{file} was damaged and has been set aside")


def why_without(result: Result | None, file: Path) -> str:
    """Why a run has no weights, in a few words."""
    if not result or result.status != "done":
        return f"{result.status}, which keeps none" if result else "not ended"
    if result.files is None:
        return "removed since, or trained with keep=none"
    removed = "removed since, by ablate clean --weights or by hand"
    return removed if _written(result, file) else "trained with keep=none"


def _written(result: Result, file: Path) -> Sum | None:
    return (result.files or {}).get(file.name)
