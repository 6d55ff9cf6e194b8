"""Update everything that is generated from the committed tables; files that are up to date are not touched."""

import ast
import functools
import hashlib
import tempfile
from pathlib import Path
from typing import NamedTuple

import matplotlib
import pandas
from PIL import Image

from ablate.config.errors import Refused
from ablate.runs.files import write_atomic
from analysis import figures
from analysis.figures.draw import style
from analysis.figures.kind import Page, page_of
from analysis.figures.stamp import Stamp, metadata, read_stamp, stamp_of
from analysis.writing.sheet import markdown
from analysis.writing.tables import csv_text
from gallery import pages
from gallery.studies import FIGURES, StudyFile, Trained, study_files
from gallery.what_helps import what_helps

BEGIN = "<!-- what follows is written by `make figures` from experiments/results/, up to the next such line -->"
END = "<!-- what stands above is written by `make figures` -->"
DIGITS = 10  # of plotted numbers; later digits depend on the order of sums, which differs between machines


class Changes(NamedTuple):
    """The files that were written and removed, and the number of all files."""

    written: list[Path]
    removed: list[Path]
    files: int


def write(root: Path) -> Changes:
    """Draw and write everything that is generated from the tables of a checkout.  Raises `Refused` and `Corrupt`,
    before writing anything, if a study or a page is incomplete."""
    files = study_files(root)
    every, wanted = [each for file in files for each in file.trained], texts(root, files)
    written = [f for f, text in wanted.items() if not f.exists() or f.read_bytes() != text.encode()]
    for file in written:
        write_atomic(file, wanted[file].encode())
    removed, drawn = list[Path](), 0
    for each in every:
        folder = each.case.folder / FIGURES
        pictures = {folder / f"{name}.png": name for name in each.plotted}
        written += _draw(each, pictures)
        old = [file for file in sorted(folder.glob("*")) if file.is_file() and file not in {*pictures, *wanted}]
        for file in old:  # from an earlier version of the study: nothing else writes to this folder
            file.unlink()
        removed, drawn = removed + old, drawn + len(pictures)
    return Changes(written, removed, len(wanted) + drawn)


def texts(root: Path, files: list[StudyFile]) -> dict[Path, str]:
    """The pages, and for each study the plotted data and the tables for reading."""
    findings, front = root / "experiments" / "FINDINGS.md", root / "README.md"
    trained = [each for file in files for each in file.trained]
    found = {
        findings: _between(findings, pages.findings(files)),
        front: _between(front, pages.front(files)),
        root / "docs" / "gallery.md": pages.gallery(files),
    }
    found |= {root / "docs" / "what-helps.md": page} if (page := what_helps(files)) else {}
    return found | {file: text for each in trained for file, text in texts_of(each).items()}


def texts_of(trained: Trained) -> dict[Path, str]:
    """The plotted data of a study and its tables for reading."""
    folder = trained.case.folder / FIGURES
    plotted = {folder / f"{name}.csv": _plotted(table) for name, table in trained.plotted.items()}
    return plotted | {folder / f"{sheet.name}.md": markdown(sheet) for sheet in trained.sheets}


def _plotted(table: pandas.DataFrame) -> str:
    return csv_text(table.map(lambda value: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value))


def _draw(trained: Trained, pictures: dict[Path, str]) -> list[Path]:
    """Draw the figures whose table or drawing code has changed; returns their files.  A figure that looks as before
    stays as it is, so that not every change of the code is one of all pictures."""
    page, drawn = page_of(trained.manifest, figures.edits(trained.case)), list[Path]()
    with matplotlib.rc_context(style.RC), tempfile.TemporaryDirectory() as new:
        for file, name in pictures.items():
            wanted, table = stamp(trained, name, page), trained.plotted[name]
            there = (read_stamp(file.read_bytes()) if file.exists() else None) or {}
            if any(there.get(key) != wanted[key] for key in ("table", "drawing")):
                figure = figures.KINDS[name].draw(table, page)
                (made,) = style.save(figure, Path(new), name, metadata(wanted), ["png"])
                if there.get("table") == wanted["table"] and same_pixels(made, file):
                    continue
                drawn.append(write_atomic(file, made.read_bytes()))
    return drawn


def same_pixels(one: Path, other: Path) -> bool:
    """Whether two images look alike; false if one cannot be read."""
    try:
        with Image.open(one) as first, Image.open(other) as second:
            return first.size == second.size and first.convert("RGBA").tobytes() == second.convert("RGBA").tobytes()
    except (OSError, SyntaxError):  # a torn file
        return False


def stamp(trained: Trained, name: str, page: Page) -> Stamp:
    """The metadata of a figure's file."""
    found = stamp_of(name, trained.plotted[name], page, trained.case.study)
    return found | {"drawing": drawing_hash()}


@functools.cache
def drawing_hash() -> str:
    """SHA-256 of the drawing code: the kinds of figures, and what they share."""
    here = Path(figures.__file__).parent
    modules = sorted([*(here / "kinds").glob("*.py"), *(here / "draw").glob("*.py")])
    texts = [style.STYLE.read_text(encoding="utf-8"), *(code(file.read_text(encoding="utf-8")) for file in modules)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def code(text: str) -> str:
    """The code of a module without layout, comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant(""))
    return ast.dump(tree)


def _between(file: Path, block: str) -> str:
    """The text of a page with a new block between its two markers.  Raises `Refused` if a marker is missing."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read ({error})") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Refused(f"{file} lacks the lines {BEGIN} and {END}, between which the findings stand")
    return "\n\n".join([before + begin, *([block] if block else []), end + after])
