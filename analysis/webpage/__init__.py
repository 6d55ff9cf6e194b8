"""report.html: a study as one self-contained page, from the question to every run."""

from pathlib import Path

import plotly.offline

from ablate import formatting
from ablate.results import naming
from ablate.results.atomic import write_atomic
from analysis.case import Case
from analysis.webpage import page
from analysis.webpage.parts import parts, warnings
from analysis.writing.sections import counts, question

NAME = "report.html"


def write(case: Case, folder: Path) -> list[Path]:
    """Write report.html into the folder, which must already have the figures and tables."""
    file = folder / NAME
    write_atomic(file, html(case, folder).encode())
    return [file]


def html(case: Case, folder: Path) -> str:
    """The page; equal studies give equal pages."""
    manifest = case.study.manifest
    warned, shown = warnings(case), parts(case, folder)
    scripts = [page.asset("tables.js")]
    if any(block["kind"] == "curves" for part in shown for block in part.blocks):
        scripts = [page.script(plotly.offline.get_plotlyjs()), page.asset("curves.js"), *scripts]
    return page.render(
        "report.html",
        title=naming.title(manifest),
        question=[line for line in question(case).text if line not in warned],
        facts=_facts(case),
        warnings=warned,
        parts=shown,
        style=page.asset("report.css"),
        scripts=scripts,
        policy=page.policy(scripts),
    )


def _facts(case: Case) -> list[str]:
    manifest = case.study.manifest
    tasks = dict.fromkeys(str(task.title) for task in manifest.tasks.values())
    over = [formatting.counted(len(manifest.cells), "cell"), formatting.counted(len(manifest.seeds), "seed")]
    return [f"study {manifest.study}", ", ".join(tasks), *over, counts(case.study)]
