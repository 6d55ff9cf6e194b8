"""Claims of a study file against its results: supported, contradicted or undecided, corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas

from ablate.evidence.contrasts import Contrast
from ablate.evidence.family import ALPHA, corrected, registered
from ablate.evidence.placebo import KEY
from ablate.evidence.ranking import diverges_p, rank_correlation
from ablate.evidence.rows import estimate_row, parts, scored
from ablate.evidence.runs import endpoints, unadjusted
from ablate.evidence.sequential import nominal, overall, sizes
from ablate.evidence.severity import Severity, severity
from ablate.evidence.statistics import Estimate, interval, p_value, paired
from ablate.evidence.verdicts import barred
from ablate.evidence.wording import claim_sentence
from ablate.relations import Side, compared, fraction_of, relation_of, sides_of, weighed
from ablate.results import Study
from ablate.words import counted, number, ranks, show

SEEDS = 5  # fewer show neither equivalence nor a ranking
FALSE_PASSES = 0.05
DECIDED = {1: "supported", 0: "undecided", -1: "contradicted"}

COLUMNS = [
    *("name", "relation", "sentence", "metric", "n", "mean", "sd", "low", "high", "p", "p_holm", "p_bh", "margin"),
    *("registered", "edited", "verdict", "note", "severity", "severity_n", "severity_kind"),
    *("side", "against", "paired", "family", "unadjusted", "alpha", "waits", "diverged", "diverged_reference"),
]


@dataclass(frozen=True)
class Finding:
    """What the runs say of one claim, before anything is corrected for the number of claims.

    p         allows for every look; NaN where there is none
    span      the interval at a level, (NaN, NaN) where there is none
    outcome   at a level: 1 supported, −1 contradicted, 0 neither
    reason    why no number decides; `final` if more seeds would not either
    severity  false passes on placebos at a level
    """

    columns: dict[str, Any]
    p: float
    span: Callable[[float], tuple[float, float]]
    outcome: Callable[[float], int]
    reason: str = ""
    final: bool = False
    notes: list[str] = field(default_factory=list)
    severity: Callable[[float], Severity] | None = None


def claims(study: Study) -> pandas.DataFrame:
    """A row per claim of a study: its difference, side one minus side two, in the metric's unit, and its verdict.

    Registered claims are the family: intervals of level 1 − .05/m, Bonferroni-t, over all m that were registered, Holm
    p.  Claims written or edited after results are exploratory: p after Benjamini & Hochberg over all that there were,
    intervals of 5 % false coverage rate.  The interval decides; `less` and `greater` are about the number itself,
    whether or not less is better.  With `seeds=auto` all levels allow for the looks; `waits` marks what more seeds may
    decide.  A claim that would pass on more than 5 % of resampled placebos stays undecided.
    """
    manifest = study.manifest
    entries = manifest.get("claims") or {}
    found = {name: FINDERS[relation_of(entry["claim"])](study, name, entry["claim"]) for name, entry in entries.items()}
    family = np.array([bool(entry["registered"]) for entry in entries.values()], dtype=bool)
    p = np.array([finding.p for finding in found.values()], dtype=float)
    holm_p, bh_p, levels = corrected(p, family, manifest)
    rows = [
        _row(study, name, entries[name], finding) | {"p_holm": one, "p_bh": other, "alpha": level} | _judged(finding, level)
        for (name, finding), one, other, level in zip(found.items(), holm_p, bh_p, levels, strict=True)
    ]
    table = pandas.DataFrame(rows, columns=COLUMNS)
    table["sentence"] = [
        claim_sentence(manifest, entries[row.name]["claim"], row) for row in table.itertuples(index=False)
    ]
    return table
