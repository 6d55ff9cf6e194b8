"""Proxy validity: the differences found in a small study against the published ones."""

import math
from typing import Any

import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.config.claims import Claim, weighed
from ablate.results import naming
from ablate.results.study import Study
from ablate.results.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import difference_ticks, facets, legend, name_at, reach
from analysis.figures.kind import Kind, Page

RELATION = "rank_correlates"
COLUMNS = ["facet", "factor", "level", "name", "published", "mean", "low", "high", "n", "base", "rho", "verdict", "y"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per level of each `rank_correlates` claim (`facet`: its name).

    published, mean: the published number and this study's mean over seeds, each minus that of the level `base` (the
    reference, or the claim's first level); low, high: 95 % t-interval within seeds (by Welch if batches differ),
    unadjusted; the exact one for the share solved.  NaN if seeds are too few, if the two levels lost different shares
    of runs to divergence, and for other metrics of tasks that are solved or not.  rho and verdict are those of the
    claim: Spearman within seeds, with its interval.
    """
    entries = case.study.manifest.claims
    ranked = [row for row in named_rows(case.claims) if row.relation == RELATION]
    if not ranked:
        return None
    found = [_claim(case.study, row.name, entries[row.name].claim, row) for row in ranked]
    made = pandas.DataFrame([row for rows in found for row in rows], columns=COLUMNS)
    own = (entries[row.name].claim.metrics or [evidence.endpoint(case.study.manifest)] for row in ranked)
    kinds = {"exact 95 % intervals" if evidence.is_solved(metric) else "95 % t-intervals" for metric, *_ in own}
    made.attrs = {"caption": captions.caption("proxy", case, made, kinds=kinds)}
    return made


def _claim(study: Study, name: str, claim: Claim, judged: Any) -> list[dict[str, Any]]:
    ((factor, _),) = claim.sides[0].items()
    levels, numbers = [side[factor] for side in claim.sides], claim.published
    metric = next(iter(claim.metrics), evidence.endpoint(study.manifest))
    values = evidence.scores(study, metric)
    sides = weighed(claim, study.manifest.cells)
    diverged = study.runs.loc[study.runs["status"] == "diverged", "cell"]
    lost = [int(diverged.isin([*side]).sum()) / max(1, len(side)) for side in sides]  # diverged runs per cell
    reference = study.manifest.reference.get(factor)
    base = levels.index(reference) if reference in levels else 0
    rho = formatting.span(judged.mean, judged.low, judged.high, 2).replace("+", "")
    solved, clumps = evidence.is_solved(metric), any(task.clumps(metric) for task in study.manifest.tasks.values())
    rows = []
    for level, side, number, share in zip(levels, sides, numbers, lost, strict=True):
        weights = {cell: side.get(cell, 0.0) - sides[base].get(cell, 0.0) for cell in {**side, **sides[base]}}
        known = values if solved or share == lost[base] else values[:0]
        estimate, paired = evidence.weighted(study.manifest, known, weights, solved and side is not sides[base])
        none = clumps or (not estimate.exact and evidence.too_few(estimate.n, paired))
        low, high = (math.nan, math.nan) if none else evidence.interval(estimate, evidence.ALPHA)
        row: dict[str, Any] = {"level": formatting.show(level), "name": naming.named(study.manifest, level, factor)}
        row |= {"published": number - numbers[base], "mean": estimate.mean, "low": low, "high": high, "n": estimate.n}
        rows.append(row)
    about = {"facet": name, "factor": factor, "base": naming.named(study.manifest, levels[base], factor)}
    about |= {"rho": rho, "verdict": judged.verdict, "y": captions.axis_label(study, metric)}
    return [about | row for row in rows]


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per claim, a named point per level."""
    shades = {row.name: style.Encoding(page.colour(row.factor, row.level), "", "o") for row in named_rows(table)}
    below, named = legend(shades, page, line=False), list[Any]()
    drawn, claims, across = facets(table, page, 1 if page.narrow else 2, 2.6, below.height)
    for axis, title, rows in claims:
        for line in (axis.axhline, axis.axvline):
            line(0, color=style.FAINT, lw=0.8, zorder=0)
        points = {}
        for row in named_rows(rows):
            shade = page.colour(row.factor, row.level)
            axis.errorbar(row.published, row.mean, reach(row), fmt="o", ms=4.5, lw=1.1, color=shade)
            points[row.name] = (row.published, row.mean, shade)
        base = rows["base"].iloc[0]
        axis.set_xlabel(f"published, difference to {base}")
        axis.set_ylabel(f"here, difference to {base}\nin {rows['y'].iloc[0]}")
        difference_ticks(axis, page)
        difference_ticks(axis, page, "y")
        axis.margins(x=0.1)
        named.append((axis, points))
        result = f"{title}: ρ = {rows['rho'].iloc[0]}  {rows['verdict'].iloc[0]}"
        axis.set_title(style.fold(result, page.width / across - 0.7, 7))
    name_at(drawn, below, named, (page.width / across - 0.9, 1.9))
    return drawn


KIND = Kind("small differences against published ones", table, draw, most=200)
