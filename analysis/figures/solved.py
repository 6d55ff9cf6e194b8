"""How many runs have solved their task, over steps."""

import math

import pandas
from matplotlib.figure import Figure

from ablate import evidence
from analysis.case import Case
from analysis.figures import captions
from analysis.figures.kind import Kind, Page


def table(case: Case) -> pandas.DataFrame | None:
    """A row per ended run of a task that can be solved: the step (x) of the first evaluation on the validation split at
    which its metric was at least `solved_at`, infinite if there was none.  None if no run solved its task."""
    study = case.study
    metrics = evidence.validated(study.manifest)
    tables = []
    for cell in study.manifest.cells:
        task = study.manifest.tasks[cell.task]
        curve = study.curves[study.curves["cell"] == cell.id]
        metric = metrics[cell.id]
        if task.solved_at is None or not evidence.is_share(task, metric) or not {"step", metric} <= {*curve}:
            continue
        first_steps = curve[curve[metric] >= task.solved_at].groupby("seed")["step"].min()
        runs = study.runs[(study.runs["cell"] == cell.id) & study.runs["status"].isin(["done", "diverged"])]
        steps = runs["seed"].map(first_steps).fillna(math.inf)
        tables.append(runs[["cell", "seed"]].assign(x=steps, end=curve["step"].max()))
    if all(table["x"].eq(math.inf).all() for table in tables):
        return None
    names = captions.lines_of(case)
    result = names.merge(pandas.concat(tables), on="cell")
    meaning = "share of runs that have solved the task on the validation split; a diverged run counts as unsolved"
    result.attrs = names.attrs | {"caption": [f"{meaning}; {captions.seeds(result.groupby('cell').size())}"]}
    return result


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A line per label that rises, at each step at which a run solved its task, by that run's share; it goes on to the
    last step of its panel."""
    looks = page.looks(table)
    figure, panels = page.panels(table, 1.9, page.legend(table, marker=False), sharey=True)
    for axis, rows in panels:
        for label, runs in rows.groupby("label", sort=False):
            steps = sorted(runs.loc[runs["x"] < math.inf, "x"])
            shares = [count / len(runs) for count in range(len(steps) + 1)]
            colour, dash, _ = looks[str(label)]
            axis.step([0, *steps, rows["end"].max()], [*shares, shares[-1]], where="post", color=colour, ls=dash)
        axis.set(ylim=(-0.03, 1.03), yticks=[0, 0.5, 1], xlabel="step")
    panels[0][0].set_ylabel("share solved")
    return figure


KIND = Kind("how many runs have solved their task, over steps", table, draw)
