"""The sections of a report as plain data, from which `report.md` and `report.html` are written."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import pandas

from ablate import evidence, formatting
from ablate.config.designs import RUNG
from ablate.config.schema import STUDY_KEYS
from ablate.formatting import flat
from ablate.runs import naming
from ablate.runs.records import STATUSES, Manifest
from ablate.runs.study import Study
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.prose import prose
from analysis.writing import methods, tables
from analysis.writing.methods import configured, distinct
from analysis.writing.sentences import sentences
from analysis.writing.sheet import Sheet, inline, markdown, paragraph

ALONE = "This study has one seed, from which nothing can be concluded."
WIDE = 6  # cells up to which cells are columns; with more they are rows


class Picture(NamedTuple):
    """A figure, written as NAME.png and NAME.pdf: what it shows, and its caption."""

    name: str
    says: str
    caption: list[str]


def captioned(says: str, caption: Sequence[str]) -> str:
    """What a figure shows and the lines of its caption, as one sentence."""
    lines = "; ".join(line.rstrip(".") for line in caption if line)
    return ": ".join(filter(None, [says[:1].upper() + says[1:].rstrip("."), lines])) + "."


class Section(NamedTuple):
    """A heading and its content, in this order; empty parts are left out."""

    name: str
    title: str
    text: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    items: Sequence[str] = ()
    sheets: Sequence[Sheet] = ()
    pictures: Sequence[Picture] = ()


def sections(case: Case, pictures: Iterable[Picture] = ()) -> list[Section]:
    """All sections of a report in order, without empty ones."""
    sheets = [each for each in tables.sheets(case) if each.name not in ("claims", "losses")]
    found = [question(case), overall(case), ladder(case), verdicts(case), claims(case), plan(case)]
    found += [Section("tables", "Tables", sheets=sheets), Section("figures", "Figures", pictures=list(pictures))]
    unplanned = evidence.unadjusted(case.study.manifest)
    looks = Section("looks", "Interim analyses", [unplanned] * bool(unplanned), items=_lines("looks", case))
    commits = case.study.runs.reindex(columns=["commit", "dirty"]).dropna().set_index("commit")["dirty"].to_dict()
    facts = _facts("provenance", case, commits=commits, distinct=distinct)
    found += [runs(case), differences(case), looks, left_out(case)]
    found += [Section("methods", "Methods", [methods.markdown(case).strip()])]
    found += [Section("provenance", "Provenance", facts=facts)]
    return [each for each in found if any(each[2:])]


def _lines(name: str, case: Case, **more: Any) -> list[str]:
    words = {"m": case.study.manifest, "study": case.study, "runs": case.study.runs}
    return prose(f"sections/{name}.txt", effects=case.effects, claims=case.claims, **words, **more)


def _facts(name: str, case: Case, **more: Any) -> list[tuple[str, str]]:
    """The lines "name: text" of a template, without those that have no text."""
    lines = [line.partition(": ") for line in _lines(name, case, **more)]
    return [(name, text) for name, _, text in lines if text]


def question(case: Case) -> Section:
    """The question, and the role of the study."""
    factors = [naming.named(case.study.manifest, name) for name in case.study.manifest.factors if name != RUNG]
    return Section("question", "Question", _lines("question", case, factors=factors))


def overall(case: Case) -> Section:
    """The study's verdict by its registered criterion; without one, the number of effects by verdict."""
    return Section("overall", "Overall", _lines("overall", case))


def ladder(case: Case) -> Section:
    """What each change is worth in compute, with its trend, in sentences."""
    arms = case.further["ladder"].groupby("label", sort=False) if "ladder" in case.further else ()
    items = [" ".join(_lines("ladder", case, rows=list(named_rows(rows)))) for _, rows in arms]
    return Section("ladder", "What changes are worth at each size", items=items)


def verdicts(case: Case) -> Section:
    """A sentence per headline effect, with notes."""
    notes = _lines("verdicts", case, families=tables.families(case), alone=ALONE)
    return Section("verdicts", "Verdicts", notes, items=sentences(case))


def claims(case: Case) -> Section:
    """The claims with their verdicts, their earlier versions, and withdrawn claims."""
    sheet = tables.claims_sheet(case)
    said = overall(case).text
    lines = [line.strip() for line in evidence.claim_lines(case.study.manifest, case.claims) if line not in said]
    return Section("claims", "Claims", items=lines, sheets=[sheet] if sheet else [])


def plan(case: Case) -> Section:
    """The design, from factors to tuning, and the name of each factor and level with what the command line writes."""
    manifest = case.study.manifest
    known = [cell for cell in manifest.cells if cell.config is not None]
    facts = _facts("plan", case, of=partial(configured, known))
    each = [(factor, level) for factor, levels in manifest.factors.items() for level in levels]
    name = partial(naming.named, manifest)
    rows = [[name(factor), name(level, factor), f"{factor}={formatting.show(level)}"] for factor, level in each]
    compared = Sheet("compared", "What was compared", ["factor", "level", "key"], rows, [])
    return Section("plan", "Plan", manifest.remarks, facts=facts, sheets=[compared] * bool(rows))


def runs(case: Case) -> Section:
    """Every run with its status."""
    study, metrics, rows = case.study, evidence.endpoints(case.study.manifest), []
    costs = [name for name in ("steps", "seconds") if name in study.runs and study.runs[name].notna().any()]
    over = evidence.overfit(study).notna()
    for overfits, run in zip(over, study.runs.to_dict("records"), strict=True):
        texts = [run["label"], str(run["seed"]), run["status"] + ", overfits" * overfits]
        for name in (metrics[run["cell"]], *costs):
            value, places = run.get(name), 0 if name in costs else 4
            texts.append(formatting.number(value, places) if isinstance(value, int | float) else "–")
        rows.append([*texts, run["path"] if isinstance(run["path"], str) else "–"])
    score = naming.metric_name(study.manifest, *dict.fromkeys(metrics.values()))
    head = ["configuration", "seed", "status", score, *costs, "run"]
    return Section("runs", "Runs", [f"{counts(study)}."], sheets=[Sheet("runs", "Runs", head, rows, [])])


def counts(study: Study) -> str:
    """The number of runs by status: "6 runs: 5 done, 1 diverged"."""
    found = study.runs["status"].value_counts()
    ended = [f"{found[name]} {name}" for name in STATUSES if name in found]
    return f"{formatting.counted(len(study.runs), 'run')}: {', '.join(ended)}"


def differences(case: Case) -> Section:
    """The settings in which cells differ."""
    table = settings(case.study.manifest)
    table = table.loc[:, table.nunique() > 1].rename_axis("configuration").rename_axis("setting", axis="columns")
    shown = (table.T if len(table) <= WIDE else table).reset_index(allow_duplicates=True)
    sheet = Sheet("differences", "Settings in which configurations differ", list(shown), shown.to_numpy().tolist(), [])
    return Section("differences", "Configuration differences", sheets=[sheet] if len(table.columns) else [])


def settings(manifest: Manifest) -> pandas.DataFrame:
    """The settings of each cell (rows) as texts by dotted name, without those of the study; "–" where it has none.  A
    component's `_target_` is listed under the component's name."""
    whole = [cell.config.as_json() if cell.config else {} for cell in manifest.cells]
    configs = [flat({key: value for key, value in each.items() if key not in STUDY_KEYS}) for each in whole]
    rows = [
        {
            key.removesuffix("._target_"): json.dumps(value) if isinstance(value, list) else formatting.setting(value)
            for key, value in config.items()
            if not key.endswith("_partial_")
        }
        for config in configs
    ]
    return pandas.DataFrame(rows, [cell.label for cell in manifest.cells]).fillna("–")


def common(manifest: Manifest) -> Sheet:
    """The settings that are equal in all resolved configurations, with their values."""
    table = settings(manifest)
    shared = [[*pair] for pair in table.loc[:, table.nunique() == 1].iloc[0].items()]
    return Sheet("shared", f"Settings that all configurations share ({len(shared)})", ["setting", "value"], shared, [])


def left_out(case: Case) -> Section:
    """Runs without a number and damaged files, with reasons."""
    sheet, items = tables.losses_sheet(case), tables.damage(case.study)
    text = [] if sheet or items else ["Nothing: every planned run ended with a number."]
    return Section("left-out", "What was left out, and why", text, items=items, sheets=[sheet] if sheet else [])


def report(case: Case, pictures: Iterable[Picture] = ()) -> str:
    """The text of report.md, which is written next to its figures."""
    found = sections(case, pictures)
    parts = [part for section in found for part in (f"## {inline(section.title)}", *in_markdown(section))]
    return "\n\n".join([f"# {inline(naming.title(case.study.manifest))}", *parts]) + "\n"


def in_markdown(section: Section) -> Iterator[str]:
    """The content of a section as paragraphs and tables of Markdown."""
    yield from map(paragraph, section.text)
    if section.facts:
        yield "\n".join(f"- **{inline(name)}**: {inline(text)}" for name, text in section.facts)
    if section.items:
        yield "\n".join(f"- {paragraph(item)}" for item in section.items)
    for each in (sheet for sheet in section.sheets if sheet.rows or sheet.notes):
        if len(section.sheets) > 1:
            yield f"### {inline(each.title)}"
        yield markdown(each).rstrip("\n")
    for picture in section.pictures:
        yield f"![{inline(picture.name)}]({quote(picture.name)}.png)"
        yield "  \n".join(paragraph(line) for line in [picture.says, *picture.caption] if line)
