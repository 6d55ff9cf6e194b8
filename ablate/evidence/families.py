"""The 5 % of false verdicts: which tests share it, and at how many looks at growing numbers of seeds.

The effects of a design are a family, the registered claims another; of the rest there are only estimates.

A study with `seeds=auto` tests at every look and stops once everything is decided.  The 5 % are split evenly over the
planned looks (Bonferroni), so that intervals are valid at whichever look a study stops.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas

from ablate.formatting import counted
from ablate.runs.naming import no_evidence
from ablate.runs.records import Manifest
from ablate.runs.study import Study

ALPHA = 0.05  # messages and docs also say 5 % and 95 % in words: change them together
DECIDED = ("better", "worse", "negligible", "equivalent", "supported", "contradicted")  # conclusive verdicts
LOOKS = (5, 8, 12, 20)  # seeds


# Families


def described(manifest: Manifest) -> bool:
    """Whether effects have no verdicts, because claims are registered, or on a ladder.  A claim withdrawn after its
    results counts: otherwise withdrawing it would turn the effects into a family."""
    return manifest.design == "ladder" or registered(manifest) > 0


def registered(manifest: Manifest) -> int:
    """The number of registered claims in the family.  A claim that was edited or withdrawn after its results still
    counts: removing what failed would make the rest look better than it is."""
    count = 0
    withdrawn_after_results = [entry for entry in manifest.withdrawn.values() if entry.seen is not False]
    for entry in [*manifest.claims.values(), *withdrawn_after_results]:
        if entry.registered or any(version.registered for version in entry.earlier):
            count += 1
    return count


def families(manifest: Manifest, effects: int) -> str:
    """A sentence on which effects are not tested, if a study has claims as well as a family of effects."""
    if not effects or no_evidence(manifest) or not described(manifest):
        return ""
    if any(entry.registered for entry in manifest.claims.values()):
        return "only the registered claims are tested"
    if registered(manifest):
        return "nothing is tested: its registered claims were edited or withdrawn after results"
    return "these effects are not tested"


def bonferroni(p: Any, m: int) -> Any:
    """min(1, m·p) for a family of m tests: at most α exactly where the simultaneous interval excludes zero."""
    return np.minimum(m * p, 1.0)


def holm(p: np.ndarray, m: int) -> np.ndarray:
    """Holm's step-down p for a family of m tests, max over ranks j ≤ i of (m − j + 1)·p₍ⱼ₎, at most 1 (Holm 1979).

    Of the m tests, those that are not in `p` and those with NaN count as if they had p = 1; NaN stays NaN.
    """
    order = np.argsort(p)  # NaN last
    factors = m - np.arange(len(p))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


# Looks


def looks_until(seeds_max: int) -> list[int]:
    """The numbers of seeds at which a study of at most `seeds_max` seeds looks."""
    return [n for n in LOOKS if n < seeds_max] + [seeds_max]


def planned_looks(manifest: Manifest) -> int:
    """The number of looks among which the 5 % are split."""
    return len(manifest.sequential.looks) if manifest.sequential else 1


def undecided(table: pandas.DataFrame) -> pandas.DataFrame:
    """The rows of effects, or of claims, that more seeds may decide: those of the family without a verdict."""
    return table[table["family"].astype(bool) & table["waits"].astype(bool)]


def sequential_state(study: Study, effects: pandas.DataFrame, claims: pandas.DataFrame | None = None) -> str:
    """The state of a study with `seeds=auto` in one line, given its effects and claims; "" for other studies."""
    sequence = study.manifest.sequential
    if not sequence:
        return ""
    noun = "effect"
    table = effects
    if claims is not None and claims["family"].any():
        noun = "claim"
        table = claims
    waiting = len(undecided(table))
    unfinished = int(study.runs["status"].isin(["missing", "failed"]).sum())
    seeds = counted(len(study.manifest.seeds), "seed")
    if unfinished:
        state = f"the analysis at {seeds} lacks {counted(unfinished, 'run')}"
    elif waiting:
        state = f"{counted(waiting, noun)} undecided at {seeds}"
    else:
        state = f"nothing left to decide at {seeds}"
    return f"seeds=auto: {state}; intervals allow for interim analyses at {in_words(sequence.looks)} seeds"


def unadjusted(manifest: Manifest) -> str:
    """A sentence saying that intervals are too narrow because of looks other than those of `seeds=auto`; else ""."""
    seeds = set(manifest.seeds)
    sequence = manifest.sequential.looks if manifest.sequential else []
    # A planned look has the plan of this sequence, and the first seeds up to one of its numbers.
    planned_seeds = [list(range(n)) for n in sequence]
    others = [look for look in manifest.looks if look.planned != sequence or look.seeds not in planned_seeds]
    numbers = {len(look.seeds) for look in others if set() < set(look.seeds) < seeds}
    for look in others:
        # The results of all seeds, under another plan, decided whether seeds would be added.
        if look.study is None and set(look.seeds) == seeds and (sequence or look.planned):
            numbers.add(len(seeds))
    if not numbers:
        return ""
    studies = sorted({look.study for look in others if look.study})
    where = f" (in {', '.join(studies)})" if studies and all(look.study for look in others) else ""
    looks = f"interim analyses at {in_words(numbers)} seeds{where}"
    return f"unadjusted: intervals do not allow for {looks}, so they miss the truth more often than they say"


def in_words(numbers: Iterable[int]) -> str:
    """Numbers in rising order: "5, 8, 12"."""
    return ", ".join(map(str, sorted(numbers)))
