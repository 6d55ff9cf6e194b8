"""All files of an analysis: figures, tables, files for a paper, and the report."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from ablate.config.errors import Corrupt, Refused
from ablate.runs.files import read_json, write_atomic, write_json
from analysis import figures, webpage
from analysis.case import Case
from analysis.case.figures_yaml import FILE
from analysis.writing import bibliography, latex, latex_macros, methods, sections, tables
from analysis.writing.sections import Picture, captioned
from analysis.writing.sheet import paragraph

RECORD = ".written.json"  # the files of the last analysis, each with a hash


def write(case: Case, folder: Path) -> tuple[list[Path], list[str]]:
    """Write all files of an analysis into a folder; returns them, and the names of removed files of an earlier one.
    Raises `Refused` if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [*figures.write(case, folder), *folder.glob(FILE)]
        files += [*tables.write(case, folder), *write_paper(case, folder)]
        old = _remove_stale(folder, [*files, folder / webpage.NAME])
        files += webpage.write(case, folder)  # last, because it embeds the other files
        write_json(folder / RECORD, {file.name: _digest(file) for file in files})
    except OSError as error:
        raise Refused(f"cannot write {error.filename}: {error.strerror}") from None
    return files, old


def write_paper(case: Case, folder: Path) -> list[Path]:
    """Write macros.tex, figures.tex, references.bib, methods.md, methods.tex and report.md, unless they are empty."""
    kinds = figures.KINDS
    shown = [Picture(name, captioned(kinds[name].says, []), t.attrs["caption"]) for name, t in case.drawn.items()]
    texts = {
        "macros.tex": latex_macros.page(case),
        "figures.tex": "\n".join(latex.figure(each.name, captioned(each.says, each.caption)) for each in shown),
        "references.bib": bibliography.bibliography(case.study.manifest),
        "methods.md": paragraph(methods.markdown(case).strip()) + "\n",
        "methods.tex": methods.latex(case),
        "report.md": sections.report(case, shown),
    }
    return [write_atomic(folder / name, text.encode()) for name, text in texts.items() if text]


def _remove_stale(folder: Path, files: Iterable[Path]) -> list[str]:
    """Remove files that only the last analysis wrote, unless they were changed since; returns their names."""
    try:
        known = read_json(folder / RECORD)
    except (FileNotFoundError, Corrupt):
        return []
    written = {file.name for file in files}
    others = {folder / Path(name).name: digest for name, digest in known.items() if name not in written}
    old = sorted(file for file, digest in others.items() if file.is_file() and _digest(file) == digest)
    for file in old:
        file.unlink()
    return [file.name for file in old]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
