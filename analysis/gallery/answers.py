"""What a figure answers, in one line: from the verdicts on claims, or on effects where nothing was claimed."""

from __future__ import annotations

from collections.abc import Iterable

from ablate import evidence, formatting
from analysis.case import Case
from analysis.gallery.verdicts import is_decided
from analysis.writing.sentences import finding

MANY = 3  # effects of which a single one can be the answer
NAMED = 8
ORDER = ("supported", "contradicted", "better", "worse", "equivalent", "negligible", "undecided", "withheld")


def answer(case: Case, figure: str = "") -> str:
    """The answer of a figure of a study; of one that is neither of claims nor of effects, that of the study."""
    found = (of_claims(case) if figure != "effects" else "") or of_effects(case)
    given = evidence.given(case.study.manifest)
    return f"{found.removesuffix('.')}, {given}." if given and not case.effects.empty else found


def of_claims(case: Case) -> str:
    """The first decided claim, else the first, with its verdict, how all stand, and which fail; "" without claims."""
    rows = list(case.claims.itertuples(index=False))
    if not rows:
        return ""
    first = next((row for row in rows if is_decided(row.verdict)), rows[0])
    failed = [row.name for row in rows if row.verdict == "contradicted" and row is not first]
    named = f"; contradicted: {formatting.listed(failed)}" * bool(failed)
    return f"{first.name}, {first.verdict}: {first.says}{_standing('claims', [row.verdict for row in rows])}{named}."


def of_effects(case: Case) -> str:
    """The decided effect with the smallest p, else any, and how all of them stand; of many, which are better."""
    shown = evidence.headline(case.effects)
    known = shown.sort_values("p", kind="stable")
    rows = [*known[known["verdict"].map(is_decided)].itertuples(), *known.itertuples()]
    if not rows:
        return "nothing is compared."
    if evidence.described(case.study.manifest):
        return f"{formatting.counted(len(rows), 'effect')}, descriptive: judged are the claims."
    if len(shown) <= MANY:
        return f"{finding(case.study.manifest, rows[0])}{_standing('effects', shown['verdict'])}."
    better = shown[shown["verdict"].map(formatting.leaning) == "better"].sort_values("p", kind="stable")["label"]
    more = f" and {len(better) - NAMED} more" * (len(better) > NAMED)
    named = f"; better: {'; '.join(better[:NAMED])}{more}" * bool(len(better))
    return f"{_standing('effects', shown['verdict']).strip(' ()')}{named}."


def _standing(noun: str, verdicts: Iterable[str]) -> str:
    """How many there are of each verdict, in parentheses; nothing of a single one."""
    words = [formatting.leaning(word) for word in verdicts]
    counts = {word: words.count(word) for word in sorted(set(words), key=lambda word: (*ORDER, *words).index(word))}
    told = formatting.listed(f"{count} {word}" for word, count in counts.items())
    return f" (of {len(words)} {noun} {told})" * (len(words) > 1)
