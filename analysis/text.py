"""What a paper takes beside figures and tables: numbers as LaTeX commands, references, methods, and a report."""

from __future__ import annotations

from pathlib import Path

from analysis import bibliography, macros, markdown, methods
from analysis.case import Case
from analysis.figures import KINDS
from analysis.sections import Picture


def write(case: Case, folder: Path) -> list[Path]:
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
    return [*files, markdown.write(case, folder, pictures(folder))]


def pictures(folder: Path) -> list[Picture]:
    """The figures that lie in a folder, in the order in which a reader wants them; their captions are in them."""
    found = [(kind, [f"{kind.name}.{suffix}" for suffix in ("png", "pdf")]) for kind in KINDS]
    return [
        Picture(kind.name, f"{kind.says[:1].upper()}{kind.says[1:]}.", [], files)
        for kind, files in found
        if (folder / files[0]).exists()
    ]
