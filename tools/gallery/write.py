"""Update everything that is generated from the committed tables; files that are up to date are not touched."""

import ast
import dataclasses
import functools
import hashlib
import tempfile
from pathlib import Path

from PIL import Image

from ablate.config.errors import Refused
from ablate.runs.files import write_atomic
from analysis import figures
from analysis.figures import style
from analysis.figures.kind import Page, page_of
from analysis.figures.stamp import Stamp, metadata, read_stamp, stamp_of
from analysis.writing.tables import csv_text, markdown
from gallery import findings, pages
from gallery.studies import FIGURES, StudyFile, Trained, study_files
from gallery.what_helps import what_helps

BEGIN = "<!-- what follows is written by `make figures` from experiments/results/, up to the next such line -->"
END = "<!-- what stands above is written by `make figures` -->"
PNG_END = b"IEND\xaeB\x60\x82"  # the last bytes of a PNG that is not torn
DIGITS = 10  # of plotted numbers; later digits depend on the order of sums, which differs between machines


@dataclasses.dataclass(frozen=True)
class Changes:
    """The files that were written and removed, and the number of all files."""

    written: list[Path]
    removed: list[Path]
    files: int


def write(root: Path) -> Changes:
    """Draw and write everything that is generated from the tables of a checkout.  Raises `Refused` and `Corrupt`,
    before writing anything, if a study or a page is incomplete."""
    files = study_files(root)
    studies = [study for file in files for study in file.trained]
    contents = texts(root, files)
    written = []
    for path, text in contents.items():
        if not path.exists() or path.read_bytes() != text.encode():
            written.append(write_atomic(path, text.encode()))
    pictures = {}
    for study in studies:
        of_study = {study.case.folder / FIGURES / f"{name}.png": name for name in study.plotted}
        written += draw(study, of_study)
        pictures |= of_study
    # Nothing else writes to these folders: other files are of earlier versions of the studies.
    folders = [root / "experiments" / "findings", *(study.case.folder / FIGURES for study in studies)]
    removed = []
    for folder in folders:
        for path in sorted(folder.glob("*")):
            if path.is_file() and path not in contents and path not in pictures:
                path.unlink()
                removed.append(path)
    return Changes(written, removed, len(contents) + len(pictures))


def texts(root: Path, files: list[StudyFile]) -> dict[Path, str]:
    """The pages, and for each study the plotted data and the tables for reading."""
    index = root / "experiments" / "FINDINGS.md"
    readme = root / "README.md"
    contents = {
        index: between(index, findings.index(files)),
        readme: between(readme, pages.front(files)),
        root / "docs" / "gallery.md": pages.gallery(files),
    }
    helps = what_helps(files)
    if helps:
        contents[root / "docs" / "what-helps.md"] = helps
    for file in files:
        for study in file.trained:
            page = root / "experiments" / "findings" / f"{study.name}.md"
            contents[page] = findings.study_page(file, study)
            contents |= texts_of(study)
    return contents


def texts_of(study: Trained) -> dict[Path, str]:
    """The plotted data of a study and its tables for reading."""
    folder = study.case.folder / FIGURES
    contents = {}
    for name, table in study.plotted.items():
        contents[folder / f"{name}.csv"] = csv_text(table.map(rounded))
    for sheet in study.sheets:
        contents[folder / f"{sheet.name}.md"] = markdown(sheet)
    return contents


def rounded(value: object) -> object:
    """A plotted value with the digits that are equal on all machines."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def draw(study: Trained, pictures: dict[Path, str]) -> list[Path]:
    """Draw the figures whose table or drawing code has changed; returns their files.  A figure that looks as before
    stays as it is, so that not every change of the code is one of all pictures."""
    page = page_of(study.manifest, figures.edits(study.case))
    drawn = []
    with tempfile.TemporaryDirectory() as scratch:
        for file, name in pictures.items():
            wanted = stamp(study, name, page)
            data = file.read_bytes() if file.exists() else b""
            there = (read_stamp(data) if data.endswith(PNG_END) else None) or {}
            same_table = there.get("table") == wanted["table"]
            if same_table and there.get("drawing") == wanted["drawing"]:
                continue
            figure = figures.KINDS[name].draw(study.plotted[name], page)
            (image,) = style.save(figure, Path(scratch), name, metadata(wanted), ["png"])
            if not (same_table and same_pixels(image, file)):
                drawn.append(write_atomic(file, image.read_bytes()))
    return drawn


def same_pixels(left: Path, right: Path) -> bool:
    """Whether two images look alike; false if one cannot be read."""
    try:
        with Image.open(left) as first, Image.open(right) as second:
            return first.size == second.size and first.convert("RGBA").tobytes() == second.convert("RGBA").tobytes()
    except (OSError, SyntaxError):  # a torn file
        return False


def stamp(study: Trained, name: str, page: Page) -> Stamp:
    """The metadata of a figure's file."""
    return stamp_of(name, study.plotted[name], page, study.case.study) | {"drawing": drawing_hash()}


@functools.cache
def drawing_hash() -> str:
    """SHA-256 of the drawing code: the kinds of figures, and what they share."""
    folder = Path(figures.__file__).parent
    modules = sorted(folder.glob("*.py"))
    sources = [style.STYLE.read_text(encoding="utf-8")]
    sources += [code(module.read_text(encoding="utf-8")) for module in modules]
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16]


def code(text: str) -> str:
    """The code of a module without layout, comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant(""))
    return ast.dump(tree)


def between(file: Path, block: str) -> str:
    """The text of a page with a new block between its two markers.  Raises `Refused` if a marker is missing."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read ({error})") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Refused(f"{file} lacks the lines {BEGIN} and {END}, between which the findings stand")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"
