"""The pages of the committed studies (findings, gallery, the block in the README), and counts of all verdicts."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.prose import prose
from analysis.writing import tables
from analysis.writing.sections import counts
from analysis.writing.sentences import finding
from analysis.writing.sheet import Sheet, inline, markdown, paragraph
from gallery.studies import BY_HAND, FIGURES, RESULTS, StudyFile, Trained, lacking

COMMAND = "make figures"
LOST_NOTE = (
    "In the tables of effects *runs without result* counts those of both sides that diverged, failed or are missing."
)
# The studies in the README, each with the figure that reproduces the paper's.
FRONT = ("alibi_extrapolation",)
WRITTEN = "<!-- written by `make figures` from experiments/results/: nothing here is edited by hand -->"
GALLERY = f"""\
# Gallery

Every figure of the studies in [experiments/](../experiments), drawn from their committed tables by `{COMMAND}`.
Points and bars are means over seeds, intervals hold simultaneously; what each study found, in words:
[findings](../experiments/FINDINGS.md)."""
MANY = 3  # effects up to which one of them is the answer
NAMED = 8  # effects that an answer lists
KINDS = {
    "effects": "effects, corrected within each study",
    "speed": "effects on speed, corrected by themselves",
    "claims": "registered claims, corrected within each study",
}
# From benchmarks/bench_tuning.py: one or two other rates that cost 1 SD, 5 to 20 seeds; the worst of families of 48.
TUNED_ERRORS = ("10 to 36 %", 3, 9)


def findings(files: list[StudyFile]) -> str:
    """The counts of all verdicts with their expected errors, then a section per study."""
    total = verdict_counts([each.case for file in files for each in file.trained])
    found = ["## All verdicts, and how many of them may be false", f"{total}\n\n{LOST_NOTE}"] if total else []
    for file in files:
        for each in file.trained:
            found += _findings_of(file, each)
        if not file.trained:
            found += [f"## {inline(file.name)}", paragraph(file.question)]
            found.append(f"- **Published**: {inline(file.published)}" if file.published else "")
        if file.missing:
            found.append(f"Not run yet: {formatting.listed(f'`{each}`' for each in file.missing)}.")
    return "\n\n".join(filter(None, found))


def _findings_of(file: StudyFile, trained: Trained) -> Iterator[str]:
    manifest, case = trained.manifest, trained.case
    yield f"## {inline(trained.name)}"
    yield paragraph(manifest.question or file.question)
    every = [cell.id for cell in manifest.cells]
    where = naming.scope(manifest, every, every)
    facts = {"Published": manifest.published or file.published, "Scope": where, "Runs": _cost(case)}
    facts |= {"Notes": "; ".join(tables.remarks(case.study)), "Not tried here": lacking(manifest.factors)}
    written = (f"[{each.name}]({RESULTS.name}/{trained.name}/{FIGURES}/{each.name}.md)" for each in trained.sheets)
    links = [f"- **Command**: `{trained.command}`", f"- **Tables**: {formatting.listed(written)}"]
    yield "\n".join([*(f"- **{name}**: {inline(text)}" for name, text in facts.items() if text), *links])
    if len(case.claims):
        lines = evidence.claim_lines(manifest, case.claims)
        yield "\n".join(["**Claims**", "", *(f"- {paragraph(line.strip())}" for line in lines)])
    yield _decided_effects(case)
    missing = f"{RESULTS.name}/{trained.name}/{BY_HAND}"
    yield trained.words or f"(In words: nothing yet; they belong into `{missing}`.)"


def _cost(case: Case) -> str:
    """The number of runs by status, and their cost: "80 runs: 80 done; 1,234 CPU-seconds"."""
    runs = case.study.runs
    column, unit = "seconds", "seconds, most of them on cores that others used, too"
    if runs["device"].astype(str).str.startswith("cuda").any():
        unit = "GPU-seconds"
    elif runs.loc[runs["status"] == "done", "cpu_seconds"].notna().all():
        column, unit = "cpu_seconds", "CPU-seconds"
    studies = {"": case.study, **case.study.beside}
    took = {role: each.runs[column].astype(float).sum() for role, each in studies.items()}
    parts = [f"{seconds:,.0f} of {role}" for role, seconds in took.items() if role and seconds]
    parts += ["those of tuning, which has no tables here, left out"] * (case.study.manifest.tuning is not None)
    total, more = math.fsum(took.values()), f" ({'; '.join(parts)})" if parts else ""
    return f"{counts(case.study)}" + f"; {total:,.0f} {unit}{more}" * bool(total)


def _decided_effects(case: Case) -> str:
    """The decided effects as a table, with the number of all effects."""
    every = evidence.headline(case.effects)
    if evidence.described(case.study.manifest):
        return f"**Effects: {len(every)}, estimates only; the claims are tested**"
    decided, withheld = every["verdict"].map(is_decided), every["verdict"].eq("withheld")
    shown = every[decided | withheld]
    parts = [
        f"{len(every)} judged, {decided.sum()} decided",
        f"{withheld.sum()} without a verdict" * bool(withheld.any()),
    ]
    heading = f"Effects: {', '.join(filter(None, parts))}"
    standing = evidence.sequential_state(case.study, case.effects, case.claims)
    sheet = tables.effects_sheet(case._replace(effects=shown))
    rows = markdown(sheet._replace(notes=[])).rstrip("\n") if len(shown) else ""
    return "\n\n".join(filter(None, [f"**{inline('; '.join(filter(None, [heading, standing])))}**", rows]))


def gallery(files: list[StudyFile]) -> str:
    """Every figure with its answer, caption and command."""
    shown = [part for file in files for each in file.trained for part in _gallery_of(file, each)]
    missing = [inline(file.name) for file in files if not file.trained]
    more = [f"Not run yet: {', '.join(missing)}."] if missing else []
    return "\n\n".join([WRITTEN, GALLERY, *filter(None, shown), *more]) + "\n"


def _gallery_of(file: StudyFile, trained: Trained) -> Iterator[str]:
    manifest = trained.manifest
    yield f"## {inline(trained.name)}"
    yield paragraph(manifest.question or file.question)
    overall = evidence.replication(manifest, trained.case.claims)
    yield paragraph(overall.sentence) if overall else ""
    for name, table in trained.plotted.items():
        yield paragraph(answer(trained.case, name))
        yield _picture(trained, name, "../")
        yield "  \n".join(paragraph(line) for line in table.attrs["caption"] if line)
    lacks = lacking(manifest.factors)
    yield f"Not tried here: {paragraph(lacks)}." if lacks else ""
    link = f"../experiments/FINDINGS.md#{trained.name}"
    yield f"Trained by `{trained.command}`, drawn by `{COMMAND}`; [what it found]({link})."


def front(files: Iterable[StudyFile]) -> str:
    """The block in the README: the figures of `FRONT`, each with its question and overall verdict (or answer)."""
    trained = {each.name: (file, each) for file in files for each in file.trained}
    parts = []
    for file, each in [trained[study] for study in FRONT if study in trained]:
        first, question = next(iter(each.plotted)), each.manifest.question or file.question
        parts += [f"**{paragraph(question)}**"] * bool(question)
        overall = evidence.replication(each.manifest, each.case.claims)
        short = overall and overall.verdict != "met"  # then the first claim says more, with the counts
        text = f"Replicated: {overall.verdict}; {overall.why}." if short else answer(each.case, first)
        parts += [_picture(each, first, ""), paragraph(text)]
    every = "All studies: [gallery](docs/gallery.md); in words: "
    return "\n\n".join([*parts, f"{every}[findings](experiments/FINDINGS.md)."])


def _picture(trained: Trained, name: str, up: str) -> str:
    study = trained.name
    return f"![{inline(f'{study}: {name}')}]({up}{RESULTS.as_posix()}/{study}/{FIGURES}/{name}.png)"


def answer(case: Case, figure: str) -> str:
    """The answer of a figure in one line: the verdicts on claims or, without claims, on effects."""
    found = (_of_claims(case) if figure != "effects" else "") or _of_effects(case)
    tuning = case.study.manifest.tuning
    if tuning is None or case.effects.empty:
        return found
    return f"{found.removesuffix('.')}; {naming.key_name(case.study.manifest, tuning.key)} tuned per variant."


def _of_claims(case: Case) -> str:
    """The first decided claim (or the first) with its verdict, the counts of verdicts, and contradicted claims."""
    rows = list(named_rows(case.claims))
    if not rows:
        return ""
    first = next((row for row in rows if is_decided(row.verdict)), rows[0])
    failed = [row.name for row in rows if row.verdict == "contradicted" and row is not first]
    named = f"; contradicted: {formatting.listed(failed)}" * bool(failed)
    noted, counted = f"; {first.note}" * bool(first.note), _verdict_counts("claims", case.claims["verdict"])
    return f"{first.name}, {first.verdict}: {first.says}{noted}{counted}{named}."


def _of_effects(case: Case) -> str:
    """The decided effect with the smallest p (or any effect) and the counts of verdicts; if many, the better ones."""
    shown = evidence.headline(case.effects)
    known = shown.sort_values("p", kind="stable")
    rows = [*named_rows(known[known["verdict"].map(is_decided)]), *named_rows(known)]
    if not rows:
        return "nothing is compared."
    if evidence.described(case.study.manifest):
        return f"{formatting.counted(len(rows), 'effect')}, estimates only: the registered claims are tested."
    if len(shown) <= MANY:
        return f"{finding(case.study.manifest, rows[0])}{_verdict_counts('effects', shown['verdict'])}."
    better = known[known["verdict"] == "better"]["label"]
    more = f" and {len(better) - NAMED} more" * (len(better) > NAMED)
    named = f"; better: {'; '.join(better[:NAMED])}{more}" * bool(len(better))
    return f"{_verdict_counts('effects', shown['verdict']).strip(' ()')}{named}."


def _verdict_counts(noun: str, found: Iterable[str]) -> str:
    """The counts of verdicts in parentheses; "" for a single one."""
    words = list(found)
    order = (
        "supported",
        "contradicted",
        "better",
        "worse",
        "equivalent",
        "negligible",
        "undecided",
        "withheld",
        *words,
    )
    counts = {word: words.count(word) for word in sorted(set(words), key=order.index)}
    text = formatting.listed(f"{count} {word}" for word, count in counts.items())
    return f" (of {len(words)} {noun} {text})" * (len(words) > 1)


def is_decided(verdict: str) -> bool:
    """Whether a verdict is conclusive."""
    return verdict in evidence.DECIDED


def verdict_counts(cases: list[Case]) -> str:
    """The counts of verdicts as a table, with an explanation; "" without verdicts."""
    found = [rows for case in cases for rows in _verdict_families(case)]
    rows = [_counts(kind, [each for each in found if each["kind"].iloc[0] == kind]) for kind in KINDS]
    rows = [row for row in rows if row["judged"] != "0"]
    if not rows:
        return ""
    table = markdown(Sheet("verdicts", "", list(rows[0]), [list(row.values()) for row in rows], [])).rstrip("\n")
    return "\n\n".join(filter(None, [_overall(cases), table, *_words(found)]))


def _verdict_families(case: Case) -> Iterator[pandas.DataFrame]:
    """The verdicts of each group of tests of a study; none for a study that is no evidence.

    adjusted: they allow for all interim analyses; tuned: intervals ignore that few tuning seeds chose the values.
    """
    manifest, effects, claims = case.study.manifest, case.effects, case.claims
    if naming.no_evidence(manifest):
        return
    parts = {"claims": claims[claims["family"].astype(bool)]}
    if not evidence.described(manifest):
        tables = {"effects": effects, "speed": case.further.get("speed", effects.head(0))}
        parts |= {name: table[table["family"].astype(bool)] for name, table in tables.items()}
    for kind, rows in parts.items():
        verdict = rows["verdict"]
        made = pandas.DataFrame({"verdict": verdict, "decided": verdict.map(is_decided)})
        if len(made):
            adjusted = not rows["unadjusted"].any()
            tuned = manifest.tuning is not None
            yield made.assign(kind=kind, adjusted=adjusted, tuned=tuned)


def _overall(cases: list[Case]) -> str:
    """How many studies meet their registered criterion, and which; "" if none has a criterion."""
    found = {case.folder.name: evidence.replication(case.study.manifest, case.claims) for case in cases}
    met = {name: each.verdict for name, each in found.items() if each and each.verdict != "none"}
    if not met:
        return ""
    named = {word: [name for name, own in met.items() if own == word] for word in ("met", "refuted", "open")}
    parts = [f"{len(names)} {word} ({formatting.listed(names)})" for word, names in named.items() if names]
    meant = "Criteria are the studies' own readings of their papers; several studies share a paper."
    return f"**Of {len(met)} criteria that studies registered: {'; '.join(parts)}.** {meant}"


def _counts(kind: str, found: list[pandas.DataFrame]) -> dict[str, str]:
    verdicts = [word for rows in found for word in rows["verdict"]]
    counts = {"studies": len(found), "judged": len(verdicts), "decided": _decided(found)}
    counts |= {"undecided": verdicts.count("undecided"), "no verdict": verdicts.count("withheld")}
    return {"": KINDS[kind]} | {name: f"{count:,}" for name, count in counts.items()}


def _decided(found: list[pandas.DataFrame]) -> int:
    return sum(int(rows["decided"].sum()) for rows in found)


def _words(found: list[pandas.DataFrame]) -> list[str]:
    """Sentences on the number of false verdicts to expect."""
    first = [(rows, rows.iloc[0]) for rows in found]
    families = [(rows, row) for rows, row in first if row.adjusted]
    return prose(
        Path(__file__).with_name("verdicts.txt"),
        ALPHA=evidence.ALPHA,
        TUNED_ERRORS=TUNED_ERRORS,
        decided=_decided,
        untuned=[rows for rows, row in families if not row.tuned],
        tuned=[rows for rows, row in families if row.tuned],
        unadjusted=[rows for rows, row in first if not row.adjusted],
    )
