"""Power: which effects a number of seeds can find."""

import functools
import math
from typing import Any

import numpy as np
import scipy

from ablate.config.claims import BOUNDED
from ablate.evidence.contrasts import contrasts
from ablate.evidence.estimates import Estimate, compare, t_limit
from ablate.evidence.families import ALPHA, described, planned_looks, registered
from ablate.evidence.proportions import is_solved
from ablate.evidence.scores import study_scores
from ablate.evidence.verdicts import MIN_PAIRS, MIN_SEEDS, margin_words
from ablate.formatting import between, counted
from ablate.runs.naming import no_evidence
from ablate.runs.records import Manifest
from ablate.runs.study import Study

POWER = 0.8


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
    return sd / math.sqrt(n) * detectable_factor(n - 1, alpha, sd_is_known=True)


@functools.lru_cache(maxsize=4096)
def detectable_factor(df: float, alpha: float, sd_is_known: bool = False) -> float:
    """How many standard errors a study of so many degrees of freedom detects with 80 % power at a two-sided level.

    The error is known, or estimated by a study of the same size: then power at the shift factor·r is averaged over the
    error of the estimate, r² ~ χ²_df/df.  For one paired contrast at 5 % and 3, 5, 8 and 20 seeds this is 1.55, 1.24,
    1.13 and 1.05 times as many as with a known error.
    """
    errors = np.ones((1, 1)) if sd_is_known else quantiles_of_sd(df, 200)[:, None]

    def lack_of_power(factor: float) -> float:
        return noncentral_power(factor * errors, df, alpha, 2000 if sd_is_known else 200) - POWER

    largest = 8 * (t_limit(alpha, df) + 1)
    while lack_of_power(largest) < 0:
        largest *= 2
    return float(scipy.optimize.brentq(lack_of_power, 0, largest, xtol=1e-4))


def detectable(estimate: Estimate, alpha: float) -> float:
    """The error times its `detectable_factor`; NaN without any spread, and for the share solved."""
    if estimate.n < 2 or not estimate.error or estimate.solved is not None:
        return math.nan
    return estimate.error * detectable_factor(estimate.df, alpha)


# Lines before a study


def noise_lines(study: Study) -> list[str]:
    """What a plan's seeds are too few for, and the effects that they can detect, if enough of its runs are on disk to
    know their SDs over seeds."""
    manifest = study.manifest
    family = [contrast for contrast in contrasts(manifest) if contrast.kind != "cell"]
    single = [contrast for contrast in family if contrast.kind in ("main", "step")]
    if no_evidence(manifest) or manifest.design == "ladder" or not single:
        return []
    scores = study_scores(study)
    tests = registered(manifest) if registered(manifest) and described(manifest) else len(family)
    level = ALPHA / tests / planned_looks(manifest)
    n = manifest.sequential.looks[-1] if manifest.sequential else len(manifest.seeds)
    if any(is_solved(metric) for metric in scores.metrics.values()):
        # McNemar's exact p is 2 · 2^−n at best, where one of two cells solves the task with every seed.
        enough = math.ceil(1 + math.log2(1 / level))
        return [f"fewer than {enough} seeds decide nothing about shares of runs solved"] if n < enough else []
    if n < MIN_PAIRS:
        return [f"fewer than {MIN_PAIRS} seeds give no verdict"]
    comparisons = [compare(scores, contrast) for contrast in single]
    lines = []
    if n < MIN_SEEDS and bounds_differences(manifest):
        lines.append(f"fewer than {MIN_SEEDS} seeds cannot show that a difference is small")
    if not all(comparison.paired for comparison in comparisons):
        if n < MIN_SEEDS:
            lines.append(f"fewer than {MIN_SEEDS} seeds give no verdict on unpaired differences")
        return lines
    sds = [comparison.estimate.sd for comparison in comparisons if comparison.n >= MIN_PAIRS]
    effect = f"smallest effect that {counted(n, 'seed')} find with 80 % power"
    if len(sds) < len(single):
        if n > MIN_PAIRS:
            lines.append(f"{effect}: known after {MIN_PAIRS} seeds")
        return lines
    if min(sds) == 0:
        return lines
    detected = between(findable(min(sds), n, level), findable(max(sds), n, level))
    return [*lines, f"{effect}: {detected}, by the runs on disk"]


def bounds_differences(manifest: Manifest) -> bool:
    """Whether a margin, of the study or of a claim, says that a difference is small."""
    claimed = any(entry.claim.relation in BOUNDED for entry in manifest.claims.values())
    return claimed or margin_words(manifest.margin) != ""
