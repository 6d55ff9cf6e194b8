"""report.html: a study as one self-contained page.

Its parts are a reader's questions, each with the sections of the report that answer it.
"""

import base64
import hashlib
import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

from ablate import evidence, formatting
from ablate.config.claims import weighed
from ablate.formatting import visible
from ablate.runs import naming
from ablate.runs.files import write_atomic
from ablate.runs.tables import named_rows
from analysis import figures
from analysis.case import Case
from analysis.case.figures_yaml import TEMPLATES
from analysis.stats.multi_task import crossed
from analysis.webpage.curve_data import series
from analysis.writing.sections import ALONE, Section, captioned, common, counts, question, sections
from analysis.writing.sheet import Sheet

NAME = "report.html"
# A question for each part, and the sections, sheets and figures in it; other sections and sheets belong to "trust",
# other figures to "figures".
PARTS = {
    "help": ("Does it help?", "overall ladder verdicts claims effects mirror"),
    "compared": ("What was compared?", "plan differences cells"),
    "training": ("How did training go?", "curves seeds"),
    "figures": ("What else do the figures show?", ""),
    "trust": ("Can I trust it?", ""),
    "wrong": ("What went wrong, and what was left out?", "left-out"),
    "runs": ("Every run", "runs"),
    "made": ("How was this made?", "methods provenance"),
}
PART_OF = {name: part for part, (_, names) in PARTS.items() for name in names.split()}
UNTITLED = ("overall", "verdicts", "plan", "left-out", "runs")  # sections without a heading: the question is enough
FEW = 8  # sentences up to which all are shown
LONG = 40  # rows from which a table is collapsed
PIXELS = 134  # per inch of a figure

Block = dict[str, Any]  # with a `kind`; `templates/blocks.html` has the kinds and their HTML


def write(case: Case, folder: Path) -> list[Path]:
    """Write report.html into the folder, which must already have the figures and tables."""
    return [write_atomic(folder / NAME, html(case, folder).encode())]


def html(case: Case, folder: Path) -> str:
    """The page; equal studies give equal pages."""
    manifest = case.study.manifest
    warned, shown = warnings(case), parts(case, folder)
    tasks = dict.fromkeys(str(task.title) for task in manifest.tasks.values())
    over = [formatting.counted(len(manifest.cells), "configuration"), formatting.counted(len(manifest.seeds), "seed")]
    scripts = [asset("tables.js")]
    if any(block["kind"] == "curves" for part in shown for block in part["blocks"]):
        scripts = [script(plotly.offline.get_plotlyjs()), asset("curves.js"), *scripts]
    return render(
        "report.html",
        title=naming.title(manifest),
        question=[line for line in question(case).text if line not in warned],
        facts=[f"study {manifest.study}", ", ".join(tasks), *over, counts(case.study)],
        warnings=warned,
        parts=shown,
        style=asset("report.css"),
        scripts=scripts,
        policy=policy(scripts),
    )


def parts(case: Case, folder: Path) -> list[dict[str, Any]]:
    """All parts that are not empty: heading (a question), blocks that answer it, and anchor, its id in the page."""
    found: dict[str, list[Block]] = {name: [] for name in PARTS}
    known = set(warnings(case))  # sentences that are already in the page
    found["training"] += _curves(case)
    by_row, by_claim = _compared(case)
    for section in sections(case):
        if section.name not in ("question", "figures"):
            part = PART_OF.get(section.name, "trust")
            cells = by_claim if section.name == "claims" else by_row
            found[part] += _blocks(case, section, known, cells)
            for sheet in section.sheets:
                place = PART_OF.get(sheet.name, part)
                found[place] += [_runs(case, sheet)] if sheet.name == "runs" else _sheet(sheet, known, cells)
    found["compared"] += _sheet(common(case.study.manifest), known, {}, folded=True)
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.csv"))}
    hashes = {f"SHA-256 of {name}": digest for name, digest in sums.items()}
    found["made"] += [{"kind": "facts", "rows": list(hashes.items())}]
    for name, table in case.drawn.items():
        found[PART_OF.get(name, "figures")].append(_figure(case, folder / f"{name}.png", table.attrs["caption"]))
    found["help"].sort(key=lambda block: block["kind"] == "table")  # sentences and figures before tables
    return [{"anchor": name, "heading": PARTS[name][0], "blocks": blocks} for name, blocks in found.items() if blocks]


def _compared(case: Case) -> tuple[dict[str, str], dict[str, str]]:
    """The cells, as places in the manifest, of each effect by its label, of each cell and variant by its name; and of
    each claim, by its name and by its sentence."""
    manifest, claimed = case.study.manifest, dict[str, Iterable[str]]()
    found: dict[str, Iterable[str]] = {each.label: each.weights for each in evidence.contrasts(manifest)}
    found |= {cell.label: [cell.id] for cell in manifest.cells}
    found |= {row.name: [row.cell] for row in named_rows(case.cells)}
    if table := crossed(case.study):  # with several tasks
        found |= {name: [table.cells[name, task] for task in table.tasks] for name in table.variants}
    for row in named_rows(case.claims):
        sides = weighed(manifest.claims[row.name].claim, manifest.cells)
        claimed[row.name] = claimed[row.sentence.strip()] = [*chain(*sides)]
    at = {cell.id: place for place, cell in enumerate(manifest.cells)}
    places = [{name: sorted({at[cell] for cell in cells}) for name, cells in each.items()} for each in (found, claimed)]
    by_row, by_claim = ({name: " ".join(map(str, own)) for name, own in each.items()} for each in places)
    return by_row, by_claim


def warnings(case: Case) -> list[str]:
    """Warnings for the top of the page."""
    manifest, runs = case.study.manifest, case.study.runs
    found = [naming.role(manifest), evidence.unadjusted(manifest), ALONE * (len(manifest.seeds) == 1)]
    if not (runs["status"] == "done").any():
        found.append("No run ended with a result: there is nothing to compare.")
    return [line for line in found if line]


def _blocks(case: Case, section: Section, known: set[str], cells: dict[str, str]) -> Iterator[Block]:
    text = [line for line in section.text if line not in known]
    known.update(section.text)
    if section.name not in UNTITLED and (text or section.items or section.facts):
        yield {"kind": "heading", "text": section.title}
    if section.name == "verdicts" and section.items:
        table = evidence.headline(case.effects).reset_index(drop=True)
        rows = zip(section.items, table["verdict"].isin(evidence.DECIDED), table["label"], strict=True)
        lines = [(line, bool(decided), cells.get(label, "")) for line, decided, label in rows]
        # Of many, only conclusive ones are shown, with the rest collapsed.
        first = [lines[i] for i in evidence.decided_first(table).index[:FEW] if lines[i][1]] or lines[:FEW]
        first = first if len(lines) > FEW else lines
        yield {"kind": "findings", "lines": first, "more": [each for each in lines if each not in first]}
    yield from ({"kind": "overall" if section.name == "overall" else "text", "text": line} for line in text)
    if section.facts:
        yield {"kind": "facts", "rows": section.facts}
    if section.name == "claims" and section.items:
        judged = set(case.claims.loc[case.claims["verdict"] != "undecided", "sentence"])
        lines = [(line, line in judged, cells.get(line, "")) for line in section.items]
        yield {"kind": "findings", "lines": lines, "more": []}
    elif section.items and section.name != "verdicts":
        yield {"kind": "listing", "lines": section.items}


def _sheet(sheet: Sheet, known: set[str], cells: dict[str, str], folded: bool = False) -> Iterator[Block]:
    notes = [note for note in sheet.notes if note not in known]
    known.update(notes)
    if sheet.name == "claims":  # its widest column repeats the sentences above
        place = sheet.head.index("found")
        head, *rows = ([*row[:place], *row[place + 1 :]] for row in (sheet.head, *sheet.rows))
        sheet = sheet._replace(head=head, rows=rows)
    if sheet.rows:
        folded = folded or (len(sheet.rows) > LONG and sheet.name != "losses")
        yield {"kind": "table", "sheet": sheet, "notes": notes, "folded": folded, "cells": cells}


def _runs(case: Case, sheet: Sheet) -> Block:
    errors = [error if isinstance(error, str) else "" for error in case.study.runs["error"]]
    if any(errors):
        rows = [[*row, error] for row, error in zip(sheet.rows, errors, strict=True)]
        sheet = sheet._replace(head=[*sheet.head, "error"], rows=rows)
    places = {cell.id: place for place, cell in enumerate(case.study.manifest.cells)}
    status, cells = sheet.head.index("status"), case.study.runs["cell"].map(places).tolist()
    statuses = list(dict.fromkeys(row[status] for row in sheet.rows))
    return {"kind": "runs", "sheet": sheet, "status": status, "statuses": statuses, "cells": cells}


def _figure(case: Case, file: Path, caption: list[str]) -> Block:
    """A PNG, embedded at the width of the figure in inches, with its caption and a shorter `alt` text."""
    content, says = file.read_bytes(), figures.KINDS[file.stem].says
    width, height = struct.unpack(">II", content[16:24])
    edits = figures.edits(case)
    shown = round(PIXELS * edits.width / edits.scale)
    source = "data:image/png;base64," + base64.b64encode(content).decode()
    size = {"width": shown, "height": round(shown * height / width)}
    return {"kind": "figure", "source": source, **size, "caption": captioned(says, caption), "alt": captioned(says, [])}


def _curves(case: Case) -> list[Block]:
    found = series(case)
    if not found:
        return [{"kind": "text", "text": "No learning curves: no run logged the metric while it trained."}]
    alt = f"Interactive learning curves of {formatting.counted(len(found['cells']), 'configuration')}: {found['label']}"
    more = {"thinned": found["thinned"], "crosses": bool((case.study.runs["status"] == "diverged").any())}
    return [{"kind": "curves", "data": data(found), "axes": list(found["axes"]), "alt": alt, **more}]


def render(template: str, **content: Any) -> str:
    """A rendered template; values in `content` are escaped unless they are Markup."""
    return ENVIRONMENT.get_template(template).render(**content)


def _short(text: str) -> bool:
    """Whether a table cell must stay on one line: a few words, an interval, or a path."""
    return len(text) < (30 if "[" in text else 24) or (len(text) < 80 and " " not in text)


ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    finalize=lambda value: visible(value) if type(value) is str else value,  # not Markup
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.tests["short"] = _short


def asset(name: str) -> Markup:
    """A style sheet or script from the templates folder, not escaped."""
    return script((TEMPLATES / name).read_text(encoding="utf-8"))


def script(text: str) -> Markup:
    """Code to embed in a script or style element, not escaped.  Raises ValueError if it would end the element."""
    if re.search(r"</(script|style)|<!--|\r", text, re.IGNORECASE):
        raise ValueError("a script or style sheet holds what would end it inside a page")
    return Markup(text)


def data(content: Any) -> Markup:
    """JSON to embed in a script element, escaped so that nothing ends it.  Raises ValueError for NaN and infinities."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def policy(scripts: Sequence[str]) -> str:
    """A Content-Security-Policy that allows only these scripts and no network access."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
    rules = ["default-src 'none'", f"script-src {allowed}", "style-src 'unsafe-inline'", "img-src data:"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])
