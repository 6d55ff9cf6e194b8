"""What every figure shares: colours, dashes and markers of variants, colours of verdicts, fonts and sizes, saving."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from ablate import evidence, formatting
from ablate.config.designs import RUNG
from ablate.runs import naming
from ablate.runs.files import write_atomic
from ablate.runs.records import Manifest

DPI = 250
VARYING = {"png": "Software", "pdf": "CreationDate"}  # metadata that would differ between equal figures
INK = "#222222"
MUTED = "#999999"
FAINT = "#e5e5e5"

# Okabe & Ito 2008 without its yellow, with a violet, a brown and a grey: any two differ by ΔE ≥ 16 for full colour
# vision, protanopia, deuteranopia and tritanopia (Machado 2009).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#332288", "#661100", "#444444")
# In forests colour is the verdict: blue is good, orange bad, black neither, grey undecided.
VERDICTS = dict.fromkeys(("better", "supported"), PALETTE[0]) | dict.fromkeys(("worse", "contradicted"), PALETTE[3])
VERDICTS |= dict.fromkeys(("equivalent", "negligible", formatting.ESTIMATE_ONLY, ""), INK)
# Found by search: with it no two built-in variants of a component hash to the same colour, so that a variant keeps its
# colour in every study.
SALT = "9439"
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "<", ">", "p", "h", "d", "8")

STYLE = Path(__file__).parents[1] / "templates" / "figures.mplstyle"
# All settings, so that figures do not depend on a matplotlibrc, which Matplotlib also reads from the current folder.
RC = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
RC |= matplotlib.rc_params_from_file(STYLE, use_default_template=False)
# For letters that the style's font lacks, the first of these that is installed and has them.
FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "Hiragino Sans",
    "Noto Emoji",
)
INSTALLED = {font.name for font in fontManager.ttflist}
RC["font.family"] = [*RC["font.family"], *(name for name in FALLBACKS if name in INSTALLED)]


class Encoding(NamedTuple):
    """How a cell is drawn."""

    colour: str
    dash: Any
    marker: str


def colours(manifest: Manifest) -> dict[tuple[str, str], str]:
    """A colour for each (factor, level as text) by the hash of its name, or the next one if that is taken.  The
    reference comes first.  Beyond nine levels colours repeat, with other dashes and markers."""
    result: dict[tuple[str, str], str] = {}
    for factor, levels in manifest.factors.items():
        taken: list[str] = []
        for level in sorted(levels, key=lambda level: level != manifest.reference.get(factor)):
            slot = hashlib.sha256(f"{SALT}{factor}={level}".encode()).digest()[0] % len(PALETTE)
            taken.append(min([*PALETTE[slot:], *PALETTE[:slot]], key=taken.count))
            result[factor, formatting.show(level)] = taken[-1]
    return result


def encodings(manifest: Manifest, palette: dict[tuple[str, str], str]) -> dict[str, Encoding]:
    """The encoding of each cell by its id; `palette` has the colour of each (factor, level).

    Colour is the compared factor with the most levels; other designs than a grid show what was changed, and what was
    not in black.  Cells of one colour differ in dash and marker, and markers tell colours apart in grey.  Rungs of a
    ladder share their encodings.
    """
    if manifest.design == "grid":
        sizes = {name: (name in manifest.reference, len(levels)) for name, levels in manifest.factors.items()}
        factor = max(sizes, key=sizes.__getitem__, default="")
        changes = {cell.id: (factor, cell.levels.get(factor)) for cell in manifest.cells}
    else:
        changes = evidence.changes(manifest)
    encoding_of: dict[str, Encoding] = {}  # by the levels of a cell besides its rung
    used = Counter[str]()
    result = {}
    for cell in manifest.cells:
        variant = str([cell.levels[name] for name in manifest.factors if name != RUNG])
        if variant not in encoding_of:
            factor, level = changes.get(cell.id, ("", ""))
            colour = palette.get((factor, formatting.show(level)), INK)
            marker = MARKERS[len(encoding_of) % len(MARKERS)]
            encoding_of[variant] = Encoding(colour, DASHES[used[colour] % len(DASHES)], marker)
            used[colour] += 1
        result[cell.id] = encoding_of[variant]
    return result


def title(manifest: Manifest) -> str:
    """The title of a study: what it varies, and its tasks."""
    tasks = dict.fromkeys(task.title for task in manifest.tasks.values() if task.title)
    return " · ".join(filter(None, [naming.title(manifest), ", ".join(tasks)]))


def save(figure: Figure, folder: Path, name: str, stamp: dict[str, str], kinds: Iterable[str] = VARYING) -> list[Path]:
    """Write a figure as PNG and PDF, or as PNG alone, with `stamp` in each; the same figure gives the same bytes."""
    files = []
    for kind in kinds:
        buffer = io.BytesIO()
        metadata = {**stamp, VARYING[kind]: None}
        with matplotlib.rc_context(RC):
            figure.savefig(buffer, format=kind, dpi=DPI if kind == "png" else "figure", metadata=metadata)
        figure.set_layout_engine("none")  # keep the layout: computing it again takes most of the time
        files.append(write_atomic(folder / f"{name}.{kind}", buffer.getvalue()))
    return sorted(files)
