"""Tasks that are either solved or not: how many runs solve them, and after how many steps, with the rest censored."""

import itertools
import math
from typing import Any

import numpy as np
import pandas
from scipy import stats

from ablate import evidence
from ablate.results.records import Cell
from ablate.results.study import Study

SOLVED = 0.99  # threshold if the task has no `solved_at`; the metric's best is 1
EXACT = 20  # seeds up to which all 2^20 signs are enumerated
CHOICES = math.comb(20, 10)  # up to which all choices of one side's runs are enumerated


def solved(study: Study) -> pandas.DataFrame | None:
    """A row per cell of a task that is scored between 0 and 1: the share of runs that solved it, and when; exploratory.

    A run has solved its task at the first evaluation on the validation split at which the task's first metric is at
    least `solved_at` (0.99 if the task has none).  Other runs are censored at the end of the schedule, including
    diverged ones, which will never solve it.  Failed and missing runs are left out.

    Columns: label, stratum, n, solved, share with Wilson's 95 % interval (share_low, share_high), median (steps,
    Kaplan-Meier; NaN if fewer than half solved it), restricted (mean steps up to the end of the stratum's shortest
    schedule, `within`), and against the reference: logrank, its p, p_bh, and saved, mean over seeds of the restricted
    steps saved, with its 95 % interval (saved_low, saved_high); both are paired if the batches are the same.  None if
    no run solved such a task.
    """
    manifest, times = study.manifest, times_by_cell(study)
    if not any(found["solved"].any() for found in times.values()):
        return None
    rows = []
    for stratum, members in evidence.strata(manifest):
        known = [cell for cell in members if len(times.get(cell.id, ()))]
        reference = next((cell for cell in known if cell.reference), None)
        within = min((int(times[cell.id]["end"].iloc[0]) for cell in known), default=0)
        for cell in known:
            row = {"label": cell.label, "stratum": stratum, **_alone(times[cell.id], within)}
            rows.append(row | _against(times, cell, reference, within))
    table = pandas.DataFrame(rows)
    p = table["logrank"].to_numpy(float)
    table["p_bh"], known = math.nan, ~np.isnan(p)
    table.loc[known, "p_bh"] = evidence.benjamini_hochberg(p[known])  # over the comparisons that were made
    return table


def times_by_cell(study: Study) -> dict[str, pandas.DataFrame]:
    """Of each cell whose task can be solved, by seed: the step at which a run solved it, or at which its schedule ends,
    and which of the two."""
    found, metrics = dict[str, pandas.DataFrame](), evidence.validated(study.manifest)
    for cell in study.manifest.cells:
        metric, task = metrics[cell.id], study.manifest.tasks[cell.task]
        if {metric, "step"} <= {*study.curves} and evidence.is_share(task, metric):
            ended = study.runs[(study.runs["cell"] == cell.id) & study.runs["status"].isin(["done", "diverged"])]
            curve = study.curves[study.curves["cell"] == cell.id]
            if curve[metric].max() > 1:  # in per cent, of which nothing says when a task is solved
                continue
            # The schedule of imported runs is unknown.
            end = float(cell.config.train.steps if cell.config.known else curve["step"].max())
            own = curve[curve[metric] >= solved_at(study, cell)]
            first = own.groupby("seed")["step"].min().reindex(ended["seed"])
            found[cell.id] = pandas.DataFrame({"step": first.fillna(end), "solved": first.notna(), "end": end})
    return found


def solved_at(study: Study, cell: Cell) -> float:
    """The value of its metric from which a run of a cell has solved its task."""
    known = study.manifest.tasks[cell.task].solved_at
    return SOLVED if known is None else float(known)


def _alone(found: pandas.DataFrame, within: int) -> dict[str, Any]:
    count, n = int(found["solved"].sum()), len(found)
    low, high = evidence.wilson(count, n)
    step, reached = found["step"].to_numpy(float), found["solved"].to_numpy(bool)
    curve = stats.ecdf(stats.CensoredData(uncensored=step[reached], right=step[~reached])).sf
    past = curve.quantiles[curve.probabilities <= 0.5]
    restricted = float(np.minimum(found["step"], within).mean())
    shares = {"share": count / n, "share_low": low, "share_high": high}
    median = float(past[0]) if len(past) else math.nan
    return {"n": n, "solved": count, **shares, "median": median, "restricted": restricted, "within": within}


def _against(times: dict[str, pandas.DataFrame], cell: Cell, reference: Cell | None, within: int) -> dict[str, float]:
    found = dict.fromkeys(("logrank", "saved", "saved_low", "saved_high"), math.nan)
    if reference is None or cell is reference:
        return found
    own, base = times[cell.id], times[reference.id]
    steps = [np.minimum(each["step"], within) for each in (base, own)]
    if cell.batches == reference.batches:
        found["logrank"] = paired_logrank(own, base)
        estimate = evidence.paired((steps[0] - steps[1]).dropna().to_numpy())
    else:
        found["logrank"] = logrank(own, base)
        estimate = evidence.welch([steps[0].to_numpy(float), -steps[1].to_numpy(float)])
    low, high = evidence.interval(estimate, evidence.ALPHA)
    return found | {"saved": estimate.mean, "saved_low": low, "saved_high": high}


def paired_logrank(own: pandas.DataFrame, base: pandas.DataFrame) -> float:
    """Two-sided p of the log-rank statistic for runs paired by seed (Jung 1999).

    The statistic is Σ dₛ, with d the difference of a seed's two log-rank scores δ − Λ(t) and Λ Nelson and Aalen's
    estimate over all runs (Peto & Peto 1972).  Under the null hypothesis the runs of a seed are exchangeable: p is the
    share of all signs with |Σ ±dₛ| >= |Σ dₛ|, exact up to 20 seeds that differ, beyond that from z = Σ dₛ / √Σ dₛ².
    Schedules of different length are cut to the shorter.  NaN below two seeds, and if no seed differs.
    """
    seeds = own.index.intersection(base.index)
    scores = _scores(own.loc[seeds], base.loc[seeds])
    differences = np.round(scores[: len(seeds)] - scores[len(seeds) :], 12)
    differences = differences[differences != 0]
    if len(seeds) < 2 or not len(differences):
        return math.nan
    if len(differences) > EXACT:
        return float(2 * stats.norm.sf(abs(differences.sum()) / math.sqrt(np.sum(differences**2))))
    sums = np.zeros(1)
    for each in differences:
        sums = np.concatenate([sums + each, sums - each])
    return float(np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9))


def logrank(own: pandas.DataFrame, base: pandas.DataFrame) -> float:
    """Two-sided p of the log-rank statistic for unpaired runs.

    The statistic is Σ of one side's log-rank scores, its observed minus expected events.  Under the null hypothesis any
    n of the N runs may be that side's: p is the share of all choices with a sum as far from zero (Peto & Peto 1972),
    exact up to 10 against 10 runs, beyond that from z = Σ / √(n·m/(N(N − 1))·Σ a²).  (The chi-squared test has an
    error rate of 7 to 8 % at three to ten runs.)  NaN if no two runs differ.
    """
    scores = _scores(own, base)
    if np.ptp(scores) < 1e-9:
        return math.nan
    count, side = len(scores), len(own)
    far = abs(float(scores[:side].sum()))
    if math.comb(count, side) > CHOICES:
        error = math.sqrt(side * (count - side) / (count * (count - 1)) * float(scores @ scores))
        return float(2 * stats.norm.sf(far / error))
    sums = scores[np.array(list(itertools.combinations(range(count), side)))].sum(axis=1)
    return float(np.mean(np.abs(sums) >= far - 1e-9))


def _scores(own: pandas.DataFrame, base: pandas.DataFrame) -> np.ndarray:
    """Log-rank scores δ − Λ(t) of the runs of both sides in turn; the longer schedule is cut to the shorter."""
    sides = [side.to_numpy(float).T for side in (own, base)]
    end = min(side[2].min(initial=math.inf) for side in sides)
    step = np.concatenate([np.minimum(when, end) for when, _, _ in sides])
    reached = np.concatenate([(solved > 0) & (when <= end) for when, solved, _ in sides])
    at = np.unique(step[reached])
    hazards = np.array([np.sum((step == when) & reached) / np.sum(step >= when) for when in at])
    return np.asarray(reached - (at <= step[:, None]) @ hazards)
