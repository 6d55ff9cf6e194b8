"""Interactions: for each pair of factors the marginal means as lines, and as a heat map of differences."""

from __future__ import annotations

import itertools
import math
from typing import Any

import matplotlib
import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ablate import evidence, words
from analysis.case import Case
from analysis.figures import parts, style
from analysis.figures.kind import Kind, Page
from analysis.figures.main_effects import compared, interval_text, marginal

PAIRS = 4  # drawn: those with the largest interaction
LINES = 6  # levels that lines can still show
WRITTEN = 12  # levels of a side beyond which the numbers of a heat map cannot be read
MAP = "RdBu_r"  # diverging and told apart with any colour vision; white at zero
COLUMNS = ["facet", "factor", "level", "one", "other", "mean", "low", "high", "difference", "half", "n"]
COLUMNS += ["runs", "diverged", "failed", "missing", "verdict", "note"]

Cell = dict[str, Any]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per combination of two factors' levels (`one`, `other`), and a row per interaction (`one` is NaN).

    mean, low, high: the marginal mean with the interval of main effects; difference, half: mean over seeds of the
    difference to the pair's reference levels, and half of its 95 % t-interval, unadjusted.  Interactions have the
    estimate, interval and verdict of effects.  NaN where the number of diverged runs differs from the reference's.
    """
    study = case.study
    factors = compared(study)
    blocks = [
        (stratum, cells, pair)
        for stratum, cells in evidence.strata(study.manifest)
        for pair in itertools.combinations(factors, 2)
    ]
    blocks = [block for block in blocks if len(_interactions(case, block[0], block[2]))]
    if not blocks:
        return None
    kept = sorted(sorted(range(len(blocks)), key=lambda i: -_size(case, blocks[i]))[:PAIRS])
    rows = [row for i in kept for row in _block(case, *blocks[i])]
    made = pandas.DataFrame(rows, columns=COLUMNS)
    known = made["half"]
    made.attrs = {
        "y": parts.axis_label(study),
        "places": words.decimals([known.median()]),
        "reference": {name: words.show(study.manifest["reference"][name]) for name in factors},
        "caption": _caption(case, made, len(blocks)),
    }
    return made


def _interactions(case: Case, stratum: str, pair: tuple[str, str]) -> pandas.DataFrame:
    table = case.effects
    named = (table["kind"] == "interaction") & (table["factor"] == " x ".join(pair)) & (table["stratum"] == stratum)
    return table[named]


def _size(case: Case, block: tuple[str, list[Cell], tuple[str, str]]) -> float:
    largest = _interactions(case, block[0], block[2])["mean"].abs().max()
    return float(largest) if math.isfinite(largest) else 0.0


def _block(case: Case, stratum: str, cells: list[Cell], pair: tuple[str, str]) -> list[dict[str, Any]]:
    corners: dict[tuple[Any, Any], list[str]] = {}
    for cell in cells:
        corners.setdefault((cell["levels"][pair[0]], cell["levels"][pair[1]]), []).append(cell["id"])
    reference = case.study.manifest["reference"]
    base = corners.get((reference[pair[0]], reference[pair[1]]), [])
    estimates = marginal(case.study, list(corners.values()), cells)
    known = case.cells.set_index("cell")
    counts = {key: {name: int(known.loc[ids, name].sum()) for name in LOST} for key, ids in corners.items()}
    at = {"facet": stratum, "factor": " x ".join(pair)}
    rows = []
    for (key, ids), estimate in zip(corners.items(), estimates, strict=True):
        one, other = map(words.show, key)
        same = bool(base) and counts[key]["diverged"] * len(base) == _diverged(case, base) * len(ids)
        row = at | {"level": f"{one}, {other}", "one": one, "other": other, "n": estimate.n} | counts[key]
        rows.append(row | _numbers(case, estimate, ids, base, same))
    for effect in _interactions(case, stratum, pair).itertuples():
        note = {name: getattr(effect, name) for name in ("level", "mean", "low", "high", "n", "verdict", "note")}
        rows.append(at | note)
    return rows


LOST = ["runs", "diverged", "failed", "missing"]


def _diverged(case: Case, ids: list[str]) -> int:
    return int(case.cells.set_index("cell").loc[ids, "diverged"].sum())


def _numbers(
    case: Case, estimate: evidence.Estimate, ids: list[str], base: list[str], comparable: bool
) -> dict[str, float]:
    """The mean with its interval, and the difference to the reference levels with half of its interval."""
    low, high = evidence.interval(estimate, evidence.ALPHA)
    found = {"mean": estimate.mean, "low": low, "high": high}
    if not comparable:
        return found | {"difference": math.nan, "half": math.nan}
    values = evidence.scores(case.study, evidence.endpoint(case.study.manifest))
    batches = {cell["id"]: cell["batches"] for cell in case.study.manifest["cells"]}
    if ids == base:
        return found | {"difference": 0.0, "half": math.nan}
    if len({batches[cell] for cell in [*ids, *base]}) == 1:
        both = values[[*ids, *base]].dropna()
        change = evidence.paired((both[ids].mean(axis=1) - both[base].mean(axis=1)).to_numpy())
    else:
        signed = [(cell, 1 / len(ids)) for cell in ids] + [(cell, -1 / len(base)) for cell in base]
        change = evidence.welch([values[cell].dropna().to_numpy() * weight for cell, weight in signed])
    least, most = evidence.interval(change, evidence.ALPHA)
    return found | {"difference": change.mean, "half": (most - least) / 2}


def _caption(case: Case, made: pandas.DataFrame, blocks: int) -> list[str]:
    cells = made[made["one"].notna()]
    lost = cells["difference"].isna() & (cells["diverged"] > 0)
    pairs = len(made.groupby(["facet", "factor"]))
    return [
        f"lines: mean with {interval_text(case.study, cells['n'])}",
        "map: difference to the reference levels ± half of its 95 % t-interval; red is larger",
        "hatched: another number of diverged runs than at the reference levels" * bool(lost.any()),
        f"interactions: {parts.simultaneous(case.effects)}",
        f"{pairs} of {blocks} pairs shown, those with the largest interaction; effects.csv has all" * (pairs < blocks),
        parts.warning(case.study),
    ]


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """Per pair of factors lines and a heat map, one above the other in a narrow figure."""
    blocks = list(table.groupby(["facet", "factor"], sort=False))
    each = [(rows, _shape(rows)) for _, rows in blocks]
    per_row = 1 if page.narrow else 2
    heights = [height for _, (_, others) in each for height in [max(1.75, 0.3 * others + 0.9)] * (3 - per_row)]
    drawn = page.figure(table, sum(heights))
    axes = iter(drawn.subplots(len(heights), per_row, squeeze=False, height_ratios=heights).flat)
    top = float(table["difference"].abs().max()) or 1.0
    scale = Normalize(-top, top) if np.isfinite(top) else Normalize(-1, 1)
    for rows, (ones, _) in each:
        lines, heat = next(axes), next(axes)
        _lines(lines, rows, page, table.attrs)
        _heat(heat, rows, page, table.attrs, scale)
        lines.set_title(_heading(rows, page))
        if ones > WRITTEN:
            drawn.colorbar(matplotlib.cm.ScalarMappable(scale, MAP), ax=heat, label="difference", fraction=0.05)
    return drawn


def _shape(rows: pandas.DataFrame) -> tuple[int, int]:
    return rows["one"].nunique(), rows["other"].nunique()


def _heading(rows: pandas.DataFrame, page: Page) -> str:
    """The pair, and what is known of its interaction: all of one, the largest of several."""
    found = list(rows[rows["one"].isna()].itertuples())
    where = " at ".join(filter(None, [page.label(found[0].factor), found[0].facet]))
    known = [row for row in found if np.isfinite(row.mean)] or found[:1]
    largest = max(known, key=lambda row: abs(row.mean))
    named = f"largest of {len(found)}, {page.label(largest.level)}: " if len(found) > 1 else ""
    said = parts.said(largest, words.decimals([(largest.high - largest.low) / 2]))
    alias = f"\n{page.label(largest.note)}" if largest.note.startswith("aliased") else ""
    return f"{where}\n{named}{said}{alias}"


def _lines(axis: Axes, rows: pandas.DataFrame, page: Page, attrs: dict[Any, Any]) -> None:
    """The levels of the longer factor along x, a line per level of the other."""
    cells = rows[rows["one"].notna()]
    along, across = ("one", "other") if cells["one"].nunique() > cells["other"].nunique() else ("other", "one")
    names = str(rows["factor"].iloc[0]).split(" x ")
    factor = dict(zip(("one", "other"), names, strict=True))
    x = list(dict.fromkeys(cells[along]))
    groups = list(cells.groupby(across, sort=False))
    for i, (level, group) in enumerate(groups[:LINES]):
        at = np.array([x.index(each) for each in group[along]]) + 0.06 * (i - (min(LINES, len(groups)) - 1) / 2)
        shade = page.colour(factor[across], level)
        axis.plot(at, group["mean"], "o-", ms=3.5, color=shade, label=page.label(level), zorder=3)
        axis.vlines(at, group["low"], group["high"], color=shade, lw=0.9)
    axis.set_xticks(range(len(x)), [page.label(each) for each in x], rotation=35 if len(x) > 4 else 0)
    axis.set(xlabel=page.label(factor[along]), ylabel=attrs["y"], xlim=(-0.5, len(x) - 0.5))
    if cells["mean"].isna().all():
        axis.set_yticks([])
    more = f" (first {LINES} of {len(groups)})" * (len(groups) > LINES)
    title = page.label(factor[across]) + more
    axis.legend(title=title, loc="upper left", bbox_to_anchor=(1, 1), title_fontsize=6.5, handlelength=1.2, borderpad=0)


def _heat(axis: Axes, rows: pandas.DataFrame, page: Page, attrs: dict[Any, Any], scale: Normalize) -> None:
    cells = rows[rows["one"].notna()]
    columns, lines = list(dict.fromkeys(cells["one"])), list(dict.fromkeys(cells["other"]))
    if len(columns) > len(lines):
        columns, lines, horizontal, vertical = columns, lines, "one", "other"
    else:
        columns, lines, horizontal, vertical = lines, columns, "other", "one"
    names = dict(zip(("one", "other"), str(rows["factor"].iloc[0]).split(" x "), strict=True))
    for row in cells.itertuples():
        place = columns.index(getattr(row, horizontal)), lines.index(getattr(row, vertical))
        _square(axis, place, row, attrs, scale, len(columns))
    axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(lines) - 0.5, -0.5))
    long = len(columns) > 4
    axis.set_xticks(range(len(columns)), [page.label(each) for each in columns], rotation=35 if long else 0)
    axis.set_yticks(range(len(lines)), [page.label(each) for each in lines])
    axis.set(xlabel=page.label(names[horizontal]), ylabel=page.label(names[vertical]))
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _square(
    axis: Axes, place: tuple[int, int], row: Any, attrs: dict[Any, Any], scale: Normalize, columns: int
) -> None:
    known = np.isfinite(row.difference)
    colour = matplotlib.colormaps[MAP](scale(row.difference)) if known else style.FAINT
    hatch = None if known else "////"
    corner = place[0] - 0.5, place[1] - 0.5
    axis.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", hatch=hatch, lw=0.8))
    if columns > WRITTEN:
        return
    lines = [f"{row.diverged:.0f} of {row.runs:.0f} div."] * bool(row.diverged)
    if known:
        shown = words.number(row.difference, attrs["places"], signed=True) if row.difference else "reference"
        lines = [shown, *([f"± {words.number(row.half, attrs['places'])}"] if np.isfinite(row.half) else []), *lines]
    dark = known and abs(scale(row.difference) - 0.5) > 0.3
    size = 5.5 if columns <= 6 else 4.2
    axis.text(*place, "\n".join(lines), ha="center", va="center", fontsize=size, color="white" if dark else style.INK)


KIND = Kind("interactions", "whether the effect of one factor depends on another", table, draw, most=2000)
