"""Solved: the share of runs that have solved their task, over steps."""

from typing import Any

import pandas
from matplotlib.figure import Figure

from ablate import evidence
from ablate.runs.records import Cell
from ablate.runs.study import Study
from analysis.case import Case
from analysis.figures.draw import captions
from analysis.figures.draw.axes import WHOLE, band, facets, legend
from analysis.figures.kind import Kind, Page

COLUMNS = ["facet", "cell", "name", "step", "share", "low", "high", "n"]
PANELS = 6
SOLVED = 0.99  # threshold if the task has no `solved_at`; the metric's best is 1


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell and step at which a run solved its task, from 0 to the end of the schedule, by stratum (`facet`).

    A run has solved its task at the first evaluation on the validation split at which the task's first metric is at
    least `solved_at`.  share: of the ended runs, with its Wilson interval; diverged runs count as unsolved.  None if no
    run solved its task.
    """
    study, rows = case.study, list[tuple[Any, ...]]()
    times, names = times_by_cell(study), case.cells.set_index("cell")["name"]
    for stratum, cells in evidence.strata(study.manifest)[:PANELS]:
        for cell in (cell for cell in cells if len(times.get(cell.id, ()))):
            found, n = times[cell.id], len(times[cell.id])
            reached = found.loc[found["solved"], "step"].astype(float)
            for step in [0.0, *sorted(set(reached)), float(found["end"].iloc[0])]:
                count = int((reached <= step).sum())
                rows.append((stratum, cell.id, names[cell.id], step, count / n, *evidence.wilson(count, n), n))
    made = pandas.DataFrame(rows, columns=COLUMNS)
    if not made["share"].gt(0).any():
        return None
    drawn = [cell for cell in study.manifest.cells if cell.id in set(made["cell"])]
    least = [f"{share:g}" for share in sorted({solved_at(study, cell) for cell in drawn})]
    facts = {"least": least, "every": len(evidence.strata(study.manifest)), "most": PANELS}
    made.attrs = {"caption": captions.caption("solved", case, made, **facts)}
    return made


def times_by_cell(study: Study) -> dict[str, pandas.DataFrame]:
    """Of each cell whose task can be solved, by seed: the step at which a run solved it, or at which its schedule ends,
    and which of the two.  Failed and missing runs are left out."""
    times, metrics = dict[str, pandas.DataFrame](), evidence.validated(study.manifest)
    for cell in study.manifest.cells:
        metric, task = metrics[cell.id], study.manifest.tasks[cell.task]
        if not ({metric, "step"} <= {*study.curves} and evidence.is_share(task, metric)):
            continue
        curve = study.curves[study.curves["cell"] == cell.id]
        if curve[metric].max() > 1:  # in per cent, of which nothing says when a task is solved
            continue
        ended = study.runs[(study.runs["cell"] == cell.id) & study.runs["status"].isin(["done", "diverged"])]
        # The schedule of imported runs is unknown.
        end = float(cell.config.train.steps if cell.config else curve["step"].max())
        reached = curve[curve[metric] >= solved_at(study, cell)]
        first = reached.groupby("seed")["step"].min().reindex(ended["seed"])
        times[cell.id] = pandas.DataFrame({"step": first.fillna(end), "solved": first.notna(), "end": end})
    return times


def solved_at(study: Study, cell: Cell) -> float:
    """The value of its metric from which a run of a cell has solved its task."""
    threshold = study.manifest.tasks[cell.task].solved_at
    return SOLVED if threshold is None else float(threshold)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A step function per cell, a panel per stratum."""
    names = dict(zip(table["cell"], table["name"], strict=True))
    below = legend({name: page.encodings[cell] for cell, name in names.items()}, page, marker=False)
    drawn, strata, _ = facets(table, page, 1 if page.narrow else 2, 1.9, below.height + 0.2)
    for axis, title, rows in strata:
        cells = list(rows.groupby("cell", sort=False))
        for cell, line in cells:
            encoding = page.encodings[str(cell)]
            axis.plot(line["step"], line["share"], color=encoding.colour, ls=encoding.dash, drawstyle="steps-post")
            band(axis, line, "step", encoding, min(0.15, 0.6 / len(cells)), step="post")
        axis.set(ylim=WHOLE, xlabel="step", ylabel="share solved", xlim=(0, rows["step"].max()))
        axis.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        axis.set_title(title)
    below.draw(drawn)
    return drawn


KIND = Kind("how many runs have solved their task, over steps", table, draw, most=12)
