"""Contrasts, intervals and verdicts from a study's tidy tables; nothing here reads a file or needs torch.

`effects`, `speed`, `claims` and `cells` make a table of a study; the rest is about the rows of these, or their words.
"""

from ablate.config.claims import applicable, read_claims
from ablate.config.key_checks import fraction_of
from ablate.evidence.claim_text import claim_lines, replication, sized, spread
from ablate.evidence.claims import claims
from ablate.evidence.contrasts import ESTIMABLE, Contrast, bases, changes, contrasts, crossings, strata
from ablate.evidence.effects import (
    Noise,
    also_lines,
    also_words,
    best_first,
    effects,
    foremost,
    headline,
    noise,
    same_setting_line,
    speed,
    too_few,
)
from ablate.evidence.equivalence import margin_line, margin_of, margin_words
from ablate.evidence.error_rates import ALPHA, DECIDED, described, families, registered, sequential_state, undecided
from ablate.evidence.estimates import weighted
from ablate.evidence.exact import interval_kind, is_solved
from ablate.evidence.expected_noise import noise_lines
from ablate.evidence.ladder import ladder, ladder_lines, rung_lines, times
from ablate.evidence.normality import CHECKED, FOOTNOTE, LEVEL, assuming, footnoted
from ablate.evidence.scores import (
    cells,
    common_rows,
    endpoint,
    endpoints,
    given,
    is_share,
    lower_is_better,
    matched,
    measures,
    overfit,
    overfitting,
    scores,
    unadjusted,
    validated,
    values_of,
)
from ablate.evidence.statistics import bonferroni, holm, interval, p_value, paired, welch, wilson
from ablate.evidence.step_equivalents import exchange_lines, worth_places, worth_text, worth_words
