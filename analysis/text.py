"""What a paper takes beside figures and tables: numbers as LaTeX commands, references, methods, and a report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from analysis import bibliography, macros, markdown, methods
from analysis.case import Case
from analysis.sections import Picture


def write(case: Case, folder: Path, pictures: Iterable[Picture] = ()) -> list[Path]:
    """Write macros.tex, references.bib, methods.md, methods.tex and report.md; no references where none are named."""
    texts = {
        "macros.tex": macros.page(case),
        "references.bib": bibliography.bibliography(case.study.manifest),
        "methods.md": methods.markdown(case),
        "methods.tex": methods.latex(case),
    }
    files = []
    for name, text in texts.items():
        if text:
            files.append(folder / name)
            files[-1].write_text(text, encoding="utf-8")
    return [*files, markdown.write(case, folder, pictures)]
