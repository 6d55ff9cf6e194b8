"""report.html: a study as one self-contained page, from the question to every run."""

from pathlib import Path

import plotly.offline

from ablate import formatting
from ablate.results import naming
from ablate.results.atomic import write_atomic
from analysis.case import Case
from analysis.webpage.parts import asset, parts, policy, render, script, warnings
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
    tasks = dict.fromkeys(str(task.title) for task in manifest.tasks.values())
    over = [formatting.counted(len(manifest.cells), "cell"), formatting.counted(len(manifest.seeds), "seed")]
    scripts = [asset("tables.js")]
    if any(block["kind"] == "curves" for part in shown for block in part.blocks):
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
