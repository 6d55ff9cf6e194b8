"""What foreign runs ended with: a row per run out of a row per step, runs without a final number named."""

from __future__ import annotations

import numpy as np
import pandas

from ablate.formatting import counted
from analysis.sources.columns import SHAPE, few

CARRIED = ("status", "batches", *SHAPE, "path", "error")
DENSE = 0.5  # of all pairs of cell and seed; where more have a row, one without is a run that is missing


def ends(table: pandas.DataFrame, metrics: list[str]) -> tuple[pandas.DataFrame, list[str]]:
    """A row per run: what it logged last of every column; and notes that name each without a final endpoint.

    A run that ended earlier than others of its cell has no final value: what it logged last is of mid-schedule.  One
    whose final endpoint is not finite has diverged.
    """
    known = [name for name in ("cell", "label", "seed", *CARRIED) if name in table]
    if "step" in table:
        ordered = table.sort_values("step", kind="stable")
        logged = ordered["step"].where(ordered[metrics[0]].notna())
        grouped = ordered[[*known, *metrics]].assign(ended=logged).groupby(["cell", "seed"], sort=False)
        first = table[["cell", "seed"]].drop_duplicates()  # in the order of the table
        runs = first.merge(grouped.last().reset_index(), on=["cell", "seed"])
    else:
        runs = table[[*known, *metrics]].assign(ended=0.0).reset_index(drop=True)
    notes, value = list[str](), runs[metrics[0]]
    early = f"that stopped before the last step of their cell and so have no final {metrics[0]}"
    # To leave these out would compare the luck of one side with all of the other.
    infinite = f"with a last {metrics[0]} that is not finite and a status that does not say diverged"
    for lost, why, counts_as in (
        (value.isna(), f"without {metrics[0]}", "missing"),
        (np.isinf(value), infinite, "diverged"),
        (runs["ended"] < runs.groupby("cell")["ended"].transform("max"), early, "missing"),
    ):
        found = runs[lost & (runs["status"] == "done")]
        if len(found):
            named = few(f"{run.label} seed {run.seed}" for run in found.itertuples())
            notes.append(f"{counted(len(found), 'run')} {why}, counted as {counts_as}: {named}")
            runs.loc[found.index, "status"] = counts_as
    last = runs[runs["status"] == "done"].groupby("label", sort=False)["ended"].max()
    if last.nunique() > 1:  # what is compared was not trained equally long
        named = few(f"{label} {step:.15g}" for label, step in last.items())
        notes.append(f"cells end at different steps, and are compared there: {named}")
    finite = np.isfinite(runs[metrics]).to_numpy() & (runs["status"] == "done").to_numpy()[:, None]
    runs[metrics] = runs[metrics].where(finite)
    columns = list(dict.fromkeys([*known, "path", "error", *metrics]))
    return runs.drop(columns="ended").reindex(columns=columns), notes


def with_missing(runs: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """The runs with a row of status `missing` for each cell and seed without one, where most cells have every seed.

    With them a note that names those rows.
    """
    cells, seeds = list(dict.fromkeys(runs["cell"])), sorted(set(runs["seed"]))
    there = set(zip(runs["cell"], runs["seed"], strict=True))
    lost = [(cell, seed) for cell in cells for seed in seeds if (cell, seed) not in there]
    if not lost or len(there) <= DENSE * len(cells) * len(seeds):
        return runs, []
    label = dict(zip(runs["cell"], runs["label"], strict=True))
    named = few(f"{label[cell]} seed {seed}" for cell, seed in lost)
    rows = [{"cell": cell, "seed": seed, "label": label[cell], "status": "missing"} for cell, seed in lost]
    note = f"{counted(len(lost), 'run')} without a row, counted as missing: {named}"
    return pandas.concat([runs, pandas.DataFrame(rows)], ignore_index=True), [note]
