"""The point of each run's curve that counts: its last, its best, or the last at a step that all runs have."""

import numpy as np
import pandas

from ablate import formatting
from ablate.runs.tables import named_rows
from analysis.sources import Request
from analysis.sources.logged import NAMED, RUN, note
from analysis.sources.roles import Roles

TURNED = 1.02  # times its best from which a curve is said to have turned, as for runs of ablate
Points = tuple[pandas.DataFrame, list[str], Request]


def with_results(
    runs: pandas.DataFrame, curves: pandas.DataFrame, roles: Roles, request: Request, doubts: list[str]
) -> Points:
    """The runs with the metrics at the point that counts, notes, and the request with a point where one must be named.

    Runs that end at different steps are compared at the last step that all have, or, if asked, at their own ends.  A
    run that ended earlier than most of its configuration has no result, as its last value is from mid-schedule.
    """
    metrics = roles.metrics
    endpoint = metrics[0]
    lower = roles.lower
    runs = runs.join(curves.groupby(level=RUN)[metrics].last())
    curve = curves[curves[endpoint].notna()]
    ended = curve.groupby(level=RUN)["step"].max().reindex(runs.index)
    notes = set_status(runs, runs[endpoint].isna(), "missing", f"without {endpoint}")
    # Leaving diverged runs out would compare the lucky runs of one side with all runs of the other.
    why = f"with a last {endpoint} that is not finite and a status that does not say diverged"
    notes += set_status(runs, np.isinf(runs[endpoint]), "diverged", why)
    why = f"with a {endpoint} of exactly 0, as crashed runs log it"
    notes += set_status(runs, (runs[endpoint] == 0) & lower, "failed", why)
    if request.ends != "own":
        ends = ended[runs["status"] == "done"]
        is_early = ends < ends.groupby(level="cell").transform("max")
        is_rare = is_early.groupby(level="cell").transform("mean") < 0.5
        why = f"that stopped before the last step of their configuration and so have no final {endpoint}"
        notes += set_status(runs, (is_early & is_rare).reindex(runs.index, fill_value=False), "missing", why)
    done = runs.index[runs["status"] == "done"]
    curve = curve[curve.index.isin(done)]
    first_end = ended[done].min()
    last_end = ended[done].max()
    if request.at == "best":
        runs.loc[done, metrics] = best_of(curve, endpoint, lower)[metrics]
        counts = formatting.ranged(map(str, sorted(set(curve.groupby(level=RUN).size()))))
        why = "which flatters runs evaluated more often"
        notes.append(f"each run is compared at its best {endpoint} of {counts}, {why}")
    elif first_end < last_end:
        span = f"runs end at different steps, {first_end:.15g} to {last_end:.15g}"
        evaluated = curve.groupby("step").size()
        common = evaluated.index[evaluated == len(done)].max()  # NaN if there is none
        if request.ends == "own":
            notes.append(f"{span}, and are compared at their own ends")
        elif common >= first_end / 2:
            curve = curve[curve["step"] <= common]
            runs.loc[done, metrics] = curves[curves["step"] <= common].groupby(level=RUN)[metrics].last()
            last = f"compared at step {common:.15g}, the last that all have"
            notes.append(f"{span}: {last}; ends=own compares each at its own end")
        else:
            doubts.append(f"{span}, without a step near their ends that all have; compare them at their own ends")
            request = request._replace(ends="own")
    best = best_of(curve, endpoint, lower)[endpoint].reindex(done)
    fall = (runs.loc[done, endpoint] - best) * (1 if lower else -1)
    turned = done[fall > (TURNED - 1) * best.abs()]
    if len(turned) and not request.at:
        names = formatting.first_of(run_names(runs.loc[turned]), NAMED)
        doubts.append(f"{endpoint} ends worse than its best in {names}: write at=last or at=best")
        request = request._replace(at="last")
    has_result = np.isfinite(runs[metrics]).mul(runs["status"] == "done", axis=0)
    runs[metrics] = runs[metrics].where(has_result)
    return runs, notes, request


def set_status(runs: pandas.DataFrame, which: pandas.Series, status: str, why: str) -> list[str]:
    """Give those of the runs that are done another status, and return a note on them."""
    changed = which & (runs["status"] == "done")
    runs.loc[changed, "status"] = status
    return note(run_names(runs[changed]), f"{why}, counted as {status}")


def best_of(curve: pandas.DataFrame, endpoint: str, lower: bool) -> pandas.DataFrame:
    """By run, the row with its best value of the endpoint."""
    is_finite = np.isfinite(curve[endpoint])
    in_order = curve[is_finite].sort_values(endpoint, ascending=lower, kind="stable")
    return in_order.groupby(level=RUN).head(1)


def run_names(runs: pandas.DataFrame) -> list[str]:
    """What notes call runs."""
    return [f"{run.label} seed {run.seed}" for run in named_rows(runs)]
