"""The metric against a number: a swept or tuned value, the model's width, the length at evaluation."""

import math
from collections.abc import Iterable

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.formatting import is_number
from ablate.runs import naming
from ablate.runs.records import Manifest
from analysis.case import Case
from analysis.case.learning_curves import end_at_shares, with_band
from analysis.figures import captions, style
from analysis.figures.axes import band, limits, on_two_lines, value_axis
from analysis.figures.kind import Kind, Page

CROWDED = 8  # lines in a panel above which a setting has panels instead
RATE = "optim.lr"
WIDTHS = "model.dim"
CONTEXTS = "data.context"


def swept(manifest: Manifest) -> list[str]:
    """The numeric factors with several levels."""
    return [name for name, levels in manifest.factors.items() if len(levels) > 1 and all(map(is_number, levels))]


def named_levels(manifest: Manifest, factors: Iterable[str], joined: str) -> dict[str, str]:
    """The levels of these factors in words, by cell."""
    names = {}
    for cell in manifest.cells:
        names[cell.id] = joined.join(naming.assigned(manifest, name, cell.levels[name]) for name in factors)
    return names


def described(case: Case, cells: pandas.DataFrame, x: str, within: list[str], facets: list[str]) -> pandas.DataFrame:
    """The rows of cells with their line (`label`), panel (`facet`), band and caption."""
    manifest = case.study.manifest
    label = cells["cell"].map(named_levels(manifest, within, " + ")).replace("", "all runs")
    facet = cells["cell"].map(named_levels(manifest, facets, ", "))
    metrics = dict(zip(cells["cell"], cells["metric"], strict=True))
    table = end_at_shares(with_band(cells.assign(label=label, facet=facet)), manifest, metrics)
    table = table.reset_index(drop=True)
    names = {metric: naming.metric_name(manifest, metric) for metric in table["metric"].unique()}
    points = captions.band_text(table["n"], any(map(evidence.is_solved, names)))
    caption = f"{' or '.join(names.values())}: {points}"
    if table["diverged"].sum():
        caption += "; open: some runs diverged, the mean of the others"
    table.attrs = {"x": x, "y": names, "lines": within, "caption": [caption]}
    return table


def task_factors(manifest: Manifest) -> list[str]:
    """The factors that change the task between cells that differ in nothing else."""
    factors = []
    for name in manifest.factors:
        tasks: dict[str, set[str]] = {}
        for cell in manifest.cells:
            others = [level for factor, level in cell.levels.items() if factor != name]
            tasks.setdefault(str(others), set()).add(cell.task)
        if any(len(names) > 1 for names in tasks.values()):
            factors.append(name)
    return factors


def lines(case: Case, x: str, panels: Iterable[str] = ()) -> pandas.DataFrame | None:
    """A row per cell; a line joins the cells that differ only in the factor x.  None if x is not numeric with several
    levels, or if no line has two points.  Tasks are facets, each with its own metric."""
    manifest = case.study.manifest
    if x not in swept(manifest):
        return None
    facets = [name for name in dict.fromkeys([*panels, *task_factors(manifest)]) if name != x]
    within = [name for name, levels in manifest.factors.items() if len(levels) > 1 and name not in (x, *facets)]
    numbers = [name for name in within if name in swept(manifest)]
    if numbers and len(within) > 1 and math.prod(len(manifest.factors[name]) for name in within) > CROWDED:
        facets.append(min(numbers, key=lambda name: len(manifest.factors[name])))
        within.remove(facets[-1])
    values = {cell.id: float(str(cell.levels[x])) for cell in manifest.cells}
    cells = case.cells.assign(x=case.cells["cell"].map(values)).sort_values("x", kind="stable")
    table = described(case, cells, naming.key_name(manifest, x), within, facets)
    return table if table.groupby(["label", "facet"])["x"].nunique().max() > 1 else None


def width(case: Case) -> pandas.DataFrame | None:
    """A row per cell, a panel per value of another number, if there is one: of the context, if it varies."""
    others = [name for name in swept(case.study.manifest) if name != WIDTHS]
    return lines(case, WIDTHS, sorted(others, key=lambda name: name != CONTEXTS)[:1])


def sensitivity(case: Case) -> pandas.DataFrame | None:
    """A row per cell, a line per variant over the first number that is swept, the learning rate before others; `best`
    marks the best mean of a line."""
    manifest = case.study.manifest
    numbers = swept(manifest)
    if WIDTHS in numbers:  # the figure `width` has panels of contexts
        numbers = [name for name in numbers if name not in (WIDTHS, CONTEXTS)]
    table = lines(case, RATE if RATE in numbers else next(iter(numbers), ""))
    if table is None:
        return None
    is_lower = table["metric"].map(lambda metric: evidence.lower_is_better(manifest, metric))
    scores = table["mean"].where(is_lower, -table["mean"])[table["diverged"] == 0].dropna()
    best = scores.groupby([table["facet"], table["label"]], sort=False).idxmin()
    table["best"] = table.index.isin(best)
    table.attrs["caption"][0] += "; ring: the best of a line"
    is_edge = table["x"].isin([table["x"].min(), table["x"].max()])
    edges = table.loc[table["best"] & is_edge, ["label", "facet"]].agg(" at ".join, axis="columns")
    if len(edges):
        names = formatting.listed(edges.str.removesuffix(" at "))
        table.attrs["caption"] += [f"best at the edge, where wider values may be better: {names}"]
    return table


def extrapolation(case: Case) -> pandas.DataFrame | None:
    """A row per cell and length, from columns such as `test/loss@128`; `trained` is the length of training."""
    manifest = case.study.manifest
    metrics = evidence.endpoints(manifest)
    tables = []
    for column in map(str, case.study.runs):
        metric, _, length = column.partition("@")
        if length.isdigit() and case.study.runs[column].notna().any():
            cells = evidence.cells(case.study, column).assign(x=int(length), metric=metric)
            tables.append(cells[cells["cell"].map(metrics) == metric])
    if len(tables) < 2:
        return None
    trained = {}  # in the unit of `eval.lengths`, a task trains at its `length`, or its context
    for cell in manifest.cells:
        data = cell.config.data if cell.config else {}
        trained[cell.id] = data.get("length", data.get("context"))
    cells = pandas.concat(tables, ignore_index=True).sort_values("x", kind="stable")
    cells["trained"] = cells["cell"].map(trained)
    facets = task_factors(manifest)
    within = [name for name in manifest.factors if name not in facets]
    return described(case, cells, "length at evaluation", within, facets)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per facet, a line per label."""
    looks = page.looks(table)
    several = table["metric"].nunique() > 1
    figure, panels = page.panels(table, 1.9, page.legend(table), sharey=not several)
    for axis, rows in panels:
        metric = rows["metric"].iloc[0]
        value_axis(axis, table["x"], 4 if len(panels) > 2 else 8)
        axis.set_ylim(*limits(table.loc[table["metric"] == metric, ["low", "high", "mean"]]))
        for label, line in rows.groupby("label", sort=False):
            draw_line(axis, line.sort_values("x"), looks[str(label)])
        if "trained" in rows:
            for length in rows["trained"].dropna().unique():
                axis.axvline(length, color=style.MUTED, lw=0.8, ls=(0, (3, 2)), zorder=0)
        axis.set_xlabel(table.attrs["x"])
        if several or page.narrow or axis is panels[0][0]:
            axis.set_ylabel(on_two_lines(table.attrs["y"][metric]))
    return figure


def draw_line(axis: Axes, line: pandas.DataFrame, encoding: style.Encoding) -> None:
    """A line through means, open where runs diverged, with a ring around the best."""
    band(axis, line, "x", encoding)
    lost = line[line["diverged"] > 0]
    axis.plot(lost["x"], lost["mean"], encoding.marker, mfc="white", color=encoding.colour)
    if "best" in line:
        best = line[line["best"]]
        axis.plot(best["x"], best["mean"], "o", ms=8, mfc="none", mec=encoding.colour)


SENSITIVITY = Kind("the final metric against a number that was swept", sensitivity, draw)
WIDTH = Kind("the final metric against the model's width", width, draw)
EXTRAPOLATION = Kind("the test metric against the length at evaluation", extrapolation, draw)
