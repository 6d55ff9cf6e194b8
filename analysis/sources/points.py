"""The point of each run's curve that counts: its last, its best, or one at a step that all runs have."""

import math

import numpy as np
import pandas

from ablate import formatting
from ablate.runs.tables import named_rows
from analysis.sources import Request
from analysis.sources.columns import NAMED, note

RISES = 1.02  # times its best from which a curve is said to have turned, as for runs of ablate
Points = tuple[pandas.DataFrame, list[str], str, str]


def points(
    runs: pandas.DataFrame,
    rows: pandas.DataFrame,
    metrics: list[str],
    request: Request,
    lower: bool,
    reference: list[str],
    doubts: list[str],
) -> Points:
    """The runs with the value of every metric at the point that counts, notes, and what to propose for `at` and `ends`.

    A run that ended earlier than most of its cell has no value, as its last one is from mid-schedule.  Where runs end
    at different steps they are compared at the last step that all have, on request at their own ends.  A run whose last
    endpoint is not finite has diverged; one with a loss of exactly 0 has failed.  `reference` has the ids of the cells
    that are compared with; adds to `doubts` where the point decides which side is better.
    """
    endpoint = metrics[0]
    runs = runs.join(rows[metrics].groupby(level=0).last())
    steps = rows["step"] if "step" in rows else pandas.Series(0.0, rows.index)
    ended = steps.where(rows[endpoint].notna()).groupby(level=0).max().reindex(runs.index)
    notes: list[str] = []

    def count_as(status: str, which: pandas.Series, why: str) -> None:
        lost = which & (runs["status"] == "done")
        notes.extend(note(run_names(runs[lost]), f"{why}, counted as {status}"))
        runs.loc[lost, "status"] = status

    value = runs[endpoint]
    count_as("missing", value.isna(), f"without {endpoint}")
    # Leaving diverged runs out would compare the lucky runs of one side with all runs of the other.
    infinite = f"with a last {endpoint} that is not finite and a status that does not say diverged"
    count_as("diverged", pandas.Series(np.isinf(value), runs.index), infinite)
    zero = f"with a {endpoint} of exactly 0, as crashed runs log it"
    count_as("failed", (value == 0) & lower, zero)
    done = runs["status"] == "done"
    longest = ended.where(done).groupby(runs["cell"]).transform("max")
    stopped = runs["stopped_at"].notna() if "stopped_at" in runs else pandas.Series(False, runs.index)
    early = done & ((ended < longest) | stopped)
    few = early[done].groupby(runs["cell"]).transform("mean") < 0.5
    if request.ends != "own":
        stopping = "that stopped before the last step of their configuration and so have no final"
        count_as("missing", early & few.reindex(runs.index, fill_value=False), f"{stopping} {endpoint}")
    done = runs["status"] == "done"
    curves = rows[rows.index.isin(runs.index[done]) & rows[endpoint].notna()]
    ends_differ = ended[done].nunique() > 1
    span = f"runs end at different steps, {ended[done].min():.15g} to {ended[done].max():.15g}"
    ends = ""
    if ends_differ and request.at != "best" and request.ends == "own":
        notes.append(f"{span}, and are compared at their own ends")
    elif ends_differ and request.at != "best":
        common = _common_step(curves, int(done.sum()))
        if common < ended[done].min() / 2 or math.isnan(common):
            doubts.append(f"{span}, without a step near their ends that all have; compare them at their own ends")
            ends = "own"
        else:
            curves = curves[curves["step"] <= common]
            runs.loc[done, metrics] = rows[rows["step"] <= common][metrics].groupby(level=0).last()
            last = f"compared at step {common:.15g}, the last that all have"
            notes.append(f"{span}: {last}; ends=own compares each at its own end")
    best = _best(curves, endpoint, lower).reindex(runs.index)
    at = ""
    if request.at == "best":
        for name in metrics:
            there = rows.set_index("step", append=True)[name] if "step" in rows else rows[name]
            keys = pandas.MultiIndex.from_arrays([best.index, best["step"]]) if "step" in rows else best.index
            runs[name] = there.reindex(keys).to_numpy()
        counts = formatting.ranged(map(str, sorted({*curves.groupby(level=0).size()})))
        notes.append(
            f"each run is compared at its best {endpoint} of {counts}, which flatters runs evaluated more often"
        )
    elif "step" in rows:
        at = _turns(runs, best[endpoint], endpoint, lower, reference, request, notes, doubts)
    done = runs["status"] == "done"
    runs[metrics] = runs[metrics].where(np.isfinite(runs[metrics]).mul(done, axis=0))
    return runs, notes, at, ends


def _common_step(curves: pandas.DataFrame, count: int) -> float:
    """The last step at which each of `count` runs was evaluated; NaN if there is none."""
    runs_at = pandas.Series(curves.index, curves.index).groupby(curves["step"]).nunique()
    return float(runs_at.index[runs_at == count].max()) if (runs_at == count).any() else math.nan


def _best(curves: pandas.DataFrame, endpoint: str, lower: bool) -> pandas.DataFrame:
    """By run, the row with its best value of the endpoint."""
    order = curves[np.isfinite(curves[endpoint])].sort_values(endpoint, ascending=lower, kind="stable")
    return order.groupby(level=0).head(1)


def _turns(
    runs: pandas.DataFrame,
    best: pandas.Series,
    endpoint: str,
    lower: bool,
    reference: list[str],
    request: Request,
    notes: list[str],
    doubts: list[str],
) -> str:
    """Note runs that end worse than their best; a doubt where the sides are in another order there."""
    done = runs["status"] == "done"
    last = runs[endpoint].where(done)
    worse = (last - best if lower else best - last) > (RISES - 1) * best.abs()
    if not worse.any() or request.at:
        return ""
    names = run_names(runs[worse])
    notes += note(names, f"whose {endpoint} ends worse than its best; at=best compares the best")
    at_last = last.groupby(runs["cell"]).mean()
    at_best = best.where(done).groupby(runs["cell"]).mean()
    for cell in reference:
        if (np.sign(at_last - at_last[cell]) != np.sign(at_best - at_best[cell])).any():
            told = formatting.first_of(names, NAMED)
            doubts.append(
                f"{endpoint} ends worse than its best in {told}, and which side is better depends on the point "
                "of the curve: write at=last or at=best"
            )
            return "last"
    return ""


def run_names(runs: pandas.DataFrame) -> list[str]:
    """What notes call runs."""
    return [f"{run.label} seed {run.seed}" for run in named_rows(runs)]
