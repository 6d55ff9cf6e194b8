"""`experiments/FINDINGS.md`: a section per study, of its verdicts and the paragraph that was written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import pandas

from ablate import evidence, formatting
from analysis.case import Case
from analysis.gallery import verdicts
from analysis.gallery.kept import BY_HAND, FIGURES, RESULTS, StudyFile, Trained, lacking
from analysis.writing import tables
from analysis.writing.sections import counts
from analysis.writing.sentences import where
from analysis.writing.sheet import Sheet, inline, markdown, paragraph

LOST = "In the tables of effects `lost` counts the runs of both sides that gave no number: diverged, failed or missing."
SHEETS = ("claims", "effects", "cells")


def page(files: Iterable[StudyFile]) -> str:
    """The verdicts of all studies and what they are worth, then a section per study."""
    files = list(files)
    total = verdicts.page(each.case for file in files for each in file.trained)
    found = ["## All verdicts, and the false ones among them", f"{total}\n\n{LOST}"] if total else []
    return "\n\n".join([*found, *(part for file in files for part in _sections(file))])


def _sections(file: StudyFile) -> Iterator[str]:
    for each in file.trained:
        yield from _section(file, each)
    if not file.trained:
        yield f"## {inline(file.name)}"
        yield from filter(None, (paragraph(file.question), _fact("Published", file.published)))
    if file.missing:
        yield f"Not run yet: {formatting.listed(f'`{each}`' for each in file.missing)}."


def _section(file: StudyFile, trained: Trained) -> Iterator[str]:
    manifest, case = trained.manifest, trained.case
    yield f"## {inline(trained.name)}"
    yield from filter(None, [paragraph(manifest.question or file.question)])
    facts = {"Published": manifest.published or file.published, "Scope": where(manifest, None), "Runs": cost(case)}
    facts |= {"Notes": "; ".join(tables.remarks(case.study))}
    facts |= {"No cell of": lacking(manifest.factors)}
    told = [_fact(name, text) for name, text in facts.items() if text]
    links = formatting.listed(
        f"[{each.name}](results/{trained.name}/{FIGURES}/{each.name}.md)" for each in sheets(case)
    )
    yield "\n".join([*told, f"- **Command**: `{trained.command}`", f"- **Tables**: {links}"])
    if len(case.claims):
        lines = evidence.claim_lines(manifest, case.claims)
        yield _listed("Claims", [line for line in lines if line != evidence.FOOTNOTE])  # said once, for all studies
    yield _effects(case)
    missing = f"{RESULTS.name}/{trained.name}/{BY_HAND}"
    yield trained.words or f"(In words: nothing yet; they belong into `{missing}`.)"


def sheets(case: Case) -> list[Sheet]:
    """The tables for reading that stand beside the figures."""
    return [each for each in tables.sheets(case) if each.name in SHEETS]


def cost(case: Case) -> str:
    """How its runs ended, and what they took: "80 runs: 80 done; 1,234 CPU-seconds"."""
    studies = {"": case.study, **case.study.beside}
    column, unit = clock(case.study.runs)
    took = {role: each.runs[column].astype(float).sum() for role, each in studies.items()}
    beside = [f"{seconds:,.0f} of {role}" for role, seconds in took.items() if role and seconds]
    untold = ["those of tuning, which has no tables here, left out"] * (case.study.manifest.tuning is not None)
    more = f" ({'; '.join([*beside, *untold])})" if beside or untold else ""
    total = math.fsum(took.values())
    return f"{counts(case.study)}" + f"; {total:,.0f} {unit}{more}" * bool(total)


def clock(runs: pandas.DataFrame) -> tuple[str, str]:
    """The column that says what runs took, and its unit: of the GPU, of the CPU, or where that is not known of a clock
    that went on while others had the cores.
    """
    if runs["device"].astype(str).str.startswith("cuda").any():
        return "seconds", "GPU-seconds"
    if runs.loc[runs["status"] == "done", "cpu_seconds"].notna().all():
        return "cpu_seconds", "CPU-seconds"
    return "seconds", "seconds, most of them on cores that others used, too"


def _effects(case: Case) -> str:
    """The decided effects, and how many there are in all."""
    every = evidence.headline(case.effects)
    if evidence.described(case.study.manifest):
        return f"**Effects: {len(every)}, descriptive; judged are the claims**"
    told = every[every["verdict"].map(verdicts.is_decided)]
    standing = evidence.standing(case.study, case.effects, case.claims)
    given = next(iter(told["given"]), "")  # of a study one, said once
    said = ", ".join(filter(None, [f"Effects, {len(told)} of {len(every)} decided", given]))
    shown = tables.effects_sheet(case._replace(effects=told.assign(given="")))
    rows = markdown(shown._replace(notes=[])).rstrip("\n") if len(told) else ""
    return "\n\n".join(filter(None, [f"**{inline('; '.join(filter(None, [said, standing])))}**", rows]))


def _fact(name: str, text: str) -> str:
    return f"- **{name}**: {inline(text)}" if text else ""


def _listed(heading: str, lines: list[str]) -> str:
    return "\n".join([f"**{inline(heading)}**", "", *(f"- {paragraph(line.strip())}" for line in lines)])
