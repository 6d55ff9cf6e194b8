"""Contrasts, intervals and verdicts from a study's tidy tables; nothing here reads a file or needs torch.

effects(study)   a row per contrast: main effects, interactions, cells against the reference
cells(study)     a row per cell: mean and SD over seeds, what diverged, failed or is missing
headline, noise  of effects: the rows to show first; what this many seeds can find
"""

from ablate.evidence.contrasts import Contrast, changes, contrasts, strata
from ablate.evidence.divergence import divergence, divergence_of
from ablate.evidence.placebo import floors, placebo_lines, seeds_needed, split
from ablate.evidence.runs import cells, endpoint, endpoints, lower_is_better, matched, measures, scores, unadjusted
from ablate.evidence.sequential import looks_until, nominal, overall, standing, undecided
from ablate.evidence.statistics import (
    Estimate,
    benjamini_hochberg,
    holm,
    interval,
    p_value,
    paired,
    power,
    smallest_difference,
    welch,
    wilson,
)
from ablate.evidence.tuning import common, common_rows, tuned
from ablate.evidence.verdicts import ALPHA, Noise, effects, headline, noise

__all__ = [
    "ALPHA",
    "Contrast",
    "Estimate",
    "Noise",
    "benjamini_hochberg",
    "cells",
    "changes",
    "common",
    "common_rows",
    "contrasts",
    "divergence",
    "divergence_of",
    "effects",
    "endpoint",
    "endpoints",
    "floors",
    "headline",
    "holm",
    "interval",
    "looks_until",
    "lower_is_better",
    "matched",
    "measures",
    "noise",
    "nominal",
    "overall",
    "p_value",
    "paired",
    "placebo_lines",
    "power",
    "scores",
    "seeds_needed",
    "smallest_difference",
    "split",
    "standing",
    "strata",
    "tuned",
    "unadjusted",
    "undecided",
    "welch",
    "wilson",
]
