"""Contrasts, intervals and verdicts from a study's tidy tables; nothing here reads a file or needs torch.

effects(study)   a row per contrast: main effects, interactions, cells against the reference
speed(study)     the same of the seconds of a training step, where runs were timed
claims(study)    a row per claim of the study file: supported, contradicted or undecided
cells(study)     a row per cell: mean and SD over seeds, what diverged, failed or is missing
applicable, read_claims, fraction_of  the grammar of claims and margins
headline, noise  of effects: the rows to show first; what this many seeds can find
"""

from ablate.config.claims import applicable, read_claims
from ablate.config.margin import fraction_of
from ablate.evidence.claims import claims
from ablate.evidence.claims.sentences import claim_lines, claim_words, moved, sized, spread
from ablate.evidence.confounds import also, also_lines, also_words
from ablate.evidence.contrasts import ALIASED, ESTIMABLE, Contrast, bases, changes, contrasts, strata
from ablate.evidence.divergence import divergence, divergence_of
from ablate.evidence.effects import Noise, effects, headline, noise, speed
from ablate.evidence.equivalence import margin_line, margin_of, margin_words
from ablate.evidence.family import ALPHA, families, registered
from ablate.evidence.noise_floor import Floor, floors, placebo_lines, seeds_needed, split
from ablate.evidence.normality import CHECKED, LEVEL, assumed, assuming
from ablate.evidence.overfitting import overfit, overfitting
from ablate.evidence.scores import (
    cells,
    endpoint,
    endpoints,
    is_share,
    lower_is_better,
    matched,
    measures,
    scores,
    unadjusted,
)
from ablate.evidence.sequential import DECIDED, looks_until, nominal, overall, standing, undecided
from ablate.evidence.setting_interactions import crossings
from ablate.evidence.statistics import (
    Estimate,
    benjamini_hochberg,
    holm,
    interval,
    p_value,
    paired,
    power,
    welch,
    wilson,
)
from ablate.evidence.step_equivalents import exchange_lines, within
from ablate.evidence.step_wording import worth_places, worth_told, worth_words
from ablate.evidence.tuned import common, common_rows, given, tuned, tuning_seeds

__all__ = [
    "ALIASED",
    "ALPHA",
    "CHECKED",
    "DECIDED",
    "ESTIMABLE",
    "LEVEL",
    "Contrast",
    "Estimate",
    "Floor",
    "Noise",
    "also",
    "also_lines",
    "also_words",
    "applicable",
    "assumed",
    "assuming",
    "bases",
    "benjamini_hochberg",
    "cells",
    "changes",
    "claim_lines",
    "claim_words",
    "claims",
    "common",
    "common_rows",
    "contrasts",
    "crossings",
    "divergence",
    "divergence_of",
    "effects",
    "endpoint",
    "endpoints",
    "exchange_lines",
    "families",
    "floors",
    "fraction_of",
    "given",
    "headline",
    "holm",
    "interval",
    "is_share",
    "looks_until",
    "lower_is_better",
    "margin_line",
    "margin_of",
    "margin_words",
    "matched",
    "measures",
    "moved",
    "noise",
    "nominal",
    "overall",
    "overfit",
    "overfitting",
    "p_value",
    "paired",
    "placebo_lines",
    "power",
    "read_claims",
    "registered",
    "scores",
    "seeds_needed",
    "sized",
    "speed",
    "split",
    "spread",
    "standing",
    "strata",
    "tuned",
    "tuning_seeds",
    "unadjusted",
    "undecided",
    "welch",
    "wilson",
    "within",
    "worth_places",
    "worth_told",
    "worth_words",
]
