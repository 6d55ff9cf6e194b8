"""Mirror: the paper's figure or table, from `mirror` of the study file, beside this study's numbers arranged alike."""

import math

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.config.mirror import EPOCH, LENGTHS
from ablate.formatting import flat
from ablate.runs import naming
from ablate.runs.records import STATUSES
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.case.learning_curves import end_at_shares
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import log_axis, name_ticks
from analysis.figures.draw.lines import draw_lines, lines
from analysis.figures.kind import Kind, Page
from analysis.figures.kinds import curves, extrapolation

HERE = "this study"
AXES = {EPOCH: "share of training", LENGTHS: "length at evaluation / at training"}


def table(case: Case) -> pandas.DataFrame | None:
    """A row per point of the paper and of this study, see `lines`: a label per series, two facets per panel; `x` is
    over the length of training for epochs and lengths, a place for single values.  Series without cells are out."""
    manifest, mirror = case.study.manifest, case.study.manifest.mirror
    ours = _ours(case, mirror.x) if mirror and not naming.no_evidence(manifest) else None
    if mirror is None or ours is None or not ours["n"].any():
        return None
    others = {name: levels[0] for name, levels in manifest.factors.items() if name != mirror.x}
    others |= manifest.reference | mirror.at
    facets, lost, unit = dict[str, list[pandas.DataFrame]](), list[str](), mirror.trained or 1
    for series in mirror.series:
        levels = (others | series.of).items()  # of factors, or of keys that the command line has fixed
        settings = {cell.id: flat(cell.planned_config.as_json()) | cell.levels for cell in manifest.cells}
        cells = [cell for cell, own in settings.items() if levels <= own.items()]
        named = [name for name in series.of if name != mirror.panels]
        label = " + ".join(naming.assigned(manifest, name, series.of[name]) for name in named) or "all runs"
        panel = f", {naming.assigned(manifest, mirror.panels, series.of.get(mirror.panels))}" if mirror.panels else ""
        lost += [] if cells else [label + panel]
        mine = ours[ours["cell"].isin(cells)].fillna({"x": len(facets.get(HERE + panel, []))})
        points = series.points or [(mine["x"].min() * unit, math.nan if series.value is None else series.value)]
        theirs = pandas.DataFrame(points, columns=["x", "mean"], dtype=float)
        theirs = theirs.assign(x=theirs["x"] / unit, low=theirs["mean"], high=theirs["mean"], metric=mirror.metric)
        theirs = theirs.assign(cell=next(iter(cells), ""), n=1, runs=1, diverged=0)
        for side, rows in {mirror.source: theirs, HERE: mine}.items() if cells else ():
            facets.setdefault(side + panel, []).append(rows.assign(label=label, facet=side + panel))
    if not facets:
        return None
    found = pandas.concat([rows for parts in facets.values() for rows in parts], ignore_index=True)
    compared = {name for series in mirror.series for name in series.of} - {mirror.panels}
    found.attrs = {"x": AXES.get(mirror.x or "", mirror.x or ""), "y": {name: name for name in found["metric"]}}
    found.attrs |= {"across": 2, "lines": [name for name in manifest.factors if name in compared]}
    fixed = {name: level for name, level in others.items() if name not in {*compared, mirror.panels}}
    theirs = ~found["facet"].str.startswith(HERE)
    mine = found[~theirs].drop_duplicates("cell")
    drawn = [(name, level) for name in found.attrs["lines"] for level in manifest.factors[name]]
    beyond = [pair for pair in drawn if pair[1] not in [series.of.get(*pair) for series in mirror.series]]
    parts = {
        f"{HERE} at": [naming.assigned(manifest, name, level) for name, level in fixed.items()],
        "published, without configurations here": lost,
        "no number printed of": found.loc[theirs & found["mean"].isna(), "label"].unique(),
        "not published": [naming.assigned(manifest, *pair) for pair in beyond],
    }
    (ours,) = captions.caption("lines", case, mine, measured=mine["metric"].unique())
    facts = {"mirror": mirror, "ours": f"{HERE}: {ours}", "parts": parts}
    found.attrs["caption"] = captions.caption("mirror", case, found, epochs=mirror.x == EPOCH, **facts)
    return found


def _ours(case: Case, x: str | None) -> pandas.DataFrame | None:
    """The points of all cells, from the tables of other figures; without x, each cell's one value."""
    tables = {EPOCH: curves.table, LENGTHS: extrapolation.table, None: lambda case: case.cells}
    found = tables[x](case) if x in tables else lines(case, str(x))
    if found is None:
        return None
    if x is None:
        found = found.eval("low = mean - sd\nhigh = mean + sd")
        found = end_at_shares(found, case.study.manifest, evidence.endpoints(case.study.manifest))
    elif x == EPOCH:
        found = found[found["status"] == "done"]
        found = found.assign(x=found["tokens"] / found.groupby("cell")["tokens"].transform("max"))
    elif x == LENGTHS:
        found = found.assign(x=found["x"] / found["trained"])
    counts = case.cells.set_index("cell")[["runs", *STATUSES]]
    labels = {metric: captions.axis_label(case.study, metric) for metric in found["metric"].unique()}
    kept = found.reindex(columns=["cell", "metric", "x", "mean", "low", "high", "n"])
    return kept.assign(metric=kept["metric"].map(labels)).join(counts, on="cell")


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The paper's panel and this study's, side by side; on a narrow page one above the other."""
    drawn, inches = draw_lines(table, page), page.width / (1 if page.narrow else 2) - 0.5
    for axis, (title, rows) in zip(drawn.axes, table.groupby("facet", sort=False), strict=False):
        axis.set_title(style.fold(str(title), inches, 7))
        axis.set_ylabel(style.fold(axis.get_ylabel(), 1.5, 7))
        published, low, high = not str(title).startswith(HERE), rows["low"].min(), rows["high"].max()
        for line in axis.lines if published else ():
            line.set_markerfacecolor("none")  # equal numbers stay visible, and theirs differ from ours
        if table.attrs["x"] == AXES[EPOCH]:
            axis.set_xscale("linear")
            axis.set_xlim(-0.03, 1.03)
        elif not table.attrs["x"]:
            _values(axis, rows, inches)
        if rows["mean"].isna().all():
            style.say(axis, "no numbers printed" if published else "no finished run")
            axis.tick_params(axis="y", left=False, labelleft=False)
        elif table.attrs["x"] and low > 0 and high / low > extrapolation.TIMES:
            log_axis(axis.yaxis, low / 1.1, high * 1.1)
    return drawn


def _values(axis: Axes, rows: pandas.DataFrame, inches: float) -> None:
    """Bars of ± 1 SD, and the number beside each point."""
    places = formatting.decimals(rows["high"] - rows["mean"])
    axis.errorbar(rows["x"], rows["mean"], rows["high"] - rows["mean"], fmt="none", ecolor=style.MUTED, zorder=0)
    for row in named_rows(rows):
        text = f"{row.mean:g}" if row.low == row.high else formatting.number(row.mean, places)
        axis.annotate(text, (row.x, row.mean), (5, 0), textcoords="offset points", va="center")
    name_ticks(axis, list(rows["label"]), inches)
    axis.set_xlim(-0.5, len(rows) - 0.5)


KIND = Kind("the paper's figure beside this study's", table, draw, most=200)
