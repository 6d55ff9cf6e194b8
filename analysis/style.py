"""One look per variant, the same in every figure, for print, for screens and for readers with any colour vision."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

WIDTH = 6.9  # inches: the text width of a two-column paper
INK, MUTED = "#222222", "#999999"

# Okabe & Ito 2008 without its yellow, with a violet, a brown and a grey: any two differ by ΔE ≥ 16 for full colour
# vision, protanopia, deuteranopia and tritanopia (Machado 2009).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#332288", "#661100", "#444444")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "p", "h", "<", ">", "*", "d")

RC = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.titlesize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.unicode_minus": True,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType: what publishers accept
    "svg.hashsalt": "ablate",
}


class Look(NamedTuple):
    """How a cell is drawn."""

    colour: str
    dash: Any
    marker: str


def colours(manifest: dict[str, Any]) -> dict[tuple[str, str], str]:
    """A colour for each (factor, level), by the hash of its name; a taken colour passes to the next free one.

    Beyond nine variants colours come again, which markers and dashes tell apart.
    """
    names = [(factor, str(level)) for factor, levels in manifest["factors"].items() for level in levels]
    found: dict[tuple[str, str], str] = {}
    for name in sorted(names):
        slot = int(hashlib.sha256("=".join(name).encode()).hexdigest(), 16) % len(PALETTE)
        order = [*PALETTE[slot:], *PALETTE[:slot]]
        found[name] = min(order, key=list(found.values()).count)
    return found


def roles(manifest: dict[str, Any]) -> tuple[str | None, str | None, list[str]]:
    """Which factor is colour (most levels), which is dash and marker (few levels), which need panels of their own."""
    factors = manifest["factors"]
    inside = [name for name in factors if name in manifest["reference"]]
    ranked = sorted(factors, key=lambda name: (name not in inside, -len(factors[name])))
    second = next((name for name in ranked[1:] if len(factors[name]) <= len(DASHES)), None)
    return (ranked[0] if ranked else None), second, [name for name in factors if name not in (*ranked[:1], second)]


def looks(manifest: dict[str, Any]) -> dict[str, Look]:
    """The look of each cell by its id."""
    colour, second, _ = roles(manifest)
    if colour is None:
        return {cell["id"]: Look(PALETTE[0], DASHES[0], MARKERS[0]) for cell in manifest["cells"]}
    palette, levels = colours(manifest), sorted(map(str, manifest["factors"][colour]))
    found = {}
    for cell in manifest["cells"]:
        name = str(cell["levels"][colour])
        style = (
            manifest["factors"][second].index(cell["levels"][second]) if second else levels.index(name) // len(PALETTE)
        )
        marker = style if second else levels.index(name)
        shade = palette[colour, name]
        found[cell["id"]] = Look(shade, DASHES[style % len(DASHES)], MARKERS[marker % len(MARKERS)])
    return found


def figure(height: float) -> Figure:
    """An empty figure of the text width; `height` in inches."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def save(drawn: Figure, folder: Path, name: str) -> list[Path]:
    """Write PDF and PNG; the same figure gives the same bytes."""
    files = [folder / f"{name}.pdf", folder / f"{name}.png"]
    drawn.savefig(files[0], metadata={"CreationDate": None})
    drawn.savefig(files[1], dpi=200)
    return files
