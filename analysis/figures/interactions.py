"""Interactions: the mean score at each combination of two factors' levels, where parallel lines are no interaction."""

import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures import captions, style
from analysis.figures.kind import Kind, Page

PAIRS = 4  # pairs that are drawn: those with the largest interaction
LOST = ["diverged", "failed", "missing"]
COLUMNS = ["facet", "factor", "level", "first", "second", "mean", "low", "high", "n", "runs", *LOST, "verdict", "note"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per interaction, from the table of effects, and a row per combination of the two factors' levels (`first`,
    `second`) with its mean score, NaN unless all runs are done."""
    manifest = case.study.manifest
    metric = evidence.endpoint(manifest)
    effects = case.effects[case.effects["kind"].isin(formatting.CROSSED) & case.effects["metric"].eq(metric)]
    pairs = [
        rows for _, rows in effects[effects["factor"].str.count(" x ") == 1].groupby(["stratum", "factor"], sort=False)
    ]
    if not pairs:
        return None
    pairs.sort(key=lambda rows: rows["mean"].abs().max(), reverse=True)
    members = dict(evidence.strata(manifest))
    members |= {stratum: cells for stratum, cells, _ in evidence.crossings(manifest)}  # settings are factors here
    blocks = []
    for rows in pairs[:PAIRS]:
        first, second = rows["factor"].iloc[0].split(" x ")
        levels = []
        for cell in members[rows["stratum"].iloc[0]]:
            levels.append((cell.id, formatting.show(cell.levels[first]), formatting.show(cell.levels[second])))
        block = pandas.DataFrame(levels, columns=["cell", "first", "second"]).merge(case.cells, on="cell")
        block["mean"] = block["mean"].where(block[LOST].sum(axis=1) == 0)
        groups = block.groupby(["first", "second"], sort=False)
        means = groups[["runs", *LOST]].sum()
        means["mean"] = groups["mean"].mean(skipna=False)
        means = means.reset_index().assign(factor=rows["factor"].iloc[0])
        means["level"] = means["first"] + ", " + means["second"]
        blocks += [part.assign(facet=rows["stratum"].iloc[0]) for part in (means, rows)]
    result = pandas.concat(blocks, ignore_index=True).reindex(columns=COLUMNS)
    caption = f"points: mean over seeds, none where a run has no result; interactions: {captions.simultaneous(effects)}"
    if len(pairs) > PAIRS:
        caption += f"; {PAIRS} of {len(pairs)} pairs shown, those with the largest interaction; effects.csv has all"
    result.attrs = {"caption": [caption, *captions.closing(case)], "y": captions.axis_label(case.study, metric)}
    return result


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per pair of factors, with a line per level of the factor with fewer levels."""
    pairs = [rows for _, rows in table.groupby(["facet", "factor"], sort=False) if rows["first"].notna().any()]
    figure = page.figure(table, 2.0 * len(pairs))
    axes = figure.subplots(len(pairs), squeeze=False)[:, 0]
    for axis, rows in zip(axes, pairs, strict=True):
        points = rows[rows["first"].notna()]
        names = dict(zip(("first", "second"), str(rows["factor"].iloc[0]).split(" x "), strict=True))
        along, by = sorted(names, key=lambda side: -points[side].nunique())
        places = {level: place for place, level in enumerate(points[along].unique())}
        for number, (level, line) in enumerate(points.groupby(by, sort=False)):
            colour = page.colours[names[by], str(level)]
            dash = style.DASHES[number % len(style.DASHES)]
            marker = style.MARKERS[number % len(style.MARKERS)]
            label = page.label(level, names[by])
            axis.plot(line[along].map(places), line["mean"], color=colour, ls=dash, marker=marker, label=label)
        ticks = [page.wrap(page.label(level, names[along]), 0.6 / len(places)) for level in places]
        axis.set_xticks(range(len(places)), ticks)
        axis.margins(x=0.1)
        axis.set(xlabel=page.label(names[along]), ylabel=page.wrap(table.attrs["y"], 0.35))
        axis.legend(title=page.label(names[by]), loc="center left", bbox_to_anchor=(1, 0.5), alignment="left")
        axis.set_title(page.wrap(heading(rows, page), 0.7))
    return figure


def heading(rows: pandas.DataFrame, page: Page) -> str:
    """The two factors, where, and their largest interaction."""
    factors = rows["factor"].iloc[0].split(" x ")
    text = " × ".join(map(page.label, factors))
    if rows["facet"].iloc[0]:
        text += f" at {rows['facet'].iloc[0]}"
    effects = rows[rows["first"].isna()]
    if effects["mean"].isna().all():
        return text
    largest = next(named_rows(effects.loc[[effects["mean"].abs().idxmax()]]))
    levels = ", ".join(map(page.label, formatting.levels_of(largest), factors))
    places = formatting.decimals([(largest.high - largest.low) / 2])
    return f"{text}; {levels}: {captions.result(largest, places, page.manifest)}"


KIND = Kind("whether the effect of one factor depends on another", table, draw, most=2000)
