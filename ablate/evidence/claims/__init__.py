"""Tests of a study file's claims: supported, contradicted or undecided, corrected for their number."""

from typing import Any

import numpy as np
import pandas

from ablate.evidence.claims.rules import FINDERS, Finding
from ablate.evidence.claims.sentences import claim_says, claim_sentence
from ablate.evidence.family import corrected, exploratory, registered, worded
from ablate.evidence.scores import given, unadjusted
from ablate.evidence.step_equivalents import WORTH
from ablate.results.naming import no_evidence
from ablate.results.records import ClaimEntry
from ablate.results.study import Study
from ablate.results.tables import named_rows

VERDICTS = {1: "supported", 0: "undecided", -1: "contradicted"}
COLUMNS = [
    *("name", "relation", "sentence", "metric", "n", "mean", "sd", "low", "high", "p", "p_holm", "p_bh", "margin"),
    *("registered", "edited", "verdict", "note"),
    *("side", "against", "paired", "family", "unadjusted", "alpha", "waits"),
    *("diverged", "diverged_reference", "lower", "higher", "tied", *WORTH, "says", "assumes"),
]


def claims(study: Study) -> pandas.DataFrame:
    """A row per claim of a study: side one minus side two, in the metric's unit, and its verdict.

    Registered claims are the family: intervals of level 1 − 0.05/m, Bonferroni-t, over all m that were ever registered,
    and Holm p.  Claims written or edited after results are exploratory: p after Benjamini & Hochberg over all of them,
    intervals of 5 % false coverage rate, verdicts that begin with "looks".  The interval decides.  `less` and `greater`
    compare the numbers, whether or not less is better, by more than their margin if they have one.  With `seeds=auto`
    all levels allow for the looks; `waits` marks claims that more seeds may decide.  `says` is the finding, `sentence`
    adds name, verdict and grounds.  Tuning, placebo and exchange runs are not used.  Where too many seeds may collapse,
    an interval inside the margin supports `equivalent` only "among solved seeds" (for a loss "among seeds that
    trained"): see evidence.collapse.
    """
    entries = {} if no_evidence(study.manifest) else study.manifest.claims or {}
    found = {
        # Seeded by the claim's name, so that other claims do not change its random numbers.
        name: FINDERS[entry.claim.relation](study, entry.claim, np.random.default_rng([*name.encode()]))
        for name, entry in entries.items()
    }
    family = np.array([bool(entry.registered) for entry in entries.values()], dtype=bool)
    p = np.array([finding.p for finding in found.values()], dtype=float)
    holm, bh, levels = corrected(p, family, registered(study.manifest), exploratory(study.manifest))
    rows = [
        {"name": name} | _row(entries[name], finding, level)
        for (name, finding), level in zip(found.items(), levels, strict=True)
    ]
    table = pandas.DataFrame(rows, columns=COLUMNS).assign(p_holm=holm, p_bh=bh, alpha=levels)
    table["note"] = ["; ".join(filter(None, [note, given(study.manifest)])) for note in table["note"]]
    table["unadjusted"] = bool(unadjusted(study.manifest))
    table["says"] = [claim_says(study.manifest, entries[row.name].claim, row) for row in named_rows(table)]
    table["sentence"] = [claim_sentence(study.manifest, entries[row.name], row) for row in named_rows(table)]
    return table


def _row(entry: ClaimEntry, finding: Finding, level: float) -> dict[str, Any]:
    """The columns of one claim at its corrected level."""
    found = finding.at(level)
    return {
        **finding.columns,
        **found.worth._asdict(),
        "relation": entry.claim.relation,
        "registered": entry.registered,
        "family": entry.registered,
        "edited": bool(entry.earlier),
        "p": finding.p,
        "low": found.low,
        "high": found.high,
        "verdict": worded(f"{VERDICTS[found.outcome]} {found.among}".strip(), entry.registered),
        "assumes": finding.assumes * bool(found.outcome),
        "note": "; ".join(filter(None, [found.why, finding.reason, *finding.notes])),
        "waits": bool(found.among) or (not found.outcome and not finding.final),
    }
