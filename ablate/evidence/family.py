"""What shares 5 % of errors: the effects of a design, and the registered claims; all else is exploratory."""

import numpy as np

from ablate.evidence.statistics import benjamini_hochberg, holm
from ablate.formatting import LOOKS, OPEN, counted
from ablate.results.naming import no_evidence
from ablate.results.records import ClaimEntry, Manifest

ALPHA = 0.05  # tests, intervals and docs say 5 % and 95 % in words, too: who changes this changes those


def worded(verdict: str, family: bool) -> str:
    """A verdict as it stands for a row of a family; *looks better* and the like for one that is exploratory."""
    return verdict if family or verdict in OPEN else LOOKS + verdict


def described(manifest: Manifest) -> bool:
    """Whether effects have no verdicts: registered claims are the question, unless `effects: all` was registered, too.

    A claim that was taken back after its results counts: else what was no question would become a family.
    """
    everything = manifest.effects and manifest.effects.value and manifest.effects.registered
    return bool(registered(manifest)) and not everything


def families(manifest: Manifest, effects: int) -> str:
    """What shares which 5 %, in a sentence, where a study has claims beside its family of so many effects."""
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
    """How many registered claims a study answers for.

    A claim that was edited or withdrawn once its results could be seen counts all the same: to take back what failed
    would make what is left look better than it is.
    """
    seen = [entry for entry in manifest.withdrawn.values() if entry.seen is not False]
    return sum(any(_texts(entry)) for entry in [*manifest.claims.values(), *seen])


def exploratory(manifest: Manifest) -> int:
    """How many texts of claims were written after results, with those that were edited or withdrawn since."""
    entries = [*manifest.claims.values(), *manifest.withdrawn.values()]
    return sum(not known for entry in entries for known in _texts(entry))


def _texts(entry: ClaimEntry) -> list[bool]:
    """Of each text that a claim has had, whether it was registered."""
    return [*(old.registered for old in entry.earlier), entry.registered]


def corrected(p: np.ndarray, family: np.ndarray, manifest: Manifest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Holm p of registered claims, Benjamini & Hochberg's of the others (NaN elsewhere), and the level of each.

    Claims that are there no more count as if they had p = 1.  Levels: 0.05/m, Bonferroni's, for the m registered ones;
    0.05·R/k with R rejections for the k others (Benjamini & Yekutieli 2005).
    """
    m, others = registered(manifest), exploratory(manifest)
    first, second = np.full(len(p), np.nan), np.full(len(p), np.nan)

    def padded(known: np.ndarray, size: int) -> np.ndarray:
        return np.pad(known, (0, max(0, size - len(known))), constant_values=np.nan)

    first[family] = holm(padded(p[family], m), ALPHA)[: family.sum()]
    second[~family] = benjamini_hochberg(padded(p[~family], others))[: (~family).sum()]
    found = max(1, int((second <= ALPHA).sum()))
    return first, second, np.where(family, ALPHA / max(1, m), ALPHA * found / max(1, others))
