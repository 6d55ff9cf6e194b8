"""The overall verdict of a study: whether the claims that it counts as replicated by are supported."""

from __future__ import annotations

from typing import NamedTuple

import pandas

from ablate.config.claim_relations import Criterion
from ablate.evidence.family import worded
from ablate.formatting import leaning, listed
from ablate.results.naming import no_evidence
from ablate.results.records import CriterionEntry, Manifest

CONTENT = ("contradicted", "undecided", "withheld")


class Replication(NamedTuple):
    """What became of a study's criterion: met, partly met or not met, why, and both in a sentence."""

    verdict: str
    why: str
    sentence: str


def replication(manifest: Manifest, claims: pandas.DataFrame) -> Replication | None:
    """The overall verdict of a study by its claims; None of a study without a criterion, or that is no evidence.

    With s of the claims supported and k needed: met where s ≥ k, not met where s = 0, else partly met.  A criterion, or
    a claim of it, that was written after results makes the verdict exploratory.
    """
    entry = manifest.replicated
    if entry is None or no_evidence(manifest):
        return None
    if entry.value is None:
        return Replication("none", "withdrawn", f"replicated: withdrawn {entry.written}{_earlier(entry)}.")
    rows = claims.set_index("name").loc[entry.value.of]
    found = {name: leaning(verdict).partition(" ") for name, verdict in rows["verdict"].items()}
    yes = [name for name, (word, _, _) in found.items() if word == "supported"]
    word = "met" if len(yes) >= entry.value.needed else "partly met" if yes else "not met"
    verdict = worded(word, entry.registered and bool(rows["family"].all()))
    why = _counted(entry.value, len(yes), found)
    known = "registered" if entry.registered else "post hoc" + ", edited after results" * bool(entry.earlier)
    grounds = f"{why[0].upper()}{why[1:]}" + f" ({entry.remark})" * bool(entry.remark) + _earlier(entry)
    return Replication(verdict, why, f"replicated ({known}): {verdict}. {grounds}.")


def _counted(criterion: Criterion, yes: int, found: dict[str, tuple[str, str, str]]) -> str:
    """How many claims are supported, which are not, and which only of some seeds."""
    if len(found) == 1:
        ((name, (word, _, whom)),) = found.items()
        return f"the claim that it rests on, {name}, is {word} {whom}".rstrip()
    rests = f"of the {len(found)} claims that it rests on"
    verbs = ["is" if count < 2 else "are" for count in (yes, criterion.needed)]
    enough = f", and {criterion.needed} {verbs[1]} enough" * (criterion.needed < len(found))
    return "; ".join([f"{rests} {yes or 'none'} {verbs[0]} supported{enough}", *_others(found)])


def _others(found: dict[str, tuple[str, str, str]]) -> list[str]:
    """Which claims are not supported, and which only of some seeds."""
    words = {word: [name for name, (own, _, _) in found.items() if own == word] for word in CONTENT}
    told = [f"{word}: {listed(names)}" for word, names in words.items() if names]
    some = dict[str, list[str]]()
    for name, (word, _, whom) in found.items():
        some.setdefault(whom, []).extend([name] * (word == "supported" and bool(whom)))
    return told + [f"{listed(names)} {whom} only" for whom, names in some.items() if names]


def _earlier(entry: CriterionEntry) -> str:
    """What it said before, with when that was written."""
    told = [
        f"; from {old.written or 'an unknown time'} on ({'registered' if old.registered else 'post hoc'}) it rested on "
        + (f"{old.value.needed} of {listed(old.value.of)}" if old.value else "nothing")
        for old in entry.earlier
    ]
    return "".join(told)
