"""How many verdicts the committed studies gave, and how many of them may be false."""

import dataclasses
from collections.abc import Iterator

import pandas

from ablate import evidence
from ablate.formatting import counted, listed
from ablate.runs import naming
from analysis.case import Case
from analysis.writing.tables import markdown_rows
from gallery.answers import is_decided

KINDS = {
    "effects": "effects, corrected within each study",
    "speed": "effects on speed, corrected by themselves",
    "claims": "registered claims, corrected within each study",
}
FAMILIES = """\
Each group of tests, the effects or the claims of one study, has at most {percent} % chance of any false verdict, \
however many tests it holds. So at most {alpha:g} × {groups} = {errors:.2g} false verdicts are to be expected among \
the {decided} of {counted_groups}; chance may make more, or fewer. What is undecided is no evidence of equality."""
# benchmarks/bench_tuning.py of commit 2842bfe5: one or two other rates that cost 1 SD, 5 to 20 seeds; the worst of
# families of 48.
TUNED = """\
Left out of that sum: {decided} of studies that were tuned, whose intervals ignore tuning noise. In simulations two \
equal variants are called different in 10 to 36 % of such studies, and of 48 changes up to 3 on average, or 9 where of \
rates within one standard error the smallest is taken."""
UNADJUSTED = """\
Not counted here: {decided} of studies that went on after an unplanned interim analysis: more than 5 % of them may be \
false."""
SCOPE = """\
These are errors by the chance of seeds alone, at the sizes, steps and data of each study. Whether a difference holds \
elsewhere, or comes from a learning rate that suits one side better, no such number says."""


@dataclasses.dataclass(frozen=True)
class Family:
    """The verdicts of one group of tests of a study.

    is_adjusted  whether they allow for all interim analyses
    is_tuned     whether a setting was tuned per variant, whose noise intervals ignore
    """

    kind: str
    verdicts: list[str]
    is_adjusted: bool
    is_tuned: bool

    @property
    def decided(self) -> int:
        """The number of conclusive verdicts."""
        return sum(map(is_decided, self.verdicts))


def all_verdicts(cases: list[Case]) -> str:
    """Criteria met, a table of all verdicts, and how many may be false; empty without verdicts."""
    families = [family for case in cases for family in families_of(case)]
    if not families:
        return ""
    parts = [criteria_met(cases), table_of(families), *expected_errors(families)]
    return "\n\n".join(part for part in parts if part)


def families_of(case: Case) -> Iterator[Family]:
    """The groups of tests of a study; none for a study that is no evidence."""
    manifest = case.study.manifest
    if naming.no_evidence(manifest):
        return
    tables = {"claims": case.claims}
    if not evidence.described(manifest):
        tables["effects"] = case.effects
        if "speed" in case.further:
            tables["speed"] = case.further["speed"]
    for kind, table in tables.items():
        family: pandas.DataFrame = table[table["family"].astype(bool)]
        if len(family):
            is_adjusted = not family["unadjusted"].any()
            yield Family(kind, list(family["verdict"]), is_adjusted, manifest.tuning is not None)


def criteria_met(cases: list[Case]) -> str:
    """How many studies met their registered criterion, and which; empty if none has one."""
    names: dict[str, list[str]] = {"met": [], "refuted": [], "open": []}
    for case in cases:
        criterion = evidence.replication(case.study.manifest, case.claims)
        if criterion and criterion.verdict in names:
            names[criterion.verdict].append(case.folder.name)
    total = sum(map(len, names.values()))
    if not total:
        return ""
    parts = [f"{len(studies)} {verdict} ({listed(studies)})" for verdict, studies in names.items() if studies]
    meaning = "Criteria are the studies' own readings of their papers; several studies share a paper."
    return f"**Of {total} criteria that studies registered: {'; '.join(parts)}.** {meaning}"


def table_of(families: list[Family]) -> str:
    """The counts of verdicts by kind, as Markdown."""
    rows = []
    for kind, title in KINDS.items():
        of_kind = [family for family in families if family.kind == kind]
        if of_kind:
            verdicts = [verdict for family in of_kind for verdict in family.verdicts]
            counts = [len(of_kind), len(verdicts), sum(family.decided for family in of_kind)]
            counts += [verdicts.count("undecided"), verdicts.count("withheld")]
            rows.append([title, *(f"{count:,}" for count in counts)])
    head = ["", "studies", "judged", "decided", "undecided", "no verdict"]
    return markdown_rows(pandas.DataFrame(rows, columns=head)).rstrip("\n")


def expected_errors(families: list[Family]) -> list[str]:
    """Sentences on the number of false verdicts to expect."""
    adjusted = [family for family in families if family.is_adjusted]
    untuned = [family for family in adjusted if not family.is_tuned]
    tuned = [family for family in adjusted if family.is_tuned]
    unadjusted = [family for family in families if not family.is_adjusted]
    alpha = evidence.ALPHA
    sentences = []
    if untuned:
        text = FAMILIES.format(
            percent=f"{100 * alpha:g}",
            alpha=alpha,
            groups=len(untuned),
            errors=alpha * len(untuned),
            decided=decided_verdicts(untuned),
            counted_groups=counted(len(untuned), "group"),
        )
        sentences.append(text)
    if tuned:
        sentences.append(TUNED.format(decided=decided_verdicts(tuned)))
    if unadjusted:
        sentences.append(UNADJUSTED.format(decided=decided_verdicts(unadjusted)))
    return [*sentences, SCOPE]


def decided_verdicts(families: list[Family]) -> str:
    """The number of decided verdicts in words: "55 decided verdicts"."""
    return counted(sum(family.decided for family in families), "decided verdict")
