"""A page per committed study, and their index."""

import math

from ablate import evidence, formatting
from ablate.runs import naming
from analysis.case import Case
from analysis.writing import tables
from analysis.writing.tables import counts, inline, markdown_rows, paragraph
from gallery.answers import is_decided
from gallery.false_verdicts import all_verdicts
from gallery.studies import BY_HAND, FIGURES, RESULTS, StudyFile, Trained, command, missing_variants

WRITTEN = "<!-- written by `make figures` from experiments/results/: nothing here is edited by hand -->"
CRITERION = """\
*Criterion*: *met* if all claims that the study named beforehand as decisive are supported, *refuted* if one is
contradicted, else *open*; – if it named none. *Scope*: the size of the models, the data, the steps of training."""


def index(files: list[StudyFile]) -> str:
    """A table of all studies, one line each, then the counts of all verdicts with their expected errors."""
    rows = []
    for file in files:
        for study in file.trained:
            link = f"[{study.name}](findings/{study.name}.md)"
            question = study.manifest.question or file.question
            texts = [question, study.answer, criterion_verdict(study.case), scope(study.case)]
            rows.append([link, *map(table_text, texts)])
        if not file.trained:
            published = f"not run yet; published: {file.published}" if file.published else "not run yet"
            rows.append([*map(table_text, [file.name, file.question, published]), "", ""])
    lines = ["| study | question | answer | criterion | scope |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        lines.append("| " + " | ".join(row) + " |")
    parts = ["## Studies", CRITERION, "\n".join(lines)]
    verdicts = all_verdicts([study.case for file in files for study in file.trained])
    if verdicts:
        parts += ["## All verdicts, and how many of them may be false", verdicts]
    parts.append(not_run(files))
    return "\n\n".join(part for part in parts if part)


def not_run(files: list[StudyFile]) -> str:
    """The commands that have no tables yet, each with its studies; empty if there are none."""
    studies: dict[str, list[str]] = {}
    for file in files:
        for tier in file.missing:
            studies.setdefault(command("NAME", tier), []).append(inline(file.name))
    parts = []
    for text, names in studies.items():
        named = "every study" if len(names) == len(files) else formatting.listed(names)
        parts.append(f"`{text}` for {named}")
    return f"Not run yet: {'; '.join(parts)}." if parts else ""


def criterion_verdict(case: Case) -> str:
    """Whether a study met its registered criterion: met, refuted or open; a dash without one."""
    criterion = evidence.replication(case.study.manifest, case.claims)
    return criterion.verdict if criterion and criterion.verdict != "none" else "–"


def study_page(file: StudyFile, study: Trained) -> str:
    """The page of a study: question, answer, figures, claims, effects, what people wrote about it, and how to repeat
    it."""
    case = study.case
    parts = [WRITTEN, f"# {inline(study.name)}", f"**{paragraph(study.manifest.question or file.question)}**"]
    parts.append(paragraph(study.answer))
    parts.append(facts(file, study))
    if study.words:
        parts.append(study.words)
    else:
        parts.append(f"(In words: nothing yet; they belong into `{RESULTS}/{study.name}/{BY_HAND}`.)")
    claims = evidence.claim_lines(study.manifest, case.claims)
    if claims:
        parts += ["## Claims", "\n".join(f"- {paragraph(line.strip())}" for line in claims)]
    parts += ["## Effects", effects(case)]
    parts.append("## Figures")
    for name, table in study.plotted.items():
        parts.append(picture(study, name, "../results"))
        parts.append("  \n".join(paragraph(line) for line in table.attrs["caption"] if line))
    return "\n\n".join(part for part in parts if part) + "\n"


def facts(file: StudyFile, study: Trained) -> str:
    """A list of facts about a study: published result, scope, runs, notes, command and tables."""
    texts = {
        "Published": study.manifest.published or file.published,
        "Scope": scope(study.case),
        "Runs": cost(study.case),
        "Notes": "; ".join(tables.remarks(study.case.study)),
        "Not tried here": missing_variants(study.manifest.factors),
    }
    lines = [f"- **{name}**: {inline(text)}" for name, text in texts.items() if text]
    links = [f"[{sheet.name}](../results/{study.name}/{FIGURES}/{sheet.name}.md)" for sheet in study.sheets]
    lines.append(f"- **Command**: `{study.command}`")
    lines.append(f"- **Tables**: {formatting.listed(links)}")
    return "\n".join(lines)


def scope(case: Case) -> str:
    """The parameters, data and steps of a study."""
    cells = [cell.id for cell in case.study.manifest.cells]
    return naming.scope(case.study.manifest, cells, cells)


def cost(case: Case) -> str:
    """The number of runs by status, and their cost: "80 runs: 80 done; 1,234 CPU-seconds"."""
    runs = case.study.runs
    column = "seconds"
    unit = "seconds, most of them on cores that others used, too"
    if runs["device"].astype(str).str.startswith("cuda").any():
        unit = "GPU-seconds"
    elif runs.loc[runs["status"] == "done", "cpu_seconds"].notna().all():
        column = "cpu_seconds"
        unit = "CPU-seconds"
    total = math.fsum(runs[column].dropna())
    remarks = []
    for role, study in case.study.beside.items():
        seconds = math.fsum(study.runs[column].dropna())
        total += seconds
        remarks.append(f"{seconds:,.0f} of {role}")
    if case.study.manifest.tuning:
        remarks.append("those of tuning, which has no tables here, left out")
    text = counts(case.study)
    if total:
        text += f"; {total:,.0f} {unit}"
    return f"{text} ({'; '.join(remarks)})" if total and remarks else text


def effects(case: Case) -> str:
    """The decided effects as a table, with the number of all effects."""
    rows = evidence.headline(case.effects)
    if evidence.described(case.study.manifest):
        return f"{formatting.counted(len(rows), 'effect')} without verdict: this study tests only its claims."
    decided = rows["verdict"].map(is_decided)
    withheld = rows["verdict"] == "withheld"
    heading = f"{len(rows)} judged, {decided.sum()} decided"
    if withheld.any():
        heading += f", {withheld.sum()} without a verdict"
    interim = evidence.sequential_state(case.study, case.effects, case.claims)
    if interim:
        heading += f"; {interim}"
    parts = [f"{inline(heading)}. *Runs without result* are those of both sides that diverged, failed or are missing."]
    chosen = rows[decided | withheld]
    if len(chosen):
        table = tables.effects_table(case._replace(effects=chosen))
        parts.append(markdown_rows(table.shown).rstrip("\n"))
    return "\n\n".join(parts)


def table_text(text: str) -> str:
    """Text escaped for use within a table of Markdown."""
    return inline(text).replace("|", "\\|")


def picture(study: Trained, name: str, results: str) -> str:
    """A figure of a study in Markdown; `results` is the path to its folder of results."""
    return f"![{inline(f'{study.name}: {name}')}]({results}/{study.name}/{FIGURES}/{name}.png)"
