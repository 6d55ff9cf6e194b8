"""Placebos: differences due to noise next to those of the study, by seed."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ablate import evidence, formatting
from ablate.evidence.expected_noise import KEY, SINGLE
from ablate.results import naming
from ablate.results.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import difference_ticks, estimate, name_x, spread, stacked
from analysis.figures.kind import Kind, Page

TITLES = {"data": "data order", "init": "initialisation", "chaos": "chaos (1e-7)"}
MOST = 18  # effects that are shown: those with the smallest p
COLUMNS = ["role", "factor", "level", "name", "seed", "value", "mean", "low", "high", "sd", "floor", "n", "verdict"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per placebo and effect, and a row for each seed's difference (`role` dot), in the metric's unit.

    Placebos: mean and SD over seeds of placebo − reference cell.  Effects: those that change one factor, with their
    simultaneous interval and `floor`, the SD of the placebo that draws their factor anew, or of chaos if the factor
    draws no random numbers.  Unpaired effects have no dots.
    """
    placebos = case.study.beside.get("placebos")
    if placebos is None:
        return None
    floors = {floor.kind: floor for floor in evidence.floors(placebos) if floor.n}
    if not floors:
        return None
    metric, rows = evidence.endpoint(placebos.manifest), list[dict[str, Any]]()
    cells, values = {cell.levels[KEY]: cell for cell in placebos.manifest.cells}, evidence.scores(placebos, metric)
    for kind, floor in floors.items():
        found = (values[cells[kind].id] - values[cells[None].id]).dropna()
        name = TITLES.get(kind, f"{naming.named(placebos.manifest, kind)} drawn anew")
        who, mean = {"factor": "", "level": "", "name": name}, float(found.mean())
        spread = {"mean": mean, "low": mean - floor.sd, "high": mean + floor.sd, "sd": floor.sd, "n": floor.n}
        rows += [who | {"role": "placebo", "verdict": ""} | spread]
        rows += [who | {"role": "dot", "seed": seed, "value": value} for seed, value in found.items()]
    rows += _effects(case, metric, {kind: floor.sd for kind, floor in floors.items() if floor.n > 1})
    made, reference = pandas.DataFrame(rows, columns=COLUMNS), cells[None].label
    there = case.effects.query("metric == @metric and kind in @SINGLE and n > 0")
    facts = {"reference": reference, "shown": int((made["role"] == "effect").sum()), "every": len(there)}
    places = formatting.decimals((made["high"] - made["low"])[made["role"] == "effect"] / 2)
    caption, label = captions.caption("placebos", case, made, **facts), captions.difference_label(case.study, metric)
    made.attrs = {"x": label, "places": places, "caption": caption}
    return made


def _effects(case: Case, metric: str, floors: dict[str, float]) -> Iterator[dict[str, Any]]:
    values = evidence.scores(case.study, metric)
    pairs = list(zip(evidence.contrasts(case.study.manifest), named_rows(case.effects), strict=True))
    single = [pair for pair in pairs if pair[1].kind in SINGLE and pair[1].n and pair[1].metric == metric]
    first = sorted(single, key=lambda pair: pair[1].p if pair[1].p == pair[1].p else 2.0)[:MOST]
    for contrast, row in [pair for pair in single if pair in first]:
        who = {"factor": row.factor, "level": row.level, "name": row.label}
        known = {name: getattr(row, name) for name in ("mean", "low", "high", "sd", "n", "verdict")}
        if row.verdict == "withheld":
            known["mean"] = math.nan
        yield who | known | {"role": "effect", "floor": floors.get(row.factor, floors.get("chaos", math.nan))}
        if row.paired and row.verdict != "withheld":
            sums = (values[list(contrast.weights)] * pandas.Series(contrast.weights)).sum(axis=1, skipna=False).dropna()
            yield from (who | {"role": "dot", "seed": seed, "value": value} for seed, value in sums.items())


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """Placebos on top, effects below, each with the noise that it must exceed."""
    rows = [row for row in named_rows(table) if row.role != "dot"]
    results = [_result(row, table.attrs["places"]) for row in rows]
    drawn, (axis,) = stacked(table, page, [([row.name for row in rows], results)], 0.2)
    axis.axvline(0, color=style.INK, lw=0.6, zorder=1)
    dots = table[table["role"] == "dot"]
    for y, row in enumerate(rows):
        own = dots.loc[(dots["name"] == row.name) & (dots["factor"] == row.factor), "value"]
        shade = style.verdict_colour(row.verdict) if row.role == "effect" else style.MUTED
        if np.isfinite(row.floor):
            corner, thick = (-2 * row.floor, y - 0.42), 0.84
            axis.add_patch(Rectangle(corner, 4 * row.floor, thick, color=style.FAINT, zorder=0))
        if len(own) > style.DOTS:
            axis.plot(spread(own, False), [y + 0.16] * 2, color=shade, lw=4, alpha=0.3)
        else:
            axis.plot(own, [y + 0.16] * len(own), "o", color=shade, ms=2.6, mec="white", mew=0.3, zorder=3)
        look = {} if row.role == "effect" else {"mfc": shade, "color": shade}
        estimate(axis, y - 0.14, row, fmt="D", ms=3.2, **look)
    axis.margins(x=0.05)
    difference_ticks(axis, page)
    name_x(axis, table.attrs["x"], page)
    return drawn


def _result(row: Any, places: int) -> str:
    if row.role == "placebo":
        return f"SD {formatting.number(row.sd, formatting.decimals([row.sd]))}" if row.n > 1 else "one seed, no SD"
    if row.verdict == "withheld":
        return "withheld"
    return f"{formatting.span(row.mean, row.low, row.high, places)}  {row.verdict}"


KIND = Kind("every difference beside those that noise makes", table, draw, most=2000)
