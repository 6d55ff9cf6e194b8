"""How many verdicts all studies together hold, and how many false ones are to be expected among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pandas

from ablate import evidence, formatting
from ablate.results import naming
from analysis.case import Case
from analysis.writing.prose import prose
from analysis.writing.sheet import markdown, sheet_of

KINDS = {
    "effects": "effects, each study's a family",
    "speed": "effects on speed, a family of their own",
    "claims": "registered claims, each study's a family",
    "others": "effects outside the families, exploratory",
    "late": "claims written or edited after results, exploratory",
}
TUNED_ERRORS = "10 to 36 %"  # benchmarks/bench_tuning.py: one or two other rates that cost 1 SD, 5 to 20 scored seeds
IN_FAMILIES = ("effects", "speed", "claims")


class Judged(NamedTuple):
    """What is judged together: the kind of it, the verdicts, whether they allow for the looks that were taken."""

    kind: str
    verdicts: list[str]
    adjusted: bool
    tuned: bool  # at values that few tuning seeds chose, whose chance the intervals leave out
    assumed: int  # decided verdicts that take normal differences for granted


def judged(case: Case) -> list[Judged]:
    """The families of a study, and what is exploratory in it; nothing of a study that is no evidence."""
    if naming.no_evidence(case.study.manifest):
        return []
    effects, speed = case.effects, case.further.get("speed", case.effects.head(0))
    outside = pandas.concat([each[~each["family"].astype(bool)] for each in (effects, speed)])
    found = {name: table[table["family"].astype(bool)] for name, table in (("effects", effects), ("speed", speed))}
    registered = case.claims["family"].astype(bool)
    found = {} if evidence.described(case.study.manifest) else found | {"others": outside}
    found |= {"claims": case.claims[registered], "late": case.claims[~registered]}
    tuned = bool(evidence.given(case.study.manifest))
    return [_judged(kind, rows, tuned) for kind, rows in found.items() if len(rows)]


def _judged(kind: str, rows: pandas.DataFrame, tuned: bool) -> Judged:
    words = [formatting.leaning(word) for word in rows["verdict"]]
    assumed = int((rows["assumes"] != "").sum())
    return Judged(kind, words, not rows["unadjusted"].any(), tuned, assumed)


def is_decided(verdict: str) -> bool:
    """Whether a verdict says something, be it of the seeds that trained alone."""
    return formatting.leaning(verdict).partition(" among ")[0] in evidence.DECIDED


def decided(verdicts: Iterable[str]) -> int:
    """How many verdicts say something."""
    return sum(map(is_decided, verdicts))


def page(cases: Iterable[Case]) -> str:
    """The counts as a table, and what they mean in words; nothing where nothing was judged."""
    cases = list(cases)
    found = [each for case in cases for each in judged(case)]
    rows = [_row(kind, [each for each in found if each.kind == kind]) for kind in KINDS]
    told = [row for row in rows if row["judged"] != "0"]
    if not told:
        return ""
    table = markdown(sheet_of("verdicts", "", told, [])).rstrip("\n")
    return "\n\n".join(filter(None, [_overall(cases), table, *_words(found)]))


def _overall(cases: Iterable[Case]) -> str:
    """How many studies meet the criterion that they registered, and which; nothing where none has one."""
    found = {case.folder.name: evidence.replication(case.study.manifest, case.claims) for case in cases}
    met = {name: formatting.leaning(each.verdict) for name, each in found.items() if each and each.verdict != "none"}
    if not met:
        return ""
    named = {word: [name for name, own in met.items() if own == word] for word in ("met", "partly met", "not met")}
    told = [f"{len(names)} {word} ({formatting.listed(names)})" for word, names in named.items() if names]
    return f"**Replications, each by the criterion that its study registered: of {len(met)}: {'; '.join(told)}.**"


def _row(kind: str, found: list[Judged]) -> dict[str, str]:
    verdicts = [word for each in found for word in each.verdicts]
    counts = {"judged": len(verdicts), "decided": decided(verdicts)}
    counts |= {name: verdicts.count(name) for name in ("undecided", "withheld")}
    families = {"families": len(found)} if kind in IN_FAMILIES else {}
    return {"": KINDS[kind], "families": "–"} | {name: f"{count:,}" for name, count in (families | counts).items()}


def _words(found: list[Judged]) -> list[str]:
    """What is to be expected, and what that rests on."""
    families = [each for each in found if each.kind in IN_FAMILIES and each.adjusted]
    return prose(
        "verdicts.txt",
        ALPHA=evidence.ALPHA,
        TUNED_ERRORS=TUNED_ERRORS,
        decided=lambda those: sum(decided(each.verdicts) for each in those),
        kept=[each for each in families if not each.tuned],
        tuned=[each for each in families if each.tuned],
        unadjusted=[each for each in found if not each.adjusted],
        alone=[each for each in found if each.kind not in IN_FAMILIES and each.adjusted],
        assumed=sum(each.assumed for each in found),
    )
