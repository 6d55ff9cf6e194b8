"""Looks: how the intervals of a study with seeds=auto narrowed from look to look."""

import dataclasses

import pandas
from matplotlib.figure import Figure

from ablate import evidence
from ablate.results.study import Study
from ablate.results.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import difference_ticks, estimate, facets
from analysis.figures.kind import Kind, Page

PANELS = 12
COLUMNS = ["facet", "factor", "level", "seeds", "mean", "low", "high", "verdict", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per effect of the family and look: the estimate and its interval with that many seeds.  None unless the
    study has `seeds=auto` and more than one look."""
    sequence = case.study.manifest.sequential
    had = [n for n in sequence.looks if n <= sequence.at] if sequence else []
    if not sequence or len(had) < 2:
        return None
    tables = [evidence.effects(at_look(case.study, n)).assign(seeds=n) for n in had]
    last = tables[-1][tables[-1]["family"]]
    labels = list(last.sort_values("p", kind="stable")["label"])[:PANELS]
    made = pandas.concat([found[found["label"].isin(labels)] for found in tables]).rename(columns={"label": "facet"})
    order = {label: place for place, label in enumerate(last["label"])}
    made = made.assign(place=made["facet"].map(order)).sort_values(["place", "seeds"], kind="stable")
    made = made[COLUMNS].reset_index(drop=True)
    caption = captions.caption("looks", case, made, looks=len(had), every=len(last), most=PANELS)
    made.attrs = {"y": captions.difference_label(case.study), "caption": caption}
    return made


def at_look(study: Study, n: int) -> Study:
    """The study as it was at the look at its first n seeds."""
    seeds = sorted(study.manifest.seeds)[:n]
    sequence = study.manifest.sequential and dataclasses.replace(study.manifest.sequential, at=n)
    manifest = dataclasses.replace(study.manifest, seeds=seeds, sequential=sequence)
    runs = study.runs[study.runs["seed"].isin(seeds)]
    return dataclasses.replace(study, manifest=manifest, runs=runs.reset_index(drop=True))


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per effect, an interval per look."""
    drawn, effects, across = facets(table, page, int(page.width / 1.6), 1.7, 0)
    for axis, title, rows in effects:
        axis.axhline(0, color=style.INK, lw=0.6, zorder=1)
        for row in named_rows(rows):
            if row.verdict != "withheld":
                estimate(axis, row.seeds, row, along="y")
        if rows["verdict"].eq("withheld").any():
            axis.text(0.97, 0.95, "withheld", ha="right", va="top", transform=axis.transAxes, color=style.MUTED)
        axis.set_xticks(sorted(rows["seeds"].unique()))
        axis.set_xlabel("seeds")
        difference_ticks(axis, page, "y")
        axis.margins(x=0.15)
        axis.set_title(style.fold(title, page.width / across - 0.6, 7))
    for axis, *_ in effects[::across]:
        axis.set_ylabel(style.fold(table.attrs["y"], 1.15, 7))
    return drawn


KIND = Kind("how intervals narrowed from look to look", table, draw, most=1000)
