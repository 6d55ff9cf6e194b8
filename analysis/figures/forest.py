"""Forest plots of effects and of claims: a point with its interval per row, filled where it is decided."""

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ablate import evidence, formatting
from ablate.config.claims import BOUNDED
from ablate.evidence.claim_text import claim_label, pairs
from ablate.formatting import ESTIMATE_ONLY
from ablate.runs import naming
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures import captions, style
from analysis.figures.axes import interval
from analysis.figures.kind import Kind, Page

MOST = 64  # rows that fit on a page
CROWDED = 24  # rows from which on they stand closer
FAR = 12  # the axis ends at so many times the median distance of intervals from the line
EFFECT = ["kind", "factor", "level", "stratum", "family", "n", "mean", "sd", "low", "high", "p", "verdict", "note"]
CLAIM = ["relation", "mean", "low", "high", "n", "verdict", "note"]
DRAWN = ["facet", "heading", "name", "result", "line", "grey_low", "grey_high"]

# The side of the line, or of the margin, that a relation claims; others claim the band between the margins.
SIDES = {"less": -1, "greater": 1, "not_greater": -1, "not_less": 1, "diverges_more": 1, "rank_correlates": 1}
UNITS = {
    "rank_correlates": "Spearman's ρ with the published numbers",
    "diverges_more": "difference in the share of diverged runs",
    "multiplier": "compute multiplier",
}


def effects_table(case: Case) -> pandas.DataFrame:
    """The headline rows of `evidence.effects`, with the name and result of each row, a panel per metric (`facet`), and
    the margin in grey.  Of too many rows, those with the smallest p."""
    effects = evidence.best_first(evidence.headline(case.effects)).reset_index(drop=True)
    table = effects[effects["p"].rank(method="first", na_option="bottom") <= MOST]
    is_withheld = table["verdict"] == "withheld"
    estimates = table[["mean", "low", "high"]].mask(is_withheld)
    facet = [captions.difference_label(case.study, metric) for metric in table["metric"]]
    grey = {"line": 0.0, "grey_low": -table["margin"], "grey_high": table["margin"]}
    table = table.assign(**estimates, facet=facet, **grey)
    table["result"] = results(table)
    rows_of = table["stratum"].value_counts()
    names = []
    for row in named_rows(table):
        factor, _, change = row.label.partition(": ")
        if row.stratum and rows_of[row.stratum] > 1:
            names.append((f"at {row.stratum}", row.label.removesuffix(f" at {row.stratum}")))
        elif change and len(table) > CROWDED:
            names.append((factor, change))
        else:
            names.append(("", row.label))
    table[["heading", "name"]] = pandas.DataFrame(names, table.index, ["heading", "name"])
    caption = effects_caption(case, table)
    if len(table) < len(effects):
        caption.append(f"{len(table)} of {len(effects)} rows shown, those with the smallest p; tables have all")
    table = table[EFFECT + DRAWN]
    table.attrs = {"caption": caption, "grey": "margin"}
    return table


def results(table: pandas.DataFrame) -> list[str]:
    """The result of each row, in as many decimals as its panel needs."""
    places = {facet: formatting.decimals((rows["high"] - rows["low"]) / 2) for facet, rows in table.groupby("facet")}
    return [captions.result(row, places[row.facet]) for row in named_rows(table)]


def effects_caption(case: Case, table: pandas.DataFrame) -> list[str]:
    """What points and intervals mean, and what else differs."""
    manifest = case.study.manifest
    if table["low"].isna().all():
        return ["no comparison has several seeds: no intervals", *captions.closing(case)]
    meaning = "no verdicts" if table["verdict"].eq(ESTIMATE_ONLY).all() else captions.COLOURS
    lines = [f"{captions.simultaneous(table)}; {meaning}", formatting.first_of(evidence.also_lines(manifest), 6)]
    if manifest.tuning:
        key = naming.key_name(manifest, manifest.tuning.key)
        lines.append(f"{key} tuned per variant; intervals ignore tuning noise")
    return [*lines, *captions.closing(case)]


def claims_table(case: Case) -> pandas.DataFrame | None:
    """A row per claim: estimate, interval, verdict, and what is claimed, in grey; a panel per unit (`facet`)."""
    manifest = case.study.manifest
    if case.claims.empty:
        return None
    rows = []
    for row in named_rows(case.claims):
        metric = naming.metric_name(manifest, row.metric)
        of_two_metrics = ", " in row.metric  # then its name is that of a difference already
        facet = UNITS.get(row.relation, metric if of_two_metrics else f"difference in {metric}")
        line, low, high = claimed_range(row, manifest)
        drawn = {"facet": facet, "heading": "", "line": line, "grey_low": low, "grey_high": high}
        rows.append(row._asdict() | drawn)
    table = pandas.DataFrame(rows)
    table["result"] = results(table)
    table["name"] = [claim_name(row, manifest) for row in named_rows(case.claims)]
    marks = []
    if table["family"].any():
        count = evidence.registered(manifest)  # also those that were edited after results, as in the intervals
        marks.append(f"simultaneous 95 % intervals over {formatting.counted(count, 'registered claim')}")
    if not table["registered"].all():
        marks.append("post hoc: estimates only, plain 95 % intervals")
    if table["n"].gt(0).any():
        marks.append(captions.seeds(table.loc[table["n"] > 0, "n"]))
    if table["verdict"].ne(ESTIMATE_ONLY).any():
        marks += ["filled: decided, blue: supported, orange: contradicted", "open: undecided"]
    table = table[CLAIM + DRAWN]
    grey = "claimed: the first minus the second"
    table.attrs = {"caption": ["; ".join(marks), *captions.closing(case)], "grey": grey}
    return table


def claim_name(row: Any, manifest: Manifest) -> str:
    """The name of a claim, its two sides, and what is fixed."""
    sign = "against" if row.relation in UNITS else formatting.MINUS
    name = f"{claim_label(manifest, row.name)}: {row.side} {sign} {row.against}"
    fixed = " with ".join(pairs(manifest, manifest.claims[row.name].claim.fixed))
    if fixed:
        name += f", at {fixed}"
    if not row.registered:
        name += ", post hoc"
    return f"{name}, edited" if row.edited else name


def claimed_range(row: Any, manifest: Manifest) -> tuple[float, float, float]:
    """The line of no difference, and from where to where a claim says that the estimate lies."""
    if row.relation == "multiplier":
        bound, way = manifest.claims[row.name].claim.bound
        return (1.0, -math.inf, bound) if way < 0 else (1.0, bound, math.inf)
    margin = 0.0 if pandas.isna(row.margin) else float(row.margin)
    if row.relation in BOUNDED:  # `not_greater` allows values up to the margin
        margin = -margin
    side = SIDES.get(row.relation, 0)
    if side < 0:
        return 0.0, -math.inf, -margin
    return (0.0, margin, math.inf) if side > 0 else (0.0, -margin, margin)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A forest per unit, with headings above the rows that they are about."""
    legend = {table.attrs["grey"]: Patch(color=style.FAINT)} if table["grey_high"].notna().any() else None
    figure, panels = page.rows(with_headings(table), 0.155 if len(table) > CROWDED else 0.19, legend)
    for axis, rows in panels:
        low, high = reach(rows)
        for row in named_rows(rows):
            if row.verdict == "heading":
                axis.get_yticklabels()[row.Index].set(fontweight="bold")
            ys = [row.Index - 0.45, row.Index + 0.45]
            axis.fill_betweenx(ys, max(row.grey_low, low), min(row.grey_high, high), color=style.FAINT, lw=0, zorder=0)
            draw_interval(axis, row, low, high)
        axis.axvline(rows["line"].max(), color=style.INK, lw=0.8, zorder=1)
        axis.set_xlim(low, high)
    return figure


def with_headings(table: pandas.DataFrame) -> pandas.DataFrame:
    """The rows with each heading as a row of its own above its first one."""
    parts = []
    for (facet, heading), rows in table.groupby(["facet", "heading"], sort=False):
        if heading:
            parts.append(pandas.DataFrame([{"facet": facet, "name": heading, "result": "", "verdict": "heading"}]))
        parts.append(rows)
    result = pandas.concat(parts, ignore_index=True)
    result.attrs = table.attrs
    return result


def reach(rows: pandas.DataFrame) -> tuple[float, float]:
    """The ends of the axis: all intervals, what is grey, and the line.  One far interval would squeeze the others into
    dots, so the axis ends at some times their median distance from the line."""
    line = float(rows["line"].max())
    distances = rows[["mean", "low", "high", "grey_low", "grey_high"]].astype(float) - line
    most = FAR * distances[["mean", "low", "high"]].abs().max(axis=1).median()
    if not most > 0:
        return line - 1, line + 1
    finite = distances[np.isfinite(distances)].clip(-most, most)
    low = min(finite.min(axis=None), 0.0)
    high = max(finite.max(axis=None), 0.0)
    margin = 0.06 * (high - low)
    return line + low - margin, line + high + margin


def draw_interval(axis: Axes, row: Any, low: float, high: float) -> None:
    """A point and its interval in its verdict's colour, hollow if undecided; arrows where it leaves the axis."""
    colour = style.VERDICTS.get(row.verdict, style.MUTED)
    look: dict[str, Any] = {"color": colour, "mfc": colour if row.verdict in evidence.DECIDED else "white", "zorder": 3}
    interval(axis, row, 0.0, colour)
    axis.plot(row.mean, row.Index, "o", **look)
    if min(row.mean, row.low) < low:
        axis.plot(low, row.Index, "<", clip_on=False, **look)
    if max(row.mean, row.high) > high:
        axis.plot(high, row.Index, ">", clip_on=False, **look)


EFFECTS = Kind("every effect with its interval and verdict", effects_table, draw)
CLAIMS = Kind("every claim of the study file, what was found and the verdict", claims_table, draw)
