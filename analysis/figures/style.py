"""What every figure shares: colours, dashes and markers of variants, colours of verdicts, sizes per style, saving."""

import hashlib
import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

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


def roles(manifest: Manifest) -> tuple[str | None, str | None, list[str]]:
    """The factor shown by colour (most levels), the one by dash and marker (few levels), and those that need panels.
    Designs other than a grid have none of these, but panels for rungs."""
    factors = manifest.factors
    ranked = sorted(factors, key=lambda name: (name not in manifest.reference, -len(factors[name])))
    if manifest.design != "grid" or not ranked:
        return None, None, [RUNG] if manifest.design == "ladder" else []
    second = next((name for name in ranked[1:] if len(factors[name]) <= len(DASHES)), None)
    return ranked[0], second, [name for name in factors if name not in (ranked[0], second)]


def encodings(manifest: Manifest, palette: dict[tuple[str, str], str]) -> dict[str, Encoding]:
    """The encoding of each cell by its id; `palette` has the colour of each (factor, level).

    Cells of one colour differ in dash and marker.  A design that changes one factor at a time shows what was changed,
    and what was not in black; rungs of a ladder share their encodings.
    """
    colour_factor, second, _ = roles(manifest)
    changes = {} if manifest.design == "grid" else evidence.changes(manifest)
    result = {}
    by_levels: dict[str, Encoding] = {}
    for cell in manifest.cells:
        change = changes.get(cell.id, ("", ""))
        levels = {name: level for name, level in cell.levels.items() if name != RUNG}
        if colour_factor:
            change = (colour_factor, cell.levels[colour_factor])
            levels = {name: cell.levels[name] for name in (colour_factor, second) if name}
        key = str(levels)
        if key not in by_levels:
            colour = palette.get((change[0], formatting.show(change[1])), INK)
            place = [encoding.colour for encoding in by_levels.values()].count(colour)
            marker = MARKERS[len(by_levels) % len(MARKERS)]  # markers tell colours apart in grey
            by_levels[key] = Encoding(colour, DASHES[place % len(DASHES)], marker)
        result[cell.id] = by_levels[key]
    return result


def with_factors(manifest: Manifest, names: Iterable[str]) -> Manifest:
    """The manifest with these factors alone."""
    return replace(manifest, factors={name: manifest.factors[name] for name in names})


def handle(encoding: Encoding, line: bool = True, marker: bool = True) -> Line2D:
    """The entry of a legend, with a line, a marker, or both."""
    look = encoding if marker else encoding._replace(marker="")
    return Line2D([], [], color=look.colour, ls=look.dash if line else "", marker=look.marker)


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


def write_in(axis: Axes, text: str) -> None:
    """A text in the middle of an empty panel."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=MUTED)
    axis.set(xticks=[], yticks=[])
