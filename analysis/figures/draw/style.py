"""The encoding of variants by colour, dash and marker, the same in every figure, for print and any colour vision."""

import functools
import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from ablate import evidence, formatting
from ablate.config.designs import RUNG
from ablate.formatting import is_number
from ablate.runs import naming
from ablate.runs.files import write_atomic
from ablate.runs.records import Manifest

DPI = 250
VARYING = {"png": "Software", "pdf": "CreationDate"}  # metadata that would differ between equal figures
SIZE = 6.5  # points, of names, results and legends
PIXELS = 1.04  # factor by which rounding of letters to pixels widens a text
INK, MUTED, FAINT = "#222222", "#999999", "#e5e5e5"

# Okabe & Ito 2008 without its yellow, with a violet, a brown and a grey: any two differ by ΔE ≥ 16 for full colour
# vision, protanopia, deuteranopia and tritanopia (Machado 2009).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#332288", "#661100", "#444444")
# In forests colour is the verdict: blue is good, orange bad, black neither, grey open.
VERDICTS = dict.fromkeys(("better", "supported"), PALETTE[0]) | dict.fromkeys(("worse", "contradicted"), PALETTE[3])
VERDICTS |= dict.fromkeys(("equivalent", "negligible", formatting.ESTIMATE_ONLY, ""), INK)
DOTS = 12  # seeds up to which each is a dot; more are a band
# Found by search: with it no two built-in variants of a component hash to the same colour, so that a variant keeps its
# colour in every study.
SALT = "9439"
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "<", ">", "p", "h", "d", "8")

STYLE = Path(__file__).parents[2] / "templates" / "figures.mplstyle"
# All settings, so that figures do not depend on a matplotlibrc, which Matplotlib also reads from the current folder.
RC = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
RC |= matplotlib.rc_params_from_file(STYLE, use_default_template=False)


def verdict_colour(verdict: str) -> str:
    """The colour of a verdict."""
    return VERDICTS.get(verdict, MUTED)


class Encoding(NamedTuple):
    """How a cell is drawn."""

    colour: str
    dash: Any
    marker: str


def colours(manifest: Manifest) -> dict[tuple[str, str], str]:
    """A colour for each (factor, level as text) by the hash of its name, or the next one if that is taken.  The
    reference comes first.  Beyond nine levels colours repeat, with other dashes and markers."""
    found: dict[tuple[str, str], str] = {}
    for factor, levels in manifest.factors.items():
        taken: list[str] = []
        for level in sorted(levels, key=lambda level: level != manifest.reference.get(factor)):
            slot = hashlib.sha256(f"{SALT}{factor}={level}".encode()).digest()[0] % len(PALETTE)
            taken.append(min([*PALETTE[slot:], *PALETTE[:slot]], key=taken.count))
            found[factor, formatting.show(level)] = taken[-1]
    return found


def roles(manifest: Manifest) -> tuple[str | None, str | None, list[str]]:
    """The factor shown by colour (most levels), the one by dash and marker (few levels), and those that need panels.
    Designs other than a grid have none of these, but panels for rungs: each cell has its own encoding."""
    factors = manifest.factors
    if manifest.design != "grid":
        return None, None, [RUNG] * (manifest.design == "ladder")
    ranked = sorted(factors, key=lambda name: (name not in manifest.reference, -len(factors[name])))
    second = next((name for name in ranked[1:] if len(factors[name]) <= len(DASHES)), None)
    return (ranked[0] if ranked else None), second, [name for name in factors if name not in (*ranked[:1], second)]


def encodings(manifest: Manifest, palette: dict[tuple[str, str], str]) -> dict[str, Encoding]:
    """The encoding of each cell by its id; `palette` has the colour of each (factor, level)."""
    if manifest.design != "grid":
        return _separate_encodings(manifest, palette)
    factors, (colour, second, _), found = manifest.factors, roles(manifest), {}
    for cell in manifest.cells:
        first = factors[colour].index(cell.levels[colour]) if colour else 0
        style = factors[second].index(cell.levels[second]) if second else first // len(PALETTE)
        shade = palette[colour, formatting.show(cell.levels[colour])] if colour else PALETTE[0]
        place = first * len(factors[second]) + style if second else first  # markers tell colours apart in grey
        found[cell.id] = Encoding(shade, DASHES[style % len(DASHES)], MARKERS[place % len(MARKERS)])
    return found


def _separate_encodings(manifest: Manifest, palette: dict[tuple[str, str], str]) -> dict[str, Encoding]:
    """A changed cell has the colour of its change and its factor's dash and marker; other cells get them in order."""
    changed, factors = evidence.changes(manifest), list(manifest.factors)
    found, arms = dict[str, Encoding](), dict[str, Encoding]()
    for cell in manifest.cells:
        arm = str({**cell.levels, RUNG: ""})  # one encoding on all rungs of a ladder
        if cell.id in changed:
            factor, level = changed[cell.id]
            colour, place = palette[factor, formatting.show(level)], factors.index(factor) + 1
        else:
            colour, place = INK, 0
        ways = (Encoding(colour, DASHES[n % len(DASHES)], MARKERS[n % len(MARKERS)]) for n in range(place, place + 12))
        free = (encoding for encoding in ways if encoding not in arms.values())
        arms.setdefault(arm, next(free, Encoding(colour, DASHES[0], MARKERS[0])))
        found[cell.id] = arms[arm]
    return found


def title(manifest: Manifest) -> str:
    """The title of a study: what it varies, and its tasks."""
    tasks = dict.fromkeys(task.title for task in manifest.tasks.values())
    return " · ".join([naming.title(manifest), ", ".join(tasks)] if any(tasks) else [naming.title(manifest)])


def save(drawn: Figure, folder: Path, name: str, stamp: dict[str, str], kinds: Iterable[str] = VARYING) -> list[Path]:
    """Write a figure as PNG and PDF, or as PNG alone, with `stamp` in each; the same figure gives the same bytes."""
    files = []
    for kind in kinds:
        buffer, metadata = io.BytesIO(), {**stamp, VARYING[kind]: None}
        drawn.savefig(buffer, format=kind, dpi=DPI if kind == "png" else "figure", metadata=metadata)
        drawn.set_layout_engine("none")  # keep the layout: computing it again takes most of the time
        files.append(write_atomic(folder / f"{name}.{kind}", buffer.getvalue()))
    return sorted(files)


def nothing(drawn: Figure, why: str) -> Figure:
    """The figure with a sentence in place of data."""
    axis = drawn.subplots()
    say(axis, why)
    axis.set_axis_off()
    return drawn


def say(axis: Axes, text: str) -> None:
    """A text in the middle of an empty panel."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=MUTED)


def numeric(levels: list[Any]) -> bool:
    """Whether levels are several numbers."""
    return len(levels) > 1 and all(map(is_number, levels))


@functools.cache
def width_of(text: str, size: float = SIZE) -> float:
    """The width in inches of the longest line of a text at a size in points."""
    font = FontProperties(family="DejaVu Sans", size=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that the font lacks also warn when they are drawn
        widths = [text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in text.split("\n")]
    return float(max(widths)) * PIXELS * size / 100 / 72


def fold(text: str, inches: float, size: float = SIZE) -> str:
    """A text wrapped to a width in inches: at spaces, in long words after a hyphen or a dot, or else anywhere."""
    lines = [""]
    for word in re.findall(r"\s*\S+", text):
        joined = (lines[-1] + word).lstrip()
        if width_of(joined, size) <= inches:
            lines[-1] = joined
        else:
            lines += _pieces(word.lstrip(), inches, size)
    return "\n".join(line for line in lines if line)


def _pieces(word: str, inches: float, size: float) -> Iterator[str]:
    line = ""
    for part in re.split(r"(?<=[-.=_/])", word):
        if line and width_of(line + part, size) > inches:
            yield line
            line = ""
        line += part
        while len(line) > 1 and width_of(line, size) > inches:
            fits = next(n for n in range(len(line) - 1, 0, -1) if n == 1 or width_of(line[:n], size) <= inches)
            yield line[:fits]
            line = line[fits:]
    yield line
