"""All files of an analysis: figures, tables, files for a paper, and the report."""

from pathlib import Path

from ablate.config.errors import Refused
from ablate.runs.files import write_atomic
from analysis import figures
from analysis.case import Case
from analysis.case.figures_yaml import FILE
from analysis.writing import bibliography, latex, methods, page, sections, tables


def write(case: Case, folder: Path) -> list[Path]:
    """Write all files of an analysis into a folder; returns them.  Raises `Refused` if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [*figures.write(case, folder), *folder.glob(FILE)]
        files += [*tables.write(case, folder), *write_paper(case, folder), *page.write(case, folder)]
    except OSError as error:
        raise Refused(f"cannot write {error.filename}: {error.strerror}") from None
    return files


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
