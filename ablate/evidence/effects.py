"""Effects of a design with simultaneous intervals and their verdicts."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas

from ablate.evidence.collapse import collapse_of
from ablate.evidence.confounds import also_of_each
from ablate.evidence.contrasts import NAMES, Contrast, contrasts
from ablate.evidence.estimates import Comparison, compare, interval, p_value
from ablate.evidence.families import ALPHA, DECIDED, bonferroni, described, planned_looks, unadjusted
from ablate.evidence.power import detectable
from ablate.evidence.scores import study_scores
from ablate.evidence.verdicts import (
    MIN_PAIRS,
    MIN_SEEDS,
    Margin,
    Verdict,
    judge,
    margin_of,
    no_verdict,
    without_interval,
)
from ablate.evidence.worth import WORTH, Worth, curves_of, fits_in_steps, worth
from ablate.formatting import CROSSED, ESTIMATE_ONLY, SPEED
from ablate.runs.naming import no_evidence
from ablate.runs.study import Study
from ablate.runs.tables import is_timed

STEP = "train/step_seconds"
COLUMNS = [*NAMES, "n", "mean", "sd", "low", "high", "p", "p_bonferroni", "verdict", "note"]
COLUMNS += ["paired", "family", "unadjusted", "lower", "higher", "tied", "diverged", "diverged_reference"]
COLUMNS += ["failed", "missing", "alpha", "metric", "lower_is_better", "correlation", "pairing_ratio"]
COLUMNS += ["smallest", "margin", "margin_steps", "waits", "also", "flops_ratio", "seconds_ratio", *WORTH]
BOOLEANS = ["family", "unadjusted", "paired", "waits"]
MANY = 24  # effects above which each factor's are sorted


def effects(study: Study, metric: str | None = None) -> pandas.DataFrame:
    """A row per contrast of the design, in the metric's unit, level minus reference.

    Family rows (main effects, two-way interactions) have simultaneous 95 % intervals: level 1 − 0.05/m, Bonferroni-t,
    with which p_bonferroni, min(1, m·p), agrees; the interval decides the verdict.  Single cells have plain 95 %
    intervals, the verdict "estimate only" and no p_bonferroni.  Intervals of differences between shares (accuracies)
    end at −1 and 1.  Shares of solved runs are decided by an exact test, with an exact interval beside it.

    On a ladder, and in a study with registered claims, the family keeps its intervals,
    but is not tested: all rows say "estimate only".

    With `seeds=auto` intervals and p allow for every look: the level is split evenly over them, p is multiplied by
    their number.  `alpha` is 1 − the nominal level of the row's interval.  `metric` is that of each row's task unless
    one is given for all.  `smallest` is the difference that a new study of the same size detects with 80 % power at
    `alpha`, allowing for the SD being an estimate; NaN if this is not possible.

    `correlation` is that of the two sides' scores over seeds, `pairing_ratio` the variance of their paired difference
    as a multiple of that of unpaired seeds, Var(d) / (Var(a) + Var(b)); NaN below three seeds and if unpaired.
    `flops_ratio` and `seconds_ratio` are the costs of training the level's side, divided by the reference's.  `worth`
    is the difference in training steps of the reference, as a fraction (+0.09: the reference needs 9 % more steps for
    the same), with the interval `worth_low` to `worth_high`, −1 or inf beyond the steps that were trained;
    `worth_note` says why there is none.
    """
    manifest = study.manifest
    all_contrasts = contrasts(manifest)
    family_size = sum(contrast.kind != "cell" for contrast in all_contrasts)
    looks = planned_looks(manifest)
    is_tested = not (no_evidence(manifest) or described(manifest))
    is_unadjusted = bool(unadjusted(manifest))
    margin = Margin() if manifest.design == "ladder" else margin_of(manifest.margin)  # a ladder's is that of trends
    scores = study_scores(study, metric)
    curves_of_metric = {name: curves_of(study, name) for name in set(scores.metrics.values())}
    flops = {cell.id: cell.training_flops for cell in manifest.cells}
    seconds = mean_seconds(study)
    rows = []
    for contrast, also in zip(all_contrasts, also_of_each(manifest, all_contrasts), strict=True):
        comparison = compare(scores, contrast)
        in_family = contrast.kind != "cell"
        row: dict[str, Any] = vars(contrast) | vars(comparison) | {"n": comparison.n}
        row |= tested_columns(comparison, family_size if in_family else 1, looks)
        row |= {"family": in_family, "unadjusted": is_unadjusted, "also": "; ".join(also)}
        row |= {"flops_ratio": cost_ratio(contrast, flops), "seconds_ratio": cost_ratio(contrast, seconds)}
        is_slope = contrast.kind == "trend"  # to which neither steps nor a margin of differences apply
        curves = {} if is_slope else curves_of_metric.get(comparison.metric, {})
        margin_of_row = Margin() if is_slope else margin
        has_worth = bool(curves) and math.isfinite(row["low"])
        in_steps = worth(scores, contrast.weights, curves, row["alpha"]) if has_worth else Worth()
        row |= vars(in_steps) | {"margin": margin_of_row.size, "margin_steps": margin_of_row.steps}
        if is_tested and in_family:
            inside_margin = -margin_of_row.size < row["low"] and row["high"] < margin_of_row.size
            if curves and math.isfinite(margin_of_row.steps):
                inside_margin = fits_in_steps(in_steps, margin_of_row.steps)
            collapse = collapse_of(scores, contrast)
            verdict = judge(
                comparison, row["low"], row["high"], row["p_bonferroni"], collapse, inside_margin, margin.registered
            )
        else:
            verdict = estimate_only(comparison, is_tested)
            row["p_bonferroni"] = math.nan
        row |= {"verdict": verdict.word, "note": verdict.note, "waits": verdict.waits}
        rows.append(row)
    columns = COLUMNS if manifest.match == "none" else [*COLUMNS, "match_difference"]
    table = pandas.DataFrame(rows, columns=columns)
    return table.astype(dict.fromkeys(BOOLEANS, bool))  # also of a table without rows


def tested_columns(comparison: Comparison, m: int, looks: int) -> dict[str, float]:
    """Estimate, interval and p of a comparison that is one of m, at each of some looks; NaN where none is right."""
    estimate = comparison.estimate
    alpha = ALPHA / m / looks
    row = {"mean": estimate.mean, "sd": estimate.sd, "alpha": alpha}
    row |= dict.fromkeys(("low", "high", "p", "p_bonferroni", "smallest"), math.nan)
    if without_interval(comparison):  # a difference between survivors is not an effect
        return row | {"mean": math.nan, "sd": math.nan}
    row["low"], row["high"] = interval(estimate, alpha)
    if comparison.n >= (MIN_PAIRS if comparison.paired else MIN_SEEDS):
        row["p"] = float(bonferroni(p_value(estimate), looks))
        row["p_bonferroni"] = float(bonferroni(row["p"], m))
        row["smallest"] = detectable(estimate, alpha)
    return row


def estimate_only(comparison: Comparison, is_tested: bool) -> Verdict:
    """The word and the note of a row that is not tested; beside tested rows it says why it has no estimate."""
    reason = no_verdict(comparison) if is_tested else None
    if reason is None:
        return Verdict(ESTIMATE_ONLY)
    if reason.word == "withheld":
        return reason
    return Verdict(ESTIMATE_ONLY, reason.note)


def speed(study: Study) -> pandas.DataFrame:
    """The effects on the seconds of a training step, as a separate family; empty for a study that is not timed.  The
    study's margin, worths in steps and claims about other metrics concern its endpoint, so they are not used."""
    if not is_timed(study.manifest) or study.runs[STEP].isna().all():
        return pandas.DataFrame()
    manifest = study.manifest
    claims = {name: entry for name, entry in manifest.claims.items() if SPEED.keys() & entry.claim.metrics}
    withdrawn = {name: entry for name, entry in manifest.withdrawn.items() if SPEED.keys() & entry.claim.metrics}
    manifest = dataclasses.replace(manifest, margin=None, claims=claims, withdrawn=withdrawn)
    return effects(dataclasses.replace(study, manifest=manifest, beside={}), STEP)


def mean_seconds(study: Study) -> dict[str, float]:
    """The mean time that a run of each cell took; empty where times are not known."""
    if not study.time_column:
        return {}
    done = study.runs[study.runs["status"] == "done"]
    means: dict[str, float] = done.groupby("cell")[study.time_column].mean().to_dict()
    return means


def cost_ratio(contrast: Contrast, costs: Mapping[str, float]) -> float:
    """What the level's side costs, divided by what the reference's does; NaN for a difference of differences."""
    if contrast.kind in CROSSED:
        return math.nan
    level = sum(weight * costs.get(cell, math.nan) for cell, weight in contrast.side(1).items())
    reference = sum(weight * costs.get(cell, math.nan) for cell, weight in contrast.side(-1).items())
    return level / reference if reference else math.nan


# Which rows to show


def headline(table: pandas.DataFrame) -> pandas.DataFrame:
    """The rows to show first: effects of the design, and single cells only if no effect has an interval.  A cell that
    diverges is part of every main effect, so single cells may have the study's only intervals."""
    of_design = table["kind"] != "cell"
    if table.loc[of_design, "low"].notna().any():
        return table[of_design]
    return table[of_design | table["n"].gt(1)]


def best_first(table: pandas.DataFrame) -> pandas.DataFrame:
    """If there are many rows, differences from a reference from the best to the worst of each factor, those without a
    mean last; steps and interactions stay in their order."""
    if len(table) <= MANY:
        return table
    factor = table.groupby(["family", "kind", "stratum", "factor"], sort=False).ngroup()
    gain = table["mean"].where(table["lower_is_better"].astype(bool), -table["mean"])
    gain = gain.where(table["kind"].isin(["main", "cell"]), 0.0)
    return table.iloc[np.lexsort((gain, factor))]


def decided_first(table: pandas.DataFrame) -> pandas.DataFrame:
    """Effects before interactions and trends, and of either those that are decided before the others; the steps of a
    series stay in their order."""
    is_crossed = table["kind"].isin(CROSSED)
    is_undecided = ~table["verdict"].isin(DECIDED) & table["kind"].ne("step")
    return table.iloc[np.lexsort((is_undecided, is_crossed))]
