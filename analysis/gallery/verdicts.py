"""How many verdicts all studies together hold, and how many false ones are to be expected among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pandas

from ablate import evidence, format
from ablate.results import naming
from analysis.case import Case
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
    words = [format.leaning(word) for word in rows["verdict"]]
    assumed = int((rows["assumes"] != "").sum())
    return Judged(kind, words, not rows["unadjusted"].any(), tuned, assumed)


def is_decided(verdict: str) -> bool:
    """Whether a verdict says something, be it of the seeds that trained alone."""
    return format.leaning(verdict).partition(" among ")[0] in evidence.DECIDED


def decided(verdicts: Iterable[str]) -> int:
    """How many verdicts say something."""
    return sum(map(is_decided, verdicts))


def _said(found: Iterable[Judged]) -> str:
    return format.counted(sum(decided(each.verdicts) for each in found), "decided verdict")


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
    met = {name: format.leaning(each.verdict) for name, each in found.items() if each and each.verdict != "none"}
    if not met:
        return ""
    named = {word: [name for name, own in met.items() if own == word] for word in ("met", "partly met", "not met")}
    told = [f"{len(names)} {word} ({format.listed(names)})" for word, names in named.items() if names]
    return f"**Replications, each by the criterion that its study registered: of {len(met)}: {'; '.join(told)}.**"


def _row(kind: str, found: list[Judged]) -> dict[str, str]:
    verdicts = [word for each in found for word in each.verdicts]
    counts = {"judged": len(verdicts), "decided": decided(verdicts)}
    counts |= {name: verdicts.count(name) for name in ("undecided", "withheld")}
    families = {"families": len(found)} if kind in IN_FAMILIES else {}
    return {"": KINDS[kind], "families": "–"} | {name: f"{count:,}" for name, count in (families | counts).items()}


def _words(found: list[Judged]) -> list[str]:
    """What is to be expected, and what that rests on."""
    families = [each for each in found if each.kind in IN_FAMILIES]
    kept, open_ = [each for each in families if each.adjusted], [each for each in found if not each.adjusted]
    tuned, kept = [each for each in kept if each.tuned], [each for each in kept if not each.tuned]
    alone = [each for each in found if each.kind not in IN_FAMILIES and each.adjusted]
    said = [_expected(kept) if kept else "", _tuned(tuned) if tuned else "", _unadjusted(open_) if open_ else ""]
    return [*said, _exploratory(alone), _grounds(found)]


def _expected(kept: list[Judged]) -> str:
    level = evidence.ALPHA
    most, families = f"{level * len(kept):.2g}", "family" if len(kept) == 1 else "families"
    return (
        f"In a family the chance of any false verdict is at most {format.rough(level)}, however many it holds: each of "
        f"its m intervals misses the truth with a chance of at most {level:g}/m, and a verdict is false only where its "
        f"interval misses. So {level:g} × {len(kept)} = {most} false ones at most are to be expected among the "
        f"{_said(kept)} of {len(kept)} {families}: an expectation, not a bound; "
        f"chance may make more of them, or fewer. What is undecided or withheld says nothing, and cannot be false; it "
        f"is no evidence of equality either."
    )


def _tuned(tuned: list[Judged]) -> str:
    return (
        f"Left out of that sum: {_said(tuned)} of studies that were tuned. Their intervals "
        f"cover scored seeds, and not the few tuning seeds that chose each side's value: by simulation, equal variants "
        f"are called different in {TUNED_ERRORS} of such studies."
    )


def _unadjusted(open_: list[Judged]) -> str:
    return (
        f"Not counted here: {_said(open_)} of studies that went on after an unplanned look "
        f"at their results: more of them may be false than 5 %."
    )


def _exploratory(alone: list[Judged]) -> str:
    said = sum(decided(each.verdicts) for each in alone)
    if not said:
        return ""
    return (
        f"Of what only looks so (exploratory), 5 % at most are false on average (false discovery and false coverage "
        f"rate, by study): about {evidence.ALPHA * said:.2g} of {said}."
    )


def _grounds(found: list[Judged]) -> str:
    assumed = sum(each.assumed for each in found)
    normal = (
        f" {format.counted(assumed, 'verdict')} hold{'s' * (assumed == 1)} only if differences over seeds are roughly "
        f"normal, which so few seeds cannot show, or about which the check raised a doubt."
    ) * bool(assumed)
    return (
        f"These are errors by the chance of seeds alone, at the sizes, steps and data that each study names.{normal} "
        f"Whether a difference holds elsewhere, or comes from a learning rate that suits one side better, is no matter "
        f"of chance, and no such number covers it."
    )
