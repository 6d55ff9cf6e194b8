"""Claims: the claims of the study file against the results, with the verdict of each."""

import math

import pandas
from matplotlib.figure import Figure

from ablate import formatting
from ablate.config.claims import BOUNDED
from ablate.evidence.claim_text import pairs
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import difference_ticks, estimate, limits, name_x, stacked
from analysis.figures.kind import Kind, Page

RANKS, SHARES = "Spearman's ρ with the published numbers", "difference in the share of diverged runs"
# The claimed side of zero, or of the margin.
DIRECTION = {"less": -1, "greater": 1, "not_greater": -1, "not_less": 1, "diverges_more": 1, "rank_correlates": 1}
MULTIPLIERS = "compute multiplier"
COLUMNS = ["facet", "label", "relation", "mean", "low", "high", "margin", "wanted", "n", "verdict", "result", "note"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per claim: estimate, interval, margin, verdict, with a panel per unit (`facet`).  wanted: the claimed side
    of zero, or of the margin, −1 or 1; 0 for the band ±margin.  Of a multiplier the margin is the distance of its bound
    from 1."""
    found = case.claims
    if found.empty:
        return None
    rows, claims = list(named_rows(found)), case.study.manifest.claims
    made = found.assign(wanted=[DIRECTION.get(relation, 0) for relation in found["relation"]])
    other = {"rank_correlates": RANKS, "diverges_more": SHARES, "multiplier": MULTIPLIERS}
    names = {metric: naming.metric_name(case.study.manifest, metric) for metric in found["metric"]}
    names = {m: text if ", " in m else f"difference in {text}, side one − side two" for m, text in names.items()}
    made["facet"] = [other.get(row.relation, names[row.metric]) for row in rows]
    fixed = {name: " with ".join(pairs(case.study.manifest, entry.claim.fixed)) for name, entry in claims.items()}
    made["label"] = [
        f"{row.name}: {row.side} {'against' if row.relation in other else formatting.MINUS} {row.against}"
        + f", at {fixed[row.name]}" * bool(fixed[row.name])
        + ", post hoc" * (not row.registered)
        + ", edited" * bool(row.edited)
        for row in rows
    ]
    made["margin"] = pandas.to_numeric(made["margin"], errors="coerce").astype(float)
    for place, row in enumerate(rows):
        if row.relation == "multiplier":
            bound, way = claims[row.name].claim.bound
            made.loc[place, ["margin", "wanted"]] = (way * (bound - 1), way)
    places = {facet: formatting.decimals((rows["high"] - rows["low"]) / 2) for facet, rows in made.groupby("facet")}
    made["result"] = [
        captions.result(row, places[row.facet]) if math.isfinite(row.mean) else row.verdict for row in named_rows(made)
    ]
    made = made[COLUMNS].reset_index(drop=True)
    made.attrs = {"caption": captions.caption("claims", case, made)}
    return made


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A forest per unit, the claimed side or band in grey behind each row."""
    panels = [rows for _, rows in table.groupby("facet", sort=False)]
    drawn, axes = stacked(table, page, [(rows["label"], rows["result"]) for rows in panels])
    for axis, rows in zip(axes, panels, strict=True):
        line, ends = float(rows["facet"].iloc[0] == MULTIPLIERS), rows[["mean", "low", "high"]].to_numpy().ravel()
        low, high = limits([line, *ends, *line + rows["margin"], *line - rows["margin"]])
        for y, row in enumerate(named_rows(rows)):
            # `not_greater` allows values up to the margin.
            beyond = (-1 if row.relation in BOUNDED else 1) * (row.margin if math.isfinite(row.margin) else 0.0)
            claimed = {-1: (low, line - beyond), 1: (line + beyond, high)}
            edge = claimed.get(row.wanted, (-row.margin, row.margin))
            if all(map(math.isfinite, edge)):
                axis.fill_betweenx([y - 0.4, y + 0.4], *edge, color=style.FAINT, lw=0, zorder=0)
            estimate(axis, y, row)
        axis.axvline(line, color=style.INK, lw=0.6, zorder=1)
        axis.set_xlim(low, high)
        difference_ticks(axis, page)
        name_x(axis, rows["facet"].iloc[0], page)
    return drawn


KIND = Kind("every claim of the study file, what was found and the verdict", table, draw)
