"""Interactions: for each pair of factors, including settings, a heat map of differences and the estimate."""

import math
from typing import Any

import numpy as np
import pandas
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ablate import evidence, formatting
from ablate.runs.records import Cell, Manifest
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import name_ticks
from analysis.figures.kind import Kind, Page

PAIRS = 4  # pairs that are drawn: those with the largest interaction
WRITTEN = 12  # levels of a factor up to which differences are written into the map
READABLE = 5.3  # points; 6 in print, where styles enlarge letters
MAP = "RdBu_r"  # diverging, white at zero, distinguishable with any colour vision
COLUMNS = ["facet", "factor", "level", "one", "other", "mean", "low", "high", "difference", "half", "n"]
COLUMNS += ["runs", "diverged", "failed", "missing", "verdict", "note"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per combination of two factors' levels (`one`, `other`), and a row per interaction (`one` is NaN).

    difference, half: mean over seeds of the difference to the pair's reference levels, and half of its 95 % t-interval,
    unadjusted; NaN if the number of diverged runs differs from the reference's.  Interactions have the estimate (mean,
    low, high), n and verdict from the table of effects.
    """
    manifest = case.study.manifest
    own, metric = evidence.endpoints(manifest), evidence.endpoint(manifest)
    cells = dict(captions.one_metric(case.study))
    for stratum, crossed_cells, _ in evidence.crossings(manifest):  # settings are factors here, not strata
        if {own[cell.id] for cell in crossed_cells} == {metric}:
            cells[stratum] = crossed_cells
    crossed = case.effects[case.effects["kind"].isin(formatting.CROSSED) & case.effects["stratum"].isin(cells)]
    crossed = crossed[crossed["factor"].str.count(" x ") == 1]
    pairs = [rows for _, rows in crossed.groupby(["stratum", "factor"], sort=False)]
    if not pairs:
        return None
    sizes = [rows.loc[rows["kind"] == "interaction", "mean"].abs().fillna(0.0).max() for rows in pairs]
    largest = sorted(range(len(pairs)), key=lambda i: -sizes[i])[:PAIRS]
    values = evidence.scores(case.study, metric)
    blocks = [_block(case, values, pairs[i], cells[pairs[i]["stratum"].iloc[0]]) for i in sorted(largest)]
    made = pandas.DataFrame([row for rows in blocks for row in rows], columns=COLUMNS)
    facts = {"every": len(pairs), "solved": evidence.is_solved(metric)}
    facts["dotted"] = (made["difference"].notna() & _open(made)).any()
    facts["left"] = len(evidence.strata(manifest)) - len(captions.one_metric(case.study))
    caption = captions.caption("interactions", case, made, **facts)
    made.attrs = {"places": formatting.decimals([made["half"].median()]), "caption": caption}
    return made


def _block(case: Case, values: pandas.DataFrame, effects: pandas.DataFrame, cells: list[Cell]) -> list[dict[str, Any]]:
    pair = effects["factor"].iloc[0].split(" x ")
    corners = formatting.grouped(((cell.levels[pair[0]], cell.levels[pair[1]]), cell.id) for cell in cells)
    reference = evidence.bases(case.study.manifest)
    base = corners.get((reference[pair[0]], reference[pair[1]]), [])
    known = case.cells.set_index("cell")[COUNTS].to_dict("index")
    counts = {key: {name: sum(known[cell][name] for cell in ids) for name in COUNTS} for key, ids in corners.items()}
    lost = sum(known[cell]["diverged"] for cell in base)
    at = {"facet": effects["stratum"].iloc[0], "factor": effects["factor"].iloc[0]}
    rows, solved = [], evidence.is_solved(evidence.endpoint(case.study.manifest))  # diverged runs count as unsolved
    for key, ids in corners.items():
        one, other = map(formatting.show, key)
        row = at | {"level": f"{one}, {other}", "one": one, "other": other} | counts[key]
        alike = base and (solved or counts[key]["diverged"] * len(base) == lost * len(ids))
        rows.append(row | (_difference(case.study.manifest, values, ids, base, solved) if alike else {}))
    lines = ["level", "mean", "low", "high", "n", "verdict", "note"]
    return rows + [at | effect for effect in effects[lines].to_dict("records")]


COUNTS = ["runs", "diverged", "failed", "missing"]


def _difference(
    manifest: Manifest, values: pandas.DataFrame, ids: list[str], base: list[str], solved: bool
) -> dict[str, float]:
    """The difference of cells to those of the reference levels, with half of its interval.  The exact interval of the
    share solved is not symmetric: `half` is its side towards zero."""
    if ids == base:
        return {"difference": 0.0, "half": math.nan}
    weights = dict.fromkeys(ids, 1 / len(ids)) | dict.fromkeys(base, -1 / len(base))
    contrast = evidence.Contrast("cell", "", "", "", "", "", weights)
    change, paired = evidence.difference_of(manifest, values, contrast, solved)
    least, most = evidence.interval(change, evidence.ALPHA)
    if solved:
        return {"difference": change.mean, "half": change.mean - least if change.mean > 0 else most - change.mean}
    half = 0.0 if change.mean == change.sd == 0 else (most - least) / 2
    return {"difference": change.mean, "half": math.nan if evidence.too_few_seeds(change.n, paired) else half}


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A heat map of differences per pair of factors, below each other."""
    blocks = [rows for _, rows in table.groupby(["facet", "factor"], sort=False) if rows["one"].notna().any()]
    heights = [_height(rows, page.narrow) for rows in blocks]
    drawn = page.figure(table, sum(heights))
    top = float(table["difference"].where(~_open(table)).abs().max())
    axes = drawn.subplots(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, rows in zip(axes, blocks, strict=True):
        _heat(axis, rows, page, table.attrs["places"], top if top > 0 else 1.0)
        room = min(page.width * 0.8, page.width - 0.85)
        axis.set_title("\n".join(style.fold(line, room, 7) for line in _heading(rows, page)))
    return drawn


def _open(rows: pandas.DataFrame) -> pandas.Series:
    """Whether the difference to the reference levels does not differ significantly from zero."""
    return (rows["difference"].ne(0) | rows["half"].notna()) & ~(rows["difference"].abs() > rows["half"])


def _height(rows: pandas.DataFrame, narrow: bool) -> float:
    levels = sorted((rows["one"].nunique(), rows["other"].nunique()), reverse=narrow)
    return 0.9 + (0.34 if levels[1] <= WRITTEN else 0.18) * levels[0]


def _heading(rows: pandas.DataFrame, page: Page) -> list[str]:
    """The title of a pair with its interaction, or with the largest of several."""
    factors = rows["factor"].iloc[0].split(" x ")
    where = " at ".join(filter(None, [" × ".join(map(page.label, factors)), rows["facet"].iloc[0]]))
    every = list(named_rows(rows[rows["one"].isna()]))
    trends = [row for row in every if formatting.levels_of(row)[-1].startswith(formatting.PER)]
    found = [row for row in every if row not in trends]
    if not found:  # its levels are not in the user's subset
        return [where]
    known = [row for row in found if np.isfinite(row.mean)] or found[:1]
    largest = max(known, key=lambda row: abs(row.mean))
    level = ", ".join(map(page.label, formatting.levels_of(largest), factors))
    named = f"largest of {len(found)}, {level}: " if len(found) > 1 else ""
    lines = [f"{', '.join(map(page.label, formatting.levels_of(row), factors))}: {_result(row)}" for row in trends]
    return [where, named + _result(largest), *lines]


def _result(row: Any) -> str:
    return captions.result(row, formatting.decimals([(row.high - row.low) / 2]))


def _heat(axis: Axes, rows: pandas.DataFrame, page: Page, places: int, top: float) -> None:
    cells = rows[rows["one"].notna()]
    along, across = ("other", "one")  # more levels along x, on a narrow page along y
    more = cells["one"].nunique() - cells["other"].nunique()
    if more < 0 if page.narrow else more > 0:
        along, across = across, along
    names = dict(zip(("one", "other"), str(rows["factor"].iloc[0]).split(" x "), strict=True))
    cells = cells.assign(open=_open(cells), text=[_written(row, places) for row in named_rows(cells)])
    columns, lines = list(dict.fromkeys(cells[along])), list(dict.fromkeys(cells[across]))
    grid, inches = cells.pivot(index=across, columns=along).reindex(lines), page.width - 0.9
    # The font size in points at which the widest text fits a square; 0 if that is unreadable.
    widest = max((style.width_of(text, 1.0) for text in cells["text"] if len(columns) <= WRITTEN), default=0.0)
    size = min(6.0, 0.92 * inches / len(columns) / widest) if widest else 0.0
    size = size if size >= READABLE else 0.0
    shown = grid["difference"].where(~grid["open"].astype(bool), 0.0).fillna(0.0)[columns]
    how: dict[str, Any] = {"vmin": -top, "vmax": top, "cmap": MAP, "linewidths": 0.8}
    how |= {"cbar": not size, "cbar_kws": {"label": "difference", "fraction": 0.05}}
    texts = grid["text"].fillna("")[columns] if size else None
    seaborn.heatmap(shown, annot=texts, fmt="", annot_kws={"fontsize": size}, ax=axis, **how)
    for row in named_rows(cells[cells["open"] | cells["difference"].isna()]):
        line, column = lines.index(getattr(row, across)), columns.index(getattr(row, along))
        # Dotted if a difference is not significant, hatched if there is none.
        known = np.isfinite(row.difference)
        shade, hatch, edge = ("white", "...", (style.MUTED, 0.6)) if known else (style.FAINT, "////", "white")
        axis.add_patch(Rectangle((column, line), 1, 1, facecolor=shade, hatch=hatch, edgecolor=edge, lw=0))
        for text in axis.texts[line * len(columns) + column :][:1]:
            text.set(color=style.INK, bbox={"facecolor": shade, "edgecolor": "none", "pad": 1})
    name_ticks(axis, [page.label(each, names[along]) for each in columns], inches, first=0.5)
    levels = [style.fold(page.label(each, names[across]), 0.7) for each in lines]
    axis.set_yticks([i + 0.5 for i in range(len(lines))], levels, rotation=0)
    axis.set(xlabel=page.label(names[along]), ylabel=style.fold(page.label(names[across]), 0.7))
    axis.tick_params(length=0)


def _written(row: Any, places: int) -> str:
    """The text of a square: the difference ± half of its interval, and how many runs diverged."""
    lost = [f"{row.diverged:.0f}/{row.runs:.0f} div."] * bool(row.diverged)
    if not np.isfinite(row.difference):
        return "\n".join(lost)
    half = [f"± {formatting.number(row.half, places)}"] * bool(np.isfinite(row.half))
    change = formatting.number(row.difference, places, signed=True)
    return "\n".join(["ref." if not row.difference and not half else change, *half, *lost])


KIND = Kind("whether the effect of one factor depends on another", table, draw, most=2000)
