"""The metric against a number: a swept or tuned value, depth, width, length at evaluation; shares solved by step."""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.formatting import is_number, show
from ablate.runs import naming
from ablate.runs.records import STATUSES, Manifest
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.case.learning_curves import end_at_shares, with_band
from analysis.figures import captions, style
from analysis.figures.axes import WHOLE, band, limits, log_axis, value_axis
from analysis.figures.kind import Kind, Page
from analysis.stats.multi_task import task_factors

CROWDED = 8  # lines in a panel above which a setting has panels instead
TIMES = 8  # the y axis is logarithmic if a loss grows by more than this factor
FEWEST = 3  # values from which on a best one at the edge is reported
RATE = "optim.lr"
WIDTHS = "model.dim"
LAYERS = "model.layers"
SOLVED_AT = 0.99  # threshold if the task has no `solved_at`; the metric's best is 1
COLUMNS = ["cell", "label", "facet", "metric", "x", "mean", "low", "high", "n", "runs", *STATUSES]


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
        caption += "; ×: how many runs diverged, a point there is open and the mean of the others"
    lost = {name: int(table[name].sum()) for name in ("failed", "missing") if name in table and table[name].sum()}
    caption += "".join(f"; {count} {name} left out" for name, count in lost.items())
    table.attrs = {"x": x, "y": names, "lines": within, "unit": "label", "caption": [caption]}
    return table


def lines(case: Case, x: str, panels: Iterable[str] = ()) -> pandas.DataFrame | None:
    """A row per cell (`COLUMNS`); a line joins the cells that differ only in the factor x.  None if x is not numeric
    with several levels, or if no line has two points.  Tasks are facets, each with its own metric."""
    manifest = case.study.manifest
    if x not in swept(manifest):
        return None
    facets = [name for name in dict.fromkeys([*panels, *task_factors(manifest)]) if name != x]
    within = []
    for name in manifest.factors:
        pairs = {(cell.levels[x], show(cell.levels[name])) for cell in manifest.cells}
        if name not in (x, *facets) and len(pairs) > len(manifest.factors[x]):  # else it changes with x
            within.append(name)
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
    return lines(case, WIDTHS, sorted(others, key=lambda name: name != "data.context")[:1])


def sensitivity(case: Case) -> pandas.DataFrame | None:
    """A row per cell, or per cell and tuned value; `best` marks a line's best mean, or what tuning chose."""
    manifest = case.study.manifest
    numbers = [name for name in swept(manifest) if name not in (LAYERS, WIDTHS)]
    if WIDTHS in swept(manifest) and "data.context" in numbers:
        numbers.remove("data.context")  # the panels of the figure `width`
    x = RATE if RATE in numbers else next(iter(numbers), "")
    table = tuned(case) if manifest.tuning else lines(case, x)
    if table is None or manifest.tuning:
        return table
    attrs = table.attrs
    starts = losses_at_start(case) if x == RATE else {}
    best = []
    edges = []
    scores = []
    for (facet, label), line in table.groupby(["facet", "label"], sort=False):
        means = line["mean"].where(line["diverged"] == 0).dropna()
        if means.empty:
            continue
        is_lower = evidence.lower_is_better(manifest, line["metric"].iloc[0])
        best.append(means.idxmin() if is_lower else means.idxmax())
        name = f"{label} at {facet}" if facet else str(label)
        if len(line) >= FEWEST and line.loc[best[-1], "x"] in (line["x"].min(), line["x"].max()):
            edges.append(name)
        score = sensitivity_of(line, means.min(), starts)
        if is_lower and math.isfinite(score):
            scores.append(f"{name} {formatting.number(score, 3)}")
    caption = [f"{attrs['caption'][0]}; ring: the best of a line"]
    if edges:
        caption.append(f"best at the edge, where wider values may be better: {formatting.listed(edges)}")
    if scores:
        meaning = "mean over rates of min(loss, initial loss) − best loss; a diverged run counts at its initial loss"
        caption.append(f"sensitivity ({meaning}): {'; '.join(scores)}")
    table = table.assign(best=table.index.isin(best))
    table.attrs = attrs | {"caption": caption}
    return table


def tuned(case: Case) -> pandas.DataFrame | None:
    """The tuned values: means over tuning seeds of the validation metric; none for a value that diverged."""
    tuning = case.study.manifest.tuning
    if tuning is None or not all(map(is_number, tuning.values)):
        return None
    rows = []
    for cell, entry in tuning.cells.items():
        for value, score in zip(tuning.values, entry.scores, strict=True):
            mean = math.nan if score is None else score
            row = {"cell": cell, "x": value, "mean": mean, "sd": 0.0, "best": value == entry.value}
            rows.append(row | {"n": tuning.seeds, "runs": tuning.seeds, "diverged": int(score is None)})
    cells = pandas.DataFrame(rows)
    cells["metric"] = cells["cell"].map(evidence.validated(case.study.manifest))
    facets = task_factors(case.study.manifest)
    within = [name for name in case.study.manifest.factors if name not in facets]
    table = described(case, cells, naming.key_name(case.study.manifest, tuning.key), within, facets)
    seeds = formatting.counted(tuning.seeds, "tuning seed")
    metrics = " or ".join(table.attrs["y"].values())
    table.attrs["caption"] = [
        f"{metrics}, mean over {seeds}, of which nothing is scored; ring: the value that was chosen"
    ]
    return table


def sensitivity_of(line: pandas.DataFrame, best: float, starts: dict[str, float]) -> float:
    """Mean over the values of min(ℓ, ℓ₀) − ℓ*, each ℓ a mean over ended runs, diverged ones at ℓ₀ (Wortsman 2023,
    arXiv 2309.14322); NaN without ℓ₀."""
    start = line["cell"].map(starts).astype(float)
    of_done = line["n"] * np.minimum(line["mean"].fillna(0.0), start)
    losses = (of_done + line["diverged"] * start) / (line["n"] + line["diverged"])
    return float(losses.mean(skipna=False)) - best


def losses_at_start(case: Case) -> dict[str, float]:
    """The loss at initialisation of each cell: the mean over its runs of the first validation, before any step."""
    curves = case.study.curves
    if "step" not in curves:
        return {}
    first = curves[curves["step"] == 0]
    losses = evidence.values_of(first, evidence.validated(case.study.manifest))
    return {str(cell): float(mean) for cell, mean in losses.groupby(first["cell"]).mean().items()}


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
    facets = task_factors(manifest)
    within = [name for name in manifest.factors if name not in facets]
    cells = pandas.concat(tables, ignore_index=True).sort_values("x", kind="stable")
    cells["trained"] = cells["cell"].map(trained)
    return described(case, cells, "length at evaluation", within, facets)


def solved(case: Case) -> pandas.DataFrame | None:
    """A row per ended run of a task that can be solved: the step (x) of the first evaluation on the validation split at
    which its metric was at least `solved_at`, infinite if there was none.  None if no run solved its task."""
    study = case.study
    metrics = evidence.validated(study.manifest)
    tables = []
    for cell in study.manifest.cells:
        task = study.manifest.tasks[cell.task]
        curve = study.curves[study.curves["cell"] == cell.id]
        metric = metrics[cell.id]
        if not {"step", metric} <= {*curve} or not evidence.is_share(task, metric) or curve[metric].max() > 1:
            continue  # in per cent, nothing says when a task is solved
        reached = curve[curve[metric] >= (SOLVED_AT if task.solved_at is None else float(task.solved_at))]
        runs = study.runs[(study.runs["cell"] == cell.id) & study.runs["status"].isin(["done", "diverged"])]
        steps = runs["seed"].map(reached.groupby("seed")["step"].min()).fillna(math.inf)
        tables.append(runs[["cell", "seed"]].assign(x=steps, end=curve["step"].max()))
    if all(table["x"].eq(math.inf).all() for table in tables):
        return None
    names = captions.lines_of(case)
    table = names.merge(pandas.concat(tables), on="cell")
    meaning = "share of runs that have solved the task on the validation split; a diverged run counts as unsolved"
    table.attrs = names.attrs | {"caption": [f"{meaning}; {captions.seeds(table.groupby('cell').size())}"]}
    return table


def draw_solved(table: pandas.DataFrame, page: Page) -> Figure:
    """A line per label that rises, at each step at which a run solved its task, by that run's share; it goes on to the
    last step of its panel."""
    page = page.for_lines(table)
    figure, panels = page.panels(table, 1.9, page.legend(table, marker=False), sharey=True)
    for axis, rows in panels:
        last_step = rows["end"].max()
        for _, runs in rows.groupby("label", sort=False):
            solved_at = sorted(runs.loc[runs["x"] < math.inf, "x"])
            steps = [0, *solved_at, last_step]
            counts = [*range(len(solved_at) + 1), len(solved_at)]
            shares = [count / len(runs) for count in counts]
            colour, dash, _ = page.encodings[runs["cell"].iloc[0]]
            axis.step(steps, shares, where="post", color=colour, ls=dash)
        axis.set(ylim=WHOLE, yticks=[0, 0.5, 1], xlabel="step")
    panels[0][0].set_ylabel("share solved")
    return figure


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per facet, a line per label."""
    page = page.for_lines(table)
    several = table["metric"].nunique() > 1
    figure, panels = page.panels(table, 1.9, page.legend(table), sharey=not several)
    for axis, rows in panels:
        metric = rows["metric"].iloc[0]
        value_axis(axis, table["x"], 4 if len(panels) > 2 else 8)
        axis.set_ylim(*limits(table.loc[table["metric"] == metric, ["low", "high", "mean"]]))
        for _, line in rows.groupby("label", sort=False):
            draw_line(axis, line.sort_values("x"), page.encodings[line["cell"].iloc[0]])
        if "trained" in rows:
            for length in rows["trained"].dropna().unique():
                axis.axvline(length, color=style.MUTED, lw=0.8, ls=(0, (3, 2)), zorder=0)
            if evidence.lower_is_better(page.manifest, metric) and rows["high"].max() > TIMES * rows["low"].min() > 0:
                log_axis(axis.yaxis)
        axis.set_xlabel(table.attrs["x"])
        if several or page.narrow or axis is panels[0][0]:
            axis.set_ylabel(table.attrs["y"][metric])
    return figure


def draw_line(axis: Axes, line: pandas.DataFrame, encoding: style.Encoding) -> None:
    """A line through means over all seeds; where runs diverged, an open point apart from it, and their count."""
    is_complete = line["diverged"] == 0
    complete = line.assign(mean=line["mean"].where(is_complete), low=line["low"].where(is_complete))
    band(axis, complete, "x", encoding)
    if "best" in line:
        best = line[line["best"]]
        axis.plot(best["x"], best["mean"], "o", ms=8, mfc="none", mec=encoding.colour)
    for row in named_rows(line[~is_complete]):
        y = axis.get_ylim()[1] if math.isnan(row.mean) else row.mean
        axis.plot(row.x, y, encoding.marker, mfc="white", color=encoding.colour, clip_on=False)
        axis.annotate(f"× {row.diverged} of {row.runs} ", (row.x, y), color=encoding.colour, ha="right")


SENSITIVITY = Kind("the final metric against a number that was swept or tuned", sensitivity, draw)
DEPTH = Kind("the final metric against the number of layers", partial(lines, x=LAYERS), draw)
WIDTH = Kind("the final metric against the model's width", width, draw)
EXTRAPOLATION = Kind("the test metric against the length at evaluation", extrapolation, draw)
SOLVED = Kind("how many runs have solved their task, over steps", solved, draw_solved, most=12)
