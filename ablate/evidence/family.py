"""Families that share an error rate of 5 %: the effects of a design, the registered claims; the rest is exploratory."""

import numpy as np

from ablate.evidence.statistics import benjamini_hochberg, holm
from ablate.formatting import LOOKS, OPEN, counted
from ablate.results.naming import no_evidence
from ablate.results.records import ClaimEntry, Manifest

ALPHA = 0.05  # messages and docs also say 5 % and 95 % in words: change them together


def worded(verdict: str, family: bool) -> str:
    """A verdict, with "looks" in front for an exploratory row."""
    return verdict if family or verdict in OPEN else LOOKS + verdict


def described(manifest: Manifest) -> bool:
    """Whether effects have no verdicts because claims are registered, without a registered `effects: all`.  A claim
    withdrawn after its results counts: otherwise withdrawing it would turn the effects into a family."""
    everything = manifest.effects and manifest.effects.value and manifest.effects.registered
    return bool(registered(manifest)) and not everything


def families(manifest: Manifest, effects: int) -> str:
    """A sentence on which verdicts share which 5 %, if a study has claims as well as a family of effects."""
    if effects and described(manifest) and not no_evidence(manifest):
        late = "; effects: all was written after results" * bool(manifest.effects and manifest.effects.value)
        return "effects are descriptive: what is judged are the registered claims" + late
    before, after = (0, 0) if no_evidence(manifest) else (registered(manifest), exploratory(manifest))
    late = "claims written after results are exploratory"
    if before and effects:
        both = f"{counted(before, 'registered claim')} and {counted(effects, 'effect')}"
        return f"{both} are two families, each with its own 5 % of false verdicts" + f"; {late}" * bool(after)
    return f"{late}; the 5 % of false verdicts are those of the effects" if after and effects else ""


def registered(manifest: Manifest) -> int:
    """The number of registered claims in the family.  A claim that was edited or withdrawn after its results still
    counts: removing what failed would make the rest look better than it is."""
    seen = [entry for entry in manifest.withdrawn.values() if entry.seen is not False]
    return sum(any(_texts(entry)) for entry in [*manifest.claims.values(), *seen])


def exploratory(manifest: Manifest) -> int:
    """The number of versions of claims that were written after results, including edited and withdrawn ones."""
    entries = [*manifest.claims.values(), *manifest.withdrawn.values()]
    return sum(not known for entry in entries for known in _texts(entry))


def _texts(entry: ClaimEntry) -> list[bool]:
    """Whether each version of a claim was registered."""
    return [*(old.registered for old in entry.earlier), entry.registered]


def corrected(p: np.ndarray, family: np.ndarray, m: int, others: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Holm's p over a family of m, Benjamini & Hochberg's of the others (NaN elsewhere), and the level of each row.

    Rows that are not there, such as withdrawn claims, count as if they had p = 1.  Levels: 0.05/m, Bonferroni's, and
    0.05·R/k with R rejections for the k others (Benjamini & Yekutieli 2005).
    """
    first, second = np.full((2, len(p)), np.nan)

    def padded(known: np.ndarray, size: int) -> np.ndarray:
        return np.pad(known, (0, max(0, size - len(known))), constant_values=np.nan)

    first[family] = holm(padded(p[family], m), ALPHA)[: family.sum()]
    second[~family] = benjamini_hochberg(padded(p[~family], others))[: (~family).sum()]
    found = max(1, int((second <= ALPHA).sum()))
    return first, second, np.where(family, ALPHA / max(1, m), ALPHA * found / max(1, others))
