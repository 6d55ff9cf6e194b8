"""The pages of the committed studies: `experiments/FINDINGS.md`, `docs/gallery.md`, and the block of the README."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ablate import evidence, formatting
from analysis.case import Case
from analysis.gallery import verdicts
from analysis.gallery.studies import BY_HAND, FIGURES, RESULTS, StudyFile, Trained, lacking
from analysis.gallery.verdicts import is_decided
from analysis.writing import tables
from analysis.writing.sections import counts
from analysis.writing.sentences import finding, where
from analysis.writing.sheet import inline, markdown, paragraph

COMMAND = "ablate analyse gallery"
LOST = "In the tables of effects `lost` counts the runs of both sides that gave no number: diverged, failed or missing."
# The studies with the most telling figures, which the README shows: of each the one that mirrors the paper's.
FRONT = ("xiong_warmup", "alibi_extrapolation")
WRITTEN = "<!-- written by `make figures` from experiments/results/: nothing here is edited by hand -->"
GALLERY = f"""\
# Gallery

Every figure of the studies in [experiments/](../experiments), drawn from their committed tables by `{COMMAND}`
(`make figures`). Points and bars are means over seeds, intervals hold simultaneously; what each study found, in words:
[findings](../experiments/FINDINGS.md)."""
MANY = 3  # effects of which a single one can be the answer
NAMED = 8  # effects that an answer names


def findings(files: list[StudyFile]) -> str:
    """The verdicts of all studies and what they are worth, then a section per study."""
    total = verdicts.page([each.case for file in files for each in file.trained])
    found = ["## All verdicts, and the false ones among them", f"{total}\n\n{LOST}"] if total else []
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
    facts = {"Published": manifest.published or file.published, "Scope": where(manifest, None), "Runs": _cost(case)}
    facts |= {"Notes": "; ".join(tables.remarks(case.study)), "No cell of": lacking(manifest.factors)}
    written = (f"[{each.name}]({RESULTS.name}/{trained.name}/{FIGURES}/{each.name}.md)" for each in trained.sheets)
    links = [f"- **Command**: `{trained.command}`", f"- **Tables**: {formatting.listed(written)}"]
    yield "\n".join([*(f"- **{name}**: {inline(text)}" for name, text in facts.items() if text), *links])
    if len(case.claims):
        lines = [line for line in evidence.claim_lines(manifest, case.claims) if line != evidence.FOOTNOTE]
        yield "\n".join(["**Claims**", "", *(f"- {paragraph(line.strip())}" for line in lines)])
    yield _decided_effects(case)
    missing = f"{RESULTS.name}/{trained.name}/{BY_HAND}"
    yield trained.words or f"(In words: nothing yet; they belong into `{missing}`.)"


def _cost(case: Case) -> str:
    """How the runs of a study ended, and what they took: "80 runs: 80 done; 1,234 CPU-seconds"."""
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
    """The decided effects as a table, and how many there are in all."""
    every = evidence.headline(case.effects)
    if evidence.described(case.study.manifest):
        return f"**Effects: {len(every)}, descriptive; judged are the claims**"
    decided = every[every["verdict"].map(is_decided)]
    given = next(iter(decided["given"]), "")  # the same for all effects of a study
    heading = ", ".join(filter(None, [f"Effects, {len(decided)} of {len(every)} decided", given]))
    standing = evidence.standing(case.study, case.effects, case.claims)
    sheet = tables.effects_sheet(case._replace(effects=decided.assign(given="")))
    rows = markdown(sheet._replace(notes=[])).rstrip("\n") if len(decided) else ""
    return "\n\n".join(filter(None, [f"**{inline('; '.join(filter(None, [heading, standing])))}**", rows]))


def gallery(files: list[StudyFile]) -> str:
    """Every figure with its answer, its caption and the command that made it."""
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
    yield f"No cell of {paragraph(lacks)}." if lacks else ""
    link = f"../experiments/FINDINGS.md#{trained.name}"
    yield f"Trained by `{trained.command}`, drawn by `{COMMAND}`; [what it found]({link})."


def front(files: Iterable[StudyFile]) -> str:
    """The block of the README: the figures of `FRONT`, each with its question and overall verdict, or else answer."""
    trained = {each.name: (file, each) for file in files for each in file.trained}
    parts = []
    for file, each in [trained[study] for study in FRONT if study in trained]:
        first, question = next(iter(each.plotted)), each.manifest.question or file.question
        parts += [f"**{paragraph(question)}**"] * bool(question)
        overall = evidence.replication(each.manifest, each.case.claims)
        text = f"Replicated: {overall.verdict}; {overall.why}." if overall else answer(each.case, first)
        parts += [_picture(each, first, ""), paragraph(text)]
    every = "All figures of the studies in `experiments/`: [gallery](docs/gallery.md); in words: "
    return "\n\n".join([*parts, f"{every}[findings](experiments/FINDINGS.md)."])


def _picture(trained: Trained, name: str, up: str) -> str:
    study = trained.name
    return f"![{inline(f'{study}: {name}')}]({up}{RESULTS.as_posix()}/{study}/{FIGURES}/{name}.png)"


def answer(case: Case, figure: str) -> str:
    """What a figure answers, in one line: the verdicts on claims, or on effects where nothing was claimed."""
    found = (_of_claims(case) if figure != "effects" else "") or _of_effects(case)
    given = evidence.given(case.study.manifest)
    return f"{found.removesuffix('.')}, {given}." if given and not case.effects.empty else found


def _of_claims(case: Case) -> str:
    """The first decided claim, else the first, with its verdict, how all stand, and which fail; "" without claims."""
    rows = list(case.claims.itertuples(index=False))
    if not rows:
        return ""
    first = next((row for row in rows if is_decided(row.verdict)), rows[0])
    failed = [row.name for row in rows if row.verdict == "contradicted" and row is not first]
    named = f"; contradicted: {formatting.listed(failed)}" * bool(failed)
    return f"{first.name}, {first.verdict}: {first.says}{_standing('claims', case.claims['verdict'])}{named}."


def _of_effects(case: Case) -> str:
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
    better = known[known["verdict"].map(formatting.leaning) == "better"]["label"]
    more = f" and {len(better) - NAMED} more" * (len(better) > NAMED)
    named = f"; better: {'; '.join(better[:NAMED])}{more}" * bool(len(better))
    return f"{_standing('effects', shown['verdict']).strip(' ()')}{named}."


def _standing(noun: str, found: Iterable[str]) -> str:
    """How many there are of each verdict, in parentheses; nothing of a single one."""
    words = [formatting.leaning(word) for word in found]
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
