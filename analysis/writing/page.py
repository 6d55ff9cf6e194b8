"""report.html, a study as one self-contained page; and what it shares with the page of `ablate watch`."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

from ablate.formatting import visible
from ablate.runs import naming
from ablate.runs.files import write_atomic
from analysis.case import Case
from analysis.writing import tables
from analysis.writing.chart import chart
from analysis.writing.sections import Section, pictures, question, sections, warnings

NAME = "report.html"
TEMPLATES = Path(__file__).parents[1] / "templates"
FIRST = 1  # sections above the curves

ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES),
    autoescape=jinja2.select_autoescape(["html"]),
    undefined=jinja2.StrictUndefined,
    finalize=lambda value: visible(value) if type(value) is str else value,  # not Markup
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {"inline": tables.inline, "paragraph": tables.paragraph, "rows": tables.markdown_rows}
ENVIRONMENT.filters["numeric"] = tables.numeric_columns


def write(case: Case, folder: Path) -> list[Path]:
    """Write report.md and report.html into the folder, which must already have the figures."""
    text = markdown(case).encode()
    return [write_atomic(folder / "report.md", text), write_atomic(folder / NAME, html(case, folder).encode())]


def markdown(case: Case) -> str:
    """The text of report.md, which is written next to its figures."""
    title = naming.title(case.study.manifest)
    lead = [*question(case), *warnings(case)]
    text = ENVIRONMENT.get_template("report.md").render(title=title, lead=lead, sections=sections(case))
    return re.sub(r"\n{3,}", "\n\n", text)


def html(case: Case, folder: Path) -> str:
    """The page; equal studies give equal pages."""
    manifest = case.study.manifest
    tasks = list(dict.fromkeys(str(task.title) for task in manifest.tasks.values()))
    facts = [f"study {manifest.study}", *tasks, tables.counts(case.study)]
    every = sections(case)
    return page(
        title=naming.title(manifest),
        lead=question(case),
        facts=facts,
        warnings=warnings(case),
        first=every[:FIRST],
        rest=every[FIRST:],
        images={picture.name: image(folder / f"{picture.name}.png") for picture in pictures(case)},
        curves=chart(case),
    )


def page(curves: dict[str, Any] | None, live: bool = False, **content: Any) -> str:
    """The page of a report, or of `ablate watch`, which asks for more and draws curves when there are some."""
    scripts = [Markup((TEMPLATES / "page.js").read_text(encoding="utf-8"))]
    if curves or live:
        scripts.insert(0, Markup(plotly.offline.get_plotlyjs()))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(f'{chr(39)}sha256-{digest}{chr(39)}' for digest in hashes)}",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live else []),
    ]
    style = Markup((TEMPLATES / "page.css").read_text(encoding="utf-8"))
    shown = {"live": live, "curves": data(curves), "style": style, "scripts": scripts, "policy": "; ".join(rules)}
    return ENVIRONMENT.get_template("page.html").render(**shown, **content)


def sections_html(parts: list[Section]) -> str:
    """The HTML of sections without pictures."""
    return ENVIRONMENT.get_template("sections.html").render(sections=parts, images={})


def image(file: Path) -> str:
    """A PNG as an address that needs no other file."""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()


def data(content: Any) -> Markup:
    """JSON to embed in a script element, escaped so that nothing ends it.  Raises ValueError for NaN and infinities."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
