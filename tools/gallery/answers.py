"""The answer of a study in one line, and the counts of verdicts."""

from collections.abc import Iterable

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case

FEW = 3  # effects up to which one of them is the answer
NAMED = 8  # effects that an answer lists
ORDER = ("supported", "contradicted", "better", "worse", "equivalent", "negligible", "undecided", "withheld")


def answer_of(case: Case) -> str:
    """The answer of a study: the verdict by its criterion, else those on its claims, else those on its effects."""
    manifest = case.study.manifest
    criterion = evidence.replication(manifest, case.claims)
    if criterion and criterion.verdict != "none":
        text = f"{criterion.verdict}: {criterion.why}"
    elif len(case.claims):
        text = answer_of_claims(case)
    else:
        text = answer_of_effects(case)
    if manifest.tuning and len(case.effects):
        text += f"; {naming.key_name(manifest, manifest.tuning.key)} tuned per variant"
    return f"{text}."


def answer_of_claims(case: Case) -> str:
    """The first decided claim, or the first, with its verdict, and the counts of all verdicts."""
    rows = list(named_rows(case.claims))
    decided = [row for row in rows if is_decided(row.verdict)]
    first = decided[0] if decided else rows[0]
    text = f"{first.name}, {first.verdict}: {first.says}"
    if len(rows) == 1:
        return text
    return f"{text} (of {len(rows)} claims {count_verdicts(case.claims['verdict'])})"


def answer_of_effects(case: Case) -> str:
    """The one effect, or the decided one with the smallest p, and the counts of verdicts; of many effects the better
    ones."""
    manifest = case.study.manifest
    effects = evidence.headline(case.effects).sort_values("p", kind="stable")
    if effects.empty:
        return "nothing is compared"
    if evidence.described(manifest):
        return f"{formatting.counted(len(effects), 'effect')} without verdict: this study tests only its claims"
    counts = count_verdicts(effects["verdict"])
    if len(effects) > FEW:
        better = list(effects.loc[effects["verdict"] == "better", "label"])
        if not better:
            return counts
        names = "; ".join(better[:NAMED])
        if len(better) > NAMED:
            names += f" and {len(better) - NAMED} more"
        return f"{counts}; better: {names}"
    decided = effects[effects["verdict"].map(is_decided)]
    first = next(named_rows(decided if len(decided) else effects))
    text = evidence.finding(manifest, first)
    return text if len(effects) == 1 else f"{text} (of {len(effects)} effects {counts})"


def count_verdicts(verdicts: Iterable[str]) -> str:
    """The counts of verdicts: "4 supported and 1 contradicted"."""
    words = list(verdicts)
    names = [name for name in dict.fromkeys([*ORDER, *words]) if name in words]
    return formatting.listed(f"{words.count(name)} {name}" for name in names)


def is_decided(verdict: str) -> bool:
    """Whether a verdict is conclusive."""
    return verdict in evidence.DECIDED
