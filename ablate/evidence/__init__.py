"""Contrasts, intervals and verdicts from a study's tidy tables; nothing here reads a file or needs torch.

effects(study)   a row per contrast: main effects, interactions, cells against the reference
cells(study)     a row per cell: mean and SD over seeds, what diverged, failed or is missing
headline, noise  of effects: the rows to show first; what this many seeds can find
"""

from ablate.evidence.contrasts import Contrast, contrasts, strata
from ablate.evidence.runs import cells, endpoint, lower_is_better, matched, scores, unadjusted
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
from ablate.evidence.verdicts import ALPHA, Noise, effects, headline, noise

__all__ = [
    "ALPHA",
    "Contrast",
    "Estimate",
    "Noise",
    "benjamini_hochberg",
    "cells",
    "contrasts",
    "effects",
    "endpoint",
    "headline",
    "holm",
    "interval",
    "looks_until",
    "lower_is_better",
    "matched",
    "noise",
    "nominal",
    "overall",
    "p_value",
    "paired",
    "power",
    "scores",
    "smallest_difference",
    "standing",
    "strata",
    "unadjusted",
    "undecided",
    "welch",
    "wilson",
]
