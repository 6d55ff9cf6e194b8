"""Brings all that is made of the committed tables up to date, and leaves alone what is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas

from ablate.config.errors import Refused
from ablate.evidence.noise_atlas import FILE, atlas
from ablate.results.atomic import write_atomic
from analysis.case import Case
from analysis.escape import csv_text
from analysis.gallery import findings, pictures, showcase
from analysis.gallery.kept import FIGURES, StudyFile, study_files
from analysis.sources.recorded_seeds import recorded_study
from analysis.writing.sheet import markdown

BEGIN = "<!-- what follows is written by `make figures` from experiments/results/, up to the next such line -->"
END = "<!-- what stands above is written by `make figures` -->"


class Changes(NamedTuple):
    """Files that were written or removed, and how many there are in all."""

    written: list[Path]
    removed: list[Path]
    files: int


def write(root: Path) -> Changes:
    """Draw and write all that comes of the tables of a checkout.

    Raises `Refused` and `Corrupt` before anything is written where a study, or a page, is not whole.
    """
    files = study_files(root)
    pages = texts(root, files)
    cases = [each.case for file in files for each in file.trained]
    shown = [(case, pictures.tables(case)) for case in cases]
    for case, tables in shown:
        pages |= study_texts(case, tables)
    written = [file for file, text in pages.items() if _put(file, text)]
    removed, drawn = list[Path](), 0
    for case, tables in shown:
        written += pictures.draw(case, tables, case.folder / FIGURES)
        wanted = {case.folder / FIGURES / f"{name}.png" for name in tables}
        removed += _clear(case.folder / FIGURES, {*wanted, *pages})
        drawn += len(wanted)
    return Changes(written, removed, len(pages) + drawn)


def texts(root: Path, files: list[StudyFile]) -> dict[Path, str]:
    """The pages as they ought to be."""
    known, front = root / "experiments" / "FINDINGS.md", root / "README.md"
    return {
        known: between(known, findings.page(files)),
        front: between(front, showcase.front(files)),
        root / "docs" / "gallery.md": showcase.gallery(files),
        root / "ablate" / "evidence" / FILE.name: noise(root, files),
    }


def noise(root: Path, files: list[StudyFile]) -> str:
    """The noise atlas of the recorded seeds and of all studies, as CSV."""
    studies = [each.case.study for file in files for each in file.trained]
    return csv_text(atlas([recorded_study(root / "tests" / "recorded"), *studies]))


def study_texts(case: Case, tables: dict[str, pandas.DataFrame]) -> dict[Path, str]:
    """Beside a study's figures: what they plot, and the tables for reading."""
    plotted = {f"{name}.csv": pictures.plotted(table) for name, table in tables.items()}
    sheets = {f"{each.name}.md": markdown(each) for each in findings.sheets(case)}
    return {case.folder / FIGURES / name: text for name, text in (plotted | sheets).items()}


def between(file: Path, block: str) -> str:
    """The text of a page with another block between its two marks.  Raises `Refused` where it has not both."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read ({error})") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Refused(f"{file} lacks the lines {BEGIN} and {END}, between which the findings stand")
    return "\n\n".join([before + begin, *([block] if block else []), end + after])


def _put(file: Path, text: str) -> bool:
    """Write a text where it is another; whether it was."""
    data = text.encode()
    if file.exists() and file.read_bytes() == data:
        return False
    write_atomic(file, data)
    return True


def _clear(folder: Path, wanted: set[Path]) -> list[Path]:
    """Remove what an earlier version of a study had and this one has not: the folder is written by this alone."""
    old = [file for file in sorted(folder.glob("*")) if file.is_file() and file not in wanted]
    for file in old:
        file.unlink()
    return old
