"""Power: what a number of seeds can find, and the noise to expect, from the SDs of finished studies.

The noise atlas holds SDs by contrast, task, scale and metric; `make figures` writes `noise_atlas.csv` from the tables
of committed studies.
"""

import bisect
import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import scipy

from ablate.config.groups import groups as config_groups
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.estimates import Estimate, independent_groups, t_limit
from ablate.evidence.families import ALPHA, described, planned_looks, registered
from ablate.evidence.proportions import is_solved
from ablate.evidence.scores import endpoints
from ablate.evidence.verdicts import MIN_PAIRS, MIN_SEEDS, margin_of
from ablate.formatting import MINUS, between, counted, first_of, listed, plain, size
from ablate.runs.naming import no_evidence
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows

POWER = 0.8
MOST_SEEDS = 10_000  # up to which numbers of seeds are searched

FILE = Path(__file__).with_name("noise_atlas.csv")
FARTHEST = math.log(10)  # largest |log ratio| of parameters × steps at which a row is used
SAME_SIZE = math.log(1.1)  # |log ratio| up to which the size of the source is not mentioned
TEXTS = ("study", "task", "task_kind", "scale", "metric", "kind", "factor", "change", "stratum")
SINGLE = ("main", "step")  # kinds of contrast that change one factor


# Power


def quantiles_of_sd(df: float, count: int) -> np.ndarray:
    """Evenly spaced quantiles of an estimated SD over the true one: s² ~ χ²_df/df."""
    probabilities = (np.arange(count) + 0.5) / count
    chi_squared = 2 * scipy.special.gammaincinv(df / 2, probabilities)
    return np.asarray(np.sqrt(chi_squared / df))


def noncentral_power(shift: Any, df: float, alpha: float, count: int = 2000) -> float:
    """P(|t| > t_{1 − alpha/2, df}) for a difference of `shift` standard errors: the noncentral t; averaged over shifts.
    Computed as the mean over s² ~ χ²_df/df of Φ(shift − t·s) + Φ(−shift − t·s), as SciPy's is NaN for some shifts."""
    limits = quantiles_of_sd(df, count) * t_limit(alpha, df)
    return float(np.mean(scipy.special.ndtr(shift - limits) + scipy.special.ndtr(-shift - limits)))


def findable(sd: float, n: int, alpha: float) -> float:
    """The mean of n paired differences with a known SD that is detected with 80 % power at a two-sided level."""

    def lack_of_power(shift: float) -> float:
        return noncentral_power(shift, n - 1, alpha) - POWER

    largest = 8 * (t_limit(alpha, n - 1) + 1)
    shift = scipy.optimize.brentq(lack_of_power, 0, largest, xtol=1e-4)
    return sd / math.sqrt(n) * float(shift)


@functools.lru_cache(maxsize=4096)
def detectable_factor(df: float, alpha: float) -> float:
    """How many estimated standard errors a new study of the same size detects with 80 % power at a two-sided level.

    Its power at the shift factor·r is averaged over the error of the estimate, r² ~ χ²_df/df.  For one paired contrast
    at 5 % and 3, 5, 8 and 20 seeds this is 1.55, 1.24, 1.13 and 1.05 times as many as with a known standard error.
    """
    errors = quantiles_of_sd(df, 200)[:, None]

    def lack_of_power(factor: float) -> float:
        return noncentral_power(factor * errors, df, alpha, 200) - POWER

    largest = 8 * (t_limit(alpha, df) + 1)
    while lack_of_power(largest) < 0:
        largest *= 2
    return float(scipy.optimize.brentq(lack_of_power, 0, largest, xtol=1e-4))


def detectable(estimate: Estimate, alpha: float) -> float:
    """The error times its `detectable_factor`; NaN without any spread, and for the share solved."""
    if estimate.n < 2 or not estimate.error or estimate.solved is not None:
        return math.nan
    return estimate.error * detectable_factor(estimate.df, alpha)


def chance_of_equality(margin: float, sd: float, n: int, alpha: float) -> float:
    """P(the 1 − alpha interval of n paired differences of mean zero lies inside ±margin).

    It is E[max(0, 2Φ(z) − 1)] over s² ~ σ²χ²_ν/ν, ν = n − 1, with z = margin·√n/σ − t_{1 − alpha/2, ν}·s/σ.
    """
    z = margin * math.sqrt(n) / sd - t_limit(alpha, n - 1) * quantiles_of_sd(n - 1, 200)
    return float(np.mean(np.maximum(0, 2 * scipy.special.ndtr(z) - 1)))


def seeds_for_equality(margin: float, sd: float, alpha: float) -> int | None:
    """The fewest paired seeds, at least five, that show a difference of zero to lie within ±margin with 80 % power;
    None for more than 10,000."""
    seeds = range(2, MOST_SEEDS + 1)
    i = bisect.bisect_left(seeds, True, key=lambda n: chance_of_equality(margin, sd, n, alpha) >= POWER)
    return max(MIN_SEEDS, seeds[i]) if i < len(seeds) else None


# The noise to expect


@dataclass(frozen=True)
class Expected:
    """The SD over seeds that a contrast is expected to have."""

    sd: float
    source: Any  # the row of the atlas that it comes from; `distance`: |log ratio| of parameters × steps


def read_atlas() -> pandas.DataFrame:
    """The atlas that is installed with the package."""
    table = pandas.read_csv(FILE, keep_default_na=False, na_values=[""], encoding="utf-8")
    return table.fillna(dict.fromkeys(TEXTS, ""))


def usable(atlas: pandas.DataFrame) -> pandas.DataFrame:
    """The rows to forecast from: paired changes of one factor, whose SD is from five seeds or more."""
    has_sd = atlas["paired"].astype(bool) & (atlas["n"] >= MIN_SEEDS) & (atlas["sd"] > 0) & atlas["steps"].notna()
    return atlas[has_sd & atlas["kind"].isin(SINGLE)]


def change_of(contrast: Contrast) -> str:
    """What a contrast changes, without its stratum: "norm: rms − ln"."""
    if contrast.kind == "step":
        return f"{contrast.factor}: {contrast.level} {MINUS} {contrast.reference}"
    return contrast.label_in_any_stratum


def expected(atlas: pandas.DataFrame, manifest: Manifest, contrast: Contrast, metric: str) -> Expected | None:
    """The SD of a contrast, from the nearest row of the atlas with its metric, task and factor; None without one.

    The same change comes first; then the same text of the task, the nearest in log(parameters × steps), the most seeds
    and the largest SD.  The SD is scaled up by √Σ w² but never down: averaging over more cells need not reduce noise,
    since a component draws the same random numbers in all of them.
    """
    _, pairs = independent_groups(manifest, contrast.weights)
    cell = next(cell for cell in manifest.cells if cell.id in contrast.side(-1))
    if not pairs or cell.config is None or cell.params is None:
        return None
    task = manifest.tasks[cell.task]
    same_test = atlas["metric"].eq(metric) & atlas["factor"].eq(contrast.factor)
    same_task = atlas["task"].map(unversioned).eq(unversioned(task.name)) & atlas["task_kind"].eq(task.kind)
    rows = atlas[same_test & same_task]
    size_ratio = rows["params"] * rows["steps"] / (cell.params * cell.config.train.steps)
    rows = rows.assign(
        distance=np.abs(np.log(size_ratio)),
        other_change=rows["change"] != change_of(contrast),
        other_task=rows["task"] != task.name,
    )
    order = ["other_change", "other_task", "distance", "n", "sd"]
    rows = rows[rows["distance"] <= FARTHEST]
    rows = rows.sort_values(order, ascending=[True, True, True, False, False], kind="stable")
    if rows.empty:
        return None
    nearest = next(iter(named_rows(rows)))
    squares = sum(weight**2 for weight in contrast.weights.values())
    return Expected(float(nearest.sd) * max(1.0, math.sqrt(squares / nearest.squares)), nearest)


def unversioned(task: str) -> str:
    """A task's name without Python's version: stdlib of stdlib-3.11."""
    return re.sub(r"-3\.\d+$", "", task)


# Lines before a study


def noise_lines(manifest: Manifest) -> list[str]:
    """The effects that a study's seeds can detect, with the noise to expect, and the seeds that its margin needs."""
    family = [contrast for contrast in contrasts(manifest) if contrast.kind != "cell"]
    single = [contrast for contrast in family if contrast.kind in SINGLE]
    if no_evidence(manifest) or not single:
        return []
    metrics = endpoints(manifest)
    tests = registered(manifest) if registered(manifest) and described(manifest) else len(family)
    level = ALPHA / tests / planned_looks(manifest)
    n = manifest.sequential.looks[-1] if manifest.sequential else len(manifest.seeds)
    lines = []
    if any(is_solved(metric) for metric in metrics.values()):
        lines.extend(too_few_for_shares(n, level))
    atlas = usable(read_atlas())
    estimates: list[Expected] = []
    factors_without_noise = []
    for contrast in single:
        estimate = expected(atlas, manifest, contrast, metrics[next(iter(contrast.weights))])
        if estimate is None:
            factors_without_noise.append(contrast.factor)
        else:
            estimates.append(estimate)
    if not estimates:
        return lines
    smallest = min(estimate.sd for estimate in estimates)
    largest = max(estimate.sd for estimate in estimates)
    source = f"from {first_of(sources_in_words(manifest, estimates), 2)}"
    if factors_without_noise:
        source += f"; none known of {listed(list(dict.fromkeys(factors_without_noise)))}"
    noise = f"SD of an effect about {between(smallest, largest)}, {source}"
    if manifest.design == "ladder":  # what its changes are worth also depends on what more steps bring
        return [*lines, f"noise: {noise}"]
    if n < MIN_PAIRS:
        return [*lines, f"fewer than {MIN_PAIRS} seeds find nothing ({noise})"]
    detected = between(findable(smallest, n, level), findable(largest, n, level))
    lines.append(f"smallest effect that {counted(n, 'seed')} find with 80 % power: {detected} ({noise})")
    margin = margin_of(manifest.margin).size
    if math.isfinite(margin) and not factors_without_noise:
        seeds = seeds_for_equality(margin, largest, level)
        seeds_in_words = f"more than {MOST_SEEDS:,} seeds" if seeds is None else f"{seeds:,} seeds"
        lines.append(
            f"if there is no difference, {seeds_in_words} would show equality within {plain(margin)}, with 80 % power"
        )
    return lines


def too_few_for_shares(n: int, level: float) -> list[str]:
    """A line if even the clearest result of n seeds, one of two cells solves the task in all, decides nothing."""
    enough = math.ceil(1 + math.log2(1 / level))  # McNemar's exact p is 2 · 2^−n at best
    return [f"fewer than {enough} seeds decide nothing about shares of runs solved"] if n < enough else []


def sources_in_words(manifest: Manifest, estimates: list[Expected]) -> list[str]:
    """Sources of the SDs by scale and task: "64 seeds of norm: rms − ln and ffn: swiglu − mlp at scale=tiny"."""
    presets = config_groups()["scale"]
    tasks = [task.name for task in manifest.tasks.values()]
    changes_by_place: dict[tuple[int, str], list[str]] = {}
    for estimate in estimates:
        row = estimate.source
        place = f"scale={row.scale}" if row.scale in presets else row.scale
        if row.distance > SAME_SIZE:
            place += f", {size(int(row.params))} parameters × {row.steps:.0f} steps"
        if row.task not in tasks:
            place += f" on {row.task}"
        changes = changes_by_place.setdefault((int(row.n), place), [])
        if row.change not in changes:
            changes.append(row.change)
    words = []
    for (n, place), changes in changes_by_place.items():
        words.append(f"{counted(n, 'seed')} of {first_of(changes, 2)} at {place}")
    return words
