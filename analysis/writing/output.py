"""All files of an analysis: figures, tables, files for a paper, and the report."""

from collections.abc import Iterable
from pathlib import Path

from ablate.config.errors import Corrupt, Refused
from ablate.runs.files import read_json, write_atomic, write_json
from analysis import figures
from analysis.case import Case
from analysis.case.figures_yaml import FILE
from analysis.writing import bibliography, latex, methods, page, sections, tables

RECORD = ".written.json"  # the names of the files of the last analysis


def write(case: Case, folder: Path) -> tuple[list[Path], list[str]]:
    """Write all files of an analysis into a folder; returns them, and the names of removed files of an earlier one.
    Raises `Refused` if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [*figures.write(case, folder), *folder.glob(FILE)]
        files += [*tables.write(case, folder), *write_paper(case, folder), *page.write(case, folder)]
        old = remove_stale(folder, files)
        write_json(folder / RECORD, {"files": [file.name for file in files]})
    except OSError as error:
        raise Refused(f"cannot write {error.filename}: {error.strerror}") from None
    return files, old


def write_paper(case: Case, folder: Path) -> list[Path]:
    """Write the files for a paper, those that have content."""
    pictures = sections.pictures(case)
    texts = {
        "figures.tex": "\n".join(latex.figure(picture.name, picture.caption) for picture in pictures),
        "references.bib": bibliography.bibliography(case.study.manifest),
        "methods.md": tables.paragraph(methods.markdown(case).strip()) + "\n",
        "methods.tex": methods.latex(case),
    }
    for table in tables.tables(case):
        texts[f"{table.name}.tex"] = latex.paper_table(table)
        texts[f"{table.name}-full.tex"] = latex.full_table(table)
    return [write_atomic(folder / name, text.encode()) for name, text in texts.items() if text]


def remove_stale(folder: Path, files: Iterable[Path]) -> list[str]:
    """Remove files that only the last analysis wrote; returns their names."""
    try:
        recorded = read_json(folder / RECORD).get("files", [])
    except (FileNotFoundError, Corrupt):
        return []
    removed = []
    for name in sorted({*recorded} - {file.name for file in files}):
        file = folder / Path(name).name
        if file.is_file():
            file.unlink()
            removed.append(file.name)
    return removed
