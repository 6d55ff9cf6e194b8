"""The point of each run's curve that counts: its last, its best, or the last at a step that all runs have."""

import math

import numpy as np
import pandas

from ablate import formatting
from ablate.runs.tables import named_rows
from analysis.sources import Request
from analysis.sources.logged import NAMED, RUN, note
from analysis.sources.roles import Roles

TURNED = 0.02  # of its best, by which a curve has turned, as for runs of ablate


def with_results(
    runs: pandas.DataFrame, curves: pandas.DataFrame, roles: Roles, request: Request, doubts: list[str]
) -> tuple[pandas.DataFrame, list[str], Request]:
    """The runs with the metrics at the point that counts, notes, and the request with a point where one must be named.

    Runs that end at different steps are compared at the last step that all have, or, if asked, at their own ends.
    Adds to `doubts` where that step is too early, and where a curve ends worse than its best.
    """
    metrics = roles.metrics
    endpoint = metrics[0]
    runs = runs.join(curves.groupby(level=RUN)[metrics].last())
    evaluations = curves[curves[endpoint].notna()]
    ends = evaluations.groupby(level=RUN)["step"].max().reindex(runs.index)
    notes = mark_without_result(runs, ends, roles, request)
    is_done = runs["status"] == "done"
    done = runs.index[is_done]
    evaluations = evaluations[evaluations.index.isin(done)]
    if request.at == "best":
        runs.loc[done, metrics] = best_of(evaluations, roles)[metrics]
        notes.append(f"each run is compared at its best {endpoint}, which flatters runs that were evaluated more often")
    else:
        last, request = last_step(evaluations, ends[done], request, notes, doubts)
        evaluations = evaluations[evaluations["step"] <= last]
        runs.loc[done, metrics] = curves[curves["step"] <= last].groupby(level=RUN)[metrics].last()
    if not request.at:
        best = best_of(evaluations, roles)[endpoint].reindex(done)
        worse_by = (runs.loc[done, endpoint] - best) * (1 if roles.lower else -1)
        turned = runs.loc[done][worse_by > TURNED * best.abs()]
        if len(turned):
            names = formatting.first_of(run_names(turned), NAMED)
            doubts.append(f"{endpoint} ends worse than its best in {names}: write at=last or at=best")
            request = request._replace(at="last")
    has_result = np.isfinite(runs[metrics]).mul(is_done, axis=0)
    runs[metrics] = runs[metrics].where(has_result)
    return runs, notes, request


def last_step(
    evaluations: pandas.DataFrame, ends: pandas.Series, request: Request, notes: list[str], doubts: list[str]
) -> tuple[float, Request]:
    """The step up to which curves count, infinite where each counts to its own end; and the request, with its own ends
    where these must be named.  Adds to `notes` and `doubts`."""
    if not ends.min() < ends.max():
        return math.inf, request
    span = f"runs end at different steps, {ends.min():.15g} to {ends.max():.15g}"
    if request.ends == "own":
        notes.append(f"{span}, and are compared at their own ends")
        return math.inf, request
    runs_at_step = evaluations.groupby("step").size()
    common = float(runs_at_step.index[runs_at_step == len(ends)].max())  # NaN if there is none
    if common >= ends.min() / 2:
        why = f"compared at step {common:.15g}, the last that all have"
        notes.append(f"{span}: {why}; ends=own compares each at its own end")
        return common, request
    doubts.append(f"{span}, without a step near their ends that all have; compare them at their own ends")
    return math.inf, request._replace(ends="own")


def mark_without_result(runs: pandas.DataFrame, ends: pandas.Series, roles: Roles, request: Request) -> list[str]:
    """Change the status of runs that are done but have no result, in place, and return notes on them.

    A run that ended earlier than most of its configuration has none, as its last value is from mid-schedule, unless
    runs are compared at their own ends.
    """
    endpoint = roles.metrics[0]
    notes = set_status(runs, runs[endpoint].isna(), "missing", f"without {endpoint}")
    # Leaving diverged runs out would compare the lucky runs of one side with all runs of the other.
    why = f"with a last {endpoint} that is not finite and a status that does not say diverged"
    notes += set_status(runs, np.isinf(runs[endpoint]), "diverged", why)
    if roles.lower:
        why = f"with a {endpoint} of exactly 0, as crashed runs log it"
        notes += set_status(runs, runs[endpoint] == 0, "failed", why)
    if request.ends != "own":
        ends = ends[runs["status"] == "done"]
        is_early = ends < ends.groupby(level="cell").transform("max")
        is_rare = is_early.groupby(level="cell").transform("mean") < 0.5
        stopped = (is_early & is_rare).reindex(runs.index, fill_value=False)
        why = f"that stopped before the last step of their configuration and so have no final {endpoint}"
        notes += set_status(runs, stopped, "missing", why)
    return notes


def set_status(runs: pandas.DataFrame, which: pandas.Series, status: str, why: str) -> list[str]:
    """Give those of the runs that are done another status, and return a note on them."""
    changed = which & (runs["status"] == "done")
    runs.loc[changed, "status"] = status
    return note(run_names(runs[changed]), f"{why}, counted as {status}")


def best_of(evaluations: pandas.DataFrame, roles: Roles) -> pandas.DataFrame:
    """By run, the row with its best value of the metric that is compared."""
    endpoint = roles.metrics[0]
    is_finite = np.isfinite(evaluations[endpoint])
    in_order = evaluations[is_finite].sort_values(endpoint, ascending=roles.lower, kind="stable")
    return in_order.groupby(level=RUN).head(1)


def run_names(runs: pandas.DataFrame) -> list[str]:
    """What notes call runs."""
    return [f"{run.label} seed {run.seed}" for run in named_rows(runs)]
