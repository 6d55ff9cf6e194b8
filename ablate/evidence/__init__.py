"""Contrasts, intervals and verdicts from a study's tidy tables; nothing here reads a file or needs torch.

`effects`, `speed`, `claims` and `cells` make a table of a study; the rest is about the rows of these, or their words.
"""

from ablate.evidence.claim_text import claim_lines, replication
from ablate.evidence.claims import claims
from ablate.evidence.confounds import also_lines, also_words, same_setting_line
from ablate.evidence.contrasts import Contrast, changes, contrasts, crossings, strata
from ablate.evidence.effect_text import effect_sentence, finding, verdict_word
from ablate.evidence.effects import best_first, decided_first, effects, headline, speed
from ablate.evidence.estimates import Estimate, interval, p_value, paired, welch
from ablate.evidence.families import (
    ALPHA,
    DECIDED,
    bonferroni,
    described,
    families,
    holm,
    registered,
    sequential_state,
    unadjusted,
    undecided,
)
from ablate.evidence.ladder import ladder, ladder_lines, rung_lines, times
from ablate.evidence.power import noise_lines
from ablate.evidence.proportions import interval_kind, is_solved, wilson
from ablate.evidence.scores import (
    cells,
    endpoint,
    endpoints,
    is_share,
    lower_is_better,
    measures,
    overfitting,
    scores,
    validated,
    values_of,
)
from ablate.evidence.tuned import common_rows
from ablate.evidence.verdicts import margin_line, margin_of, margin_words
from ablate.evidence.worth import worth_text, worth_words
