"""What every figure shares: colours, dashes and markers of variants, colours of verdicts, fonts and sizes, saving."""

import hashlib
import io
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.text import Text

from ablate import evidence, formatting
from ablate.config.designs import RUNG
from ablate.runs import naming
from ablate.runs.files import write_atomic
from ablate.runs.records import Manifest
from analysis.case.figures_yaml import LETTERS, STYLES

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
SIZES = [name for name, value in RC.items() if name.endswith(("size", "width", ".pad")) and isinstance(value, float)]


def settings(style: str) -> dict[str, Any]:
    """Matplotlib's settings for a style: letters, lines and markers are larger by its scale."""
    scale = STYLES[style].letters / LETTERS
    return RC | {name: RC[name] * scale for name in SIZES}


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
        factor = max(
            manifest.factors, key=lambda name: (name in manifest.reference, len(manifest.factors[name])), default=""
        )
        changes = {cell.id: (factor, cell.levels.get(factor)) for cell in manifest.cells}
    else:
        changes = evidence.changes(manifest)
    variants = {}
    colour_of: dict[str, str] = {}
    for cell in manifest.cells:
        variant = str([cell.levels[name] for name in manifest.factors if name != RUNG])
        factor, level = changes.get(cell.id, ("", ""))
        colour_of.setdefault(variant, palette.get((factor, formatting.show(level)), INK))
        variants[cell.id] = variant
    by_colour: dict[str, list[str]] = {}
    for variant, colour in colour_of.items():
        by_colour.setdefault(colour, []).append(variant)
    most = max(map(len, by_colour.values()))
    encoding_of = {}
    for slot, (colour, group) in enumerate(by_colour.items()):
        for place, variant in enumerate(group):
            marker = MARKERS[(slot * most + place) % len(MARKERS)]
            encoding_of[variant] = Encoding(colour, DASHES[place % len(DASHES)], marker)
    return {cell: encoding_of[variant] for cell, variant in variants.items()}


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
        with matplotlib.rc_context(RC), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # `missing_letters` says it once
            figure.savefig(buffer, format=kind, dpi=DPI if kind == "png" else "figure", metadata=metadata)
        figure.set_layout_engine("none")  # keep the layout: computing it again takes most of the time
        files.append(write_atomic(folder / f"{name}.{kind}", buffer.getvalue()))
    return sorted(files)


def missing_letters(figure: Figure) -> set[str]:
    """The letters in a figure that no font of the style has; they are drawn as boxes."""
    letters = set("".join(text.get_text() for text in figure.findobj(Text))) - {"\n"}
    for family in RC["font.family"]:
        charmap = get_font(findfont(family)).get_charmap()
        letters = {letter for letter in letters if ord(letter) not in charmap}
    return letters


def write_in(axis: Axes, text: str) -> None:
    """A text in the middle of an empty panel."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=MUTED)
    axis.set(xticks=[], yticks=[])
