"""The report of a study as plain data, from which `report.md` and `report.html` are written by one loop each."""

from typing import NamedTuple

from ablate import evidence, formatting
from ablate.config.designs import RUNG
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis import figures
from analysis.case import Case
from analysis.writing import tables
from analysis.writing.methods import distinct, markdown
from analysis.writing.tables import Table

ALONE = "This study has one seed, from which nothing can be concluded."
NO_EVIDENCE = "This study serves another one: its differences are no effects of variants and have no verdicts."
Facts = dict[str, str]


class Picture(NamedTuple):
    """A figure, written as NAME.png and NAME.pdf, with its caption."""

    name: str
    caption: str


class Section(NamedTuple):
    """A heading and its content in this order; empty parts are left out."""

    anchor: str
    title: str
    text: list[str] = []  # noqa: RUF012
    facts: Facts = {}  # noqa: RUF012
    items: list[str] = []  # noqa: RUF012
    tables: list[Table] = []  # noqa: RUF012
    pictures: list[Picture] = []  # noqa: RUF012


def sections(case: Case) -> list[Section]:
    """All sections of a report in order, without empty ones."""
    study = case.study
    further = [tables.further_table(name, table) for name, table in case.further.items()]
    lost = tables.lost_table(study)
    nothing_lost = lost.rows.empty and not study.notes
    left_out = "Nothing: every planned run ended with a result." if nothing_lost else ""
    every = [
        results(case),
        Section("words", "In words", notes(case), items=[*claims(case), *sentences(case)]),
        Section("figures", "Figures", pictures=pictures(case)),
        Section("further", "Sizes and speed", tables=further),
        Section("plan", "What was compared", study.manifest.remarks, tables=[tables.compared_table(study.manifest)]),
        Section("cells", "Every configuration", tables=[tables.cells_table(case)]),
        Section("lost", "What was left out, and why", [left_out], items=tables.damage(study), tables=[lost]),
        Section("methods", "Methods", [markdown(case).strip()]),
        Section("made", "Provenance", facts=provenance(case)),
    ]
    return [section for section in map(without_empty, every) if any(section[2:])]


def without_empty(section: Section) -> Section:
    """A section without empty texts and tables."""
    return section._replace(
        text=[text for text in section.text if text],
        facts={name: text for name, text in section.facts.items() if text},
        tables=[table for table in section.tables if len(table.rows)],
    )


def question(case: Case) -> list[str]:
    """The question of the study, and the role that it has for another one."""
    manifest = case.study.manifest
    factors = [naming.named(manifest, name) for name in manifest.factors if name != RUNG]
    asked = f"What {'does' if len(factors) == 1 else 'do'} {formatting.listed(factors)} change?" if factors else ""
    return [text for text in (manifest.question or asked, naming.role(manifest)) if text]


def warnings(case: Case) -> list[str]:
    """What a reader must know before anything else."""
    manifest = case.study.manifest
    texts = tables.cautions(case.study)
    if len(manifest.seeds) == 1:
        texts.append(ALONE)
    if naming.no_evidence(manifest):
        texts.append(NO_EVIDENCE)
    if not case.study.runs["status"].eq("done").any():
        texts.append("No run ended with a result: there is nothing to compare.")
    return texts


def overall(case: Case) -> list[str]:
    """The study's verdict by its registered criterion; without one, the number of effects by verdict."""
    manifest = case.study.manifest
    criterion = evidence.replication(manifest, case.claims)
    if criterion:
        return [criterion.sentence]
    verdicts = list(evidence.headline(case.effects)["verdict"])
    if not verdicts or naming.no_evidence(manifest) or {*verdicts} == {formatting.ESTIMATE_ONLY}:
        return []
    order = [word for word in (*evidence.DECIDED, *verdicts) if word in verdicts]
    counts = [f"{verdicts.count(word)} {word}" for word in dict.fromkeys(order)]
    return [f"{formatting.counted(len(verdicts), 'effect')}: {', '.join(counts)}."]


def results(case: Case) -> Section:
    """What the study found: the overall verdict, the effects with what else differs in them, and the claims."""
    table = tables.effects_table(case)
    if naming.no_evidence(case.study.manifest):
        table = table._replace(rows=table.rows.head(0))
    return Section("results", "Results", overall(case), tables=[table, tables.claims_table(case)])


def notes(case: Case) -> list[str]:
    """What is tested, how far planned seeds are, and where the findings hold."""
    manifest = case.study.manifest
    cells = [cell.id for cell in manifest.cells]
    scope = f"All of this is at {naming.scope(manifest, cells, cells)}."
    return [tables.families(case), evidence.sequential_state(case.study, case.effects, case.claims), scope]


def sentences(case: Case) -> list[str]:
    """The headline effects in words: "SwiGLU lowers test loss by 0.053 [0.027, 0.079] nats per byte: better."."""
    lines = []
    for row in named_rows(evidence.headline(case.effects)):
        verdict = tables.unadjusted_verdict(row, evidence.verdict_word(row) or formatting.ESTIMATE_ONLY)
        lines.append(f"{evidence.effect_sentence(case.study.manifest, row)}: {verdict}.")
    return lines


def claims(case: Case) -> list[str]:
    """The claims with their verdicts, their earlier versions, and withdrawn claims."""
    lines = [line.strip() for line in evidence.claim_lines(case.study.manifest, case.claims)]
    return [line for line in lines if line not in overall(case)]


def pictures(case: Case) -> list[Picture]:
    """The figures that were drawn, with what each shows and how it is to be read."""
    drawn = []
    for name, table in case.drawn.items():
        says = figures.KINDS[name].says
        lines = "; ".join(line.rstrip(".") for line in table.attrs["caption"] if line)
        caption = f"{says[:1].upper()}{says[1:].rstrip('.')}"
        drawn.append(Picture(name, f"{caption}: {lines}." if lines else f"{caption}."))
    return drawn


def provenance(case: Case) -> Facts:
    """The command, the code and the data."""
    manifest = case.study.manifest
    updated = f", last on {manifest.updated}" if manifest.updated else ""
    tasks = [f"{task.name} ({key})" for key, task in manifest.tasks.items()]
    return {
        "study": manifest.study,
        "source": manifest.source or "",
        "program": manifest.program or "",
        "command": manifest.command,
        "written" if manifest.source else "planned": f"{manifest.created}{updated}",
        "versions": ", ".join(f"{name} {version}" for name, version in manifest.versions.items()),
        "commit of ablate": ", ".join(commit[:12] for commit in distinct(case.study.runs, "commit")),
        "data": "" if manifest.is_foreign else ", ".join(tasks),
        "hash of the claims": manifest.claims_hash or "",
    }
