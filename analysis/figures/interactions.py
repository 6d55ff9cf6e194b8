"""Interactions: the mean score at each combination of two factors' levels, where parallel lines are no interaction."""

import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.formatting import show
from ablate.runs import naming
from analysis.case import Case
from analysis.figures import captions, style
from analysis.figures.axes import on_two_lines
from analysis.figures.kind import Kind, Page

PAIRS = 4  # pairs that are drawn: those with the largest interaction


def table(case: Case) -> pandas.DataFrame | None:
    """A row per combination of two factors' levels (`first`, `second`) with its mean score, NaN unless all runs are
    done; a panel per pair of factors and stratum."""
    manifest = case.study.manifest
    metric = evidence.endpoint(manifest)
    effects = case.effects[case.effects["kind"].isin(formatting.CROSSED) & case.effects["metric"].eq(metric)]
    effects = effects[effects["factor"].str.count(" x ") == 1]
    if effects.empty:
        return None
    sizes = effects["mean"].abs().groupby([effects["stratum"], effects["factor"]], sort=False).max()
    pairs = sizes.sort_values(ascending=False, kind="stable").index
    cells_of = dict(evidence.strata(manifest))
    cells_of |= {stratum: cells for stratum, cells, _ in evidence.crossings(manifest)}  # settings are factors here
    blocks = []
    for stratum, factor in pairs[:PAIRS]:
        first, second = factor.split(" x ")
        rows = [(cell.id, show(cell.levels[first]), show(cell.levels[second])) for cell in cells_of[stratum]]
        cells = pandas.DataFrame(rows, columns=["cell", "first", "second"]).merge(case.cells, on="cell")
        cells["mean"] = cells["mean"].where(cells["n"] == cells["runs"])
        means = cells.groupby(["first", "second"], sort=False)["mean"].mean(skipna=False).reset_index()
        facet = " × ".join(naming.key_name(manifest, name) for name in (first, second))
        facet += f" at {stratum}" if stratum else ""
        blocks.append(means.assign(factor=factor, facet=facet))
    result = pandas.concat(blocks, ignore_index=True)
    caption = "mean over seeds, none where a run has no result; how far lines are from parallel is tested in effects"
    if len(pairs) > PAIRS:
        caption += f"; {PAIRS} of {len(pairs)} pairs shown, those with the largest interaction"
    result.attrs = {"caption": [caption], "y": captions.axis_label(case.study, metric)}
    return result


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per pair of factors, with a line per level of the one with fewer levels."""
    figure, panels = page.panels(table, 2.0, {}, across=1)
    for axis, rows in panels:
        factor_of = dict(zip(("first", "second"), rows["factor"].iloc[0].split(" x "), strict=True))
        along, by = sorted(factor_of, key=lambda column: -rows[column].nunique())
        levels = list(rows[along].unique())
        for number, (level, line) in enumerate(rows.groupby(by, sort=False)):
            look = {
                "ls": style.DASHES[number % len(style.DASHES)],
                "marker": style.MARKERS[number % len(style.MARKERS)],
            }
            look["color"] = page.colours[factor_of[by], str(level)]
            label = naming.named(page.manifest, level, factor_of[by])
            axis.plot(line[along].map(levels.index), line["mean"], label=label, **look)
        names = [page.wrap(naming.named(page.manifest, level, factor_of[along]), 0.6 / len(levels)) for level in levels]
        every = 1 + 8 * len(levels) // page.letters()  # tick labels that would touch are left out
        axis.set_xticks(range(0, len(levels), every), names[::every])
        axis.margins(x=0.1)
        axis.set(xlabel=naming.key_name(page.manifest, factor_of[along]), ylabel=on_two_lines(table.attrs["y"]))
        title = naming.key_name(page.manifest, factor_of[by])
        axis.legend(title=title, loc="center left", bbox_to_anchor=(1, 0.5), alignment="left")
    return figure


KIND = Kind("whether the effect of one factor depends on another", table, draw)
