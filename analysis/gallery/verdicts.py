"""How many verdicts all studies together hold, and how many false ones are to be expected among them."""

from __future__ import annotations

from collections.abc import Iterator

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


def is_decided(verdict: str) -> bool:
    """Whether a verdict says something, be it of the seeds that trained alone."""
    return formatting.leaning(verdict).partition(" among ")[0] in evidence.DECIDED


def page(cases: list[Case]) -> str:
    """The counts as a table, and what they mean in words; nothing where nothing was judged."""
    found = [rows for case in cases for rows in _judged(case)]
    rows = [_counts(kind, [each for each in found if each["kind"].iloc[0] == kind]) for kind in KINDS]
    rows = [row for row in rows if row["judged"] != "0"]
    if not rows:
        return ""
    table = markdown(sheet_of("verdicts", "", rows, [])).rstrip("\n")
    return "\n\n".join(filter(None, [_overall(cases), table, *_words(found)]))


def _judged(case: Case) -> Iterator[pandas.DataFrame]:
    """The verdicts of each family of a study, and of what is exploratory in it; none of a study that is no evidence.

    adjusted: they allow for the looks that were taken; tuned: at values that few tuning seeds chose, whose chance the
    intervals leave out; assumes: they take normal differences for granted.
    """
    manifest, effects, claims = case.study.manifest, case.effects, case.claims
    if naming.no_evidence(manifest):
        return
    parts = {"claims": claims[claims["family"].astype(bool)], "late": claims[~claims["family"].astype(bool)]}
    if not evidence.described(manifest):
        tables = {"effects": effects, "speed": case.further.get("speed", effects.head(0))}
        parts |= {name: table[table["family"].astype(bool)] for name, table in tables.items()}
        parts["others"] = pandas.concat([table[~table["family"].astype(bool)] for table in tables.values()])
    for kind, rows in parts.items():
        verdict = rows["verdict"].map(formatting.leaning)
        made = pandas.DataFrame(
            {"verdict": verdict, "decided": verdict.map(is_decided), "assumes": rows["assumes"] != ""}
        )
        if len(made):
            adjusted, tuned = not rows["unadjusted"].any(), bool(evidence.given(manifest))
            yield made.assign(kind=kind, adjusted=adjusted, tuned=tuned)


def _overall(cases: list[Case]) -> str:
    """How many studies meet the criterion that they registered, and which; nothing where none has one."""
    found = {case.folder.name: evidence.replication(case.study.manifest, case.claims) for case in cases}
    met = {name: formatting.leaning(each.verdict) for name, each in found.items() if each and each.verdict != "none"}
    if not met:
        return ""
    named = {word: [name for name, own in met.items() if own == word] for word in ("met", "partly met", "not met")}
    parts = [f"{len(names)} {word} ({formatting.listed(names)})" for word, names in named.items() if names]
    return f"**Replications, each by the criterion that its study registered: of {len(met)}: {'; '.join(parts)}.**"


def _counts(kind: str, found: list[pandas.DataFrame]) -> dict[str, str]:
    verdicts = [word for rows in found for word in rows["verdict"]]
    counts = {"families": len(found)} if kind in IN_FAMILIES else {}
    counts |= {"judged": len(verdicts), "decided": _decided(found)}
    counts |= {name: verdicts.count(name) for name in ("undecided", "withheld")}
    return {"": KINDS[kind], "families": "–"} | {name: f"{count:,}" for name, count in counts.items()}


def _decided(found: list[pandas.DataFrame]) -> int:
    return sum(int(rows["decided"].sum()) for rows in found)


def _words(found: list[pandas.DataFrame]) -> list[str]:
    """What is to be expected, and what that rests on."""
    first = [(rows, rows.iloc[0]) for rows in found]
    families = [(rows, row) for rows, row in first if row.kind in IN_FAMILIES and row.adjusted]
    return prose(
        "verdicts.txt",
        ALPHA=evidence.ALPHA,
        TUNED_ERRORS=TUNED_ERRORS,
        decided=_decided,
        untuned=[rows for rows, row in families if not row.tuned],
        tuned=[rows for rows, row in families if row.tuned],
        unadjusted=[rows for rows, row in first if not row.adjusted],
        exploratory=[rows for rows, row in first if row.kind not in IN_FAMILIES and row.adjusted],
        assumed=sum(int(rows["assumes"].sum()) for rows in found),
    )
