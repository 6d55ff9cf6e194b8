"""What a paper takes beside figures and tables: numbers as LaTeX commands, references, methods, and a report."""

from __future__ import annotations

from pathlib import Path

from ablate.results.atomic import write_atomic
from analysis.case import Case
from analysis.figures import KINDS
from analysis.writing import bibliography, latex, latex_macros, markdown, methods
from analysis.writing.sections import Picture, captioned
from analysis.writing.sheet import paragraph


def write(case: Case, folder: Path) -> list[Path]:
    """Write macros.tex, figures.tex, references.bib, methods.md, methods.tex and report.md, unless they are empty."""
    shown = [
        Picture(name, captioned(KINDS[name].says, []), table.attrs["caption"]) for name, table in case.drawn.items()
    ]
    texts = {
        "macros.tex": latex_macros.page(case),
        "figures.tex": "\n".join(latex.figure(each.name, captioned(each.says, each.caption)) for each in shown),
        "references.bib": bibliography.bibliography(case.study.manifest),
        "methods.md": paragraph(methods.markdown(case).strip()) + "\n",
        "methods.tex": methods.latex(case),
    }
    files = []
    for name, text in texts.items():
        if text:
            files.append(folder / name)
            write_atomic(files[-1], text.encode())
    return [*files, markdown.write(case, folder, shown)]
