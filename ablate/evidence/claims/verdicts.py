"""Verdicts on claims as they are kept in a study's tables, so that a later change of method does not change them."""

from typing import Any

import pandas

from ablate.config.claims import Claim
from ablate.evidence.claim_text import replication
from ablate.evidence.exact import is_solved
from ablate.results.records import ClaimVerdict, Manifest, StudyVerdicts
from ablate.results.tables import named_rows


def kept_verdicts(manifest: Manifest, claims: pandas.DataFrame, commit: str) -> StudyVerdicts:
    """What is kept of a study's registered claims, from its table of claims, judged by the code of this commit."""
    overall = replication(manifest, claims)
    kept = {}
    for row in named_rows(claims[claims["registered"].astype(bool)]):
        kept[row.name] = kept_verdict(manifest.claims[row.name].claim, row, commit)
    return StudyVerdicts(overall=overall.verdict if overall else None, claims=kept)


def kept_verdict(claim: Claim, row: Any, commit: str) -> ClaimVerdict:
    """What is kept of one row of the table of claims."""
    return ClaimVerdict(
        verdict=row.verdict,
        note=row.note,
        estimate=row.mean,
        interval=(row.low, row.high),
        p=row.p,
        method=method_of(claim, row),
        commit=commit,
    )


def method_of(claim: Claim, row: Any) -> str:
    """How a claim is judged, in plain words."""
    if claim.relation == "rank_correlates":
        return "Holm's step-down (t over seeds and permutation of levels)"
    if claim.relation == "diverges_more":
        return "Holm's step-down (exact test)"
    if claim.relation == "multiplier":
        return "Holm's step-down (t of the logarithm, delta method)"
    if is_solved(row.metric):
        return "Holm's step-down (exact bounds)"
    if row.paired:
        return "Holm's step-down (t)"
    return "Holm's step-down (Welch's t)"
