"""Makes every picture of README.md and docs/.

    make pictures
    .venv/bin/python tools/pictures.py [effects curves seeds report live] [--train]

effects, curves and seeds are drawn from the tables in docs/example, which are the README's sweep.  report is the top of
its report.html, taken by a browser (`.[browser]`, Chromium and chromedriver).  live is the table of that sweep while it
trains, which takes a minute or two.  With --train the sweep is trained and its tables are written first.

Exit codes: 0 all were made; 1 some picture was not, and a line says why.
"""

import _thread
import argparse
import hashlib
import io
import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from rich.console import Console

from ablate import api
from ablate.cli.status import Poll, follow, page
from ablate.cli.sweep import Terminal
from ablate.config.errors import one_line
from ablate.planning.runs import Plan
from ablate.runs.files import write_atomic
from ablate.runs.kept_tables import read_tables, write_tables
from ablate.runs.study import load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.figures import style
from analysis.figures.kind import Page, page_of
from analysis.figures.stamp import metadata, stamp_of
from analysis.writing import output
from analysis.writing.page import markdown

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = DOCS / "example"  # the tables of the README's sweep
WORDS = ["norm=ln,rms", "ffn=mlp,swiglu", "track=none"]
FIGURES = ("effects", "curves", "seeds")
NAMES = (*FIGURES, "report", "live")
SIZE = (95, 12)  # columns and lines of the terminal
WINDOW = (1000, 1100)  # pixels of the page
REPORT = "ablate report"  # the name of the text in report.png that is the hash of what the report says


def example() -> Case:
    """The study that the pictures show."""
    return case_of(read_tables(EXAMPLE), EXAMPLE)


def figure_tables(case: Case) -> tuple[dict[str, pandas.DataFrame], Page]:
    """The tables behind the figures of README and docs, by the figure's name, and the page settings."""
    selection = figures.Edits(figures=list(FIGURES))
    return figures.tables(case, selection), page_of(case.study.manifest, selection)


def report_hash(case: Case) -> str:
    """A hash of the words and numbers at the top of a study's report."""
    results = markdown(case).partition("## In words")[0]
    return hashlib.sha256(results.encode()).hexdigest()[:16]


def draw(case: Case, name: str) -> None:
    """Write docs/NAME.png."""
    tables, page = figure_tables(case)
    figure = figures.KINDS[name].draw(tables[name], page)
    style.save(figure, DOCS, name, metadata(stamp_of(name, tables[name], page, case.study)), ["png"])


def picture_report(case: Case) -> None:
    """Write docs/report.png: the top of the report in a browser, with a hash of what the report says."""
    with tempfile.TemporaryDirectory() as folder:
        output.write(case, Path(folder))
        picture = screenshot(Path(folder) / "report.html")
    info = PngInfo()
    info.add_text(REPORT, report_hash(case))
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        image.save(buffer, "png", pnginfo=info)
    write_atomic(DOCS / "report.png", buffer.getvalue())


def screenshot(html: Path) -> bytes:
    """The top of an HTML file as a browser shows it, as PNG."""
    try:
        from selenium import webdriver
    except ModuleNotFoundError:
        raise RuntimeError("selenium is missing; pip install -e '.[browser]'") from None
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if not browser or not chromedriver:
        raise RuntimeError("Chromium or chromedriver is missing; apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    with tempfile.TemporaryDirectory() as profile:
        for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.add_argument(f"--window-size={WINDOW[0]},{WINDOW[1]}")
        session = webdriver.Chrome(options, webdriver.ChromeService(chromedriver))
        try:
            session.get(html.resolve().as_uri())
            return session.get_screenshot_as_png()
        finally:
            session.quit()


class Pictured(Terminal):
    """A terminal whose live table is exported once, when enough runs have ended."""

    def training(self, plan: Plan) -> AbstractContextManager[None]:
        """The runs, watched without being shown."""
        return follow(plan.results, plan.manifest.study, plan.todo, picture_table)


def picture_table(states_of_runs: Iterable[Poll]) -> None:
    """Write docs/live.svg once two runs have ended and two are under way."""
    for runs, above in states_of_runs:
        running = runs.by_state().get("running", [])
        if runs.ended() >= 2 and len(running) >= 2 and all(run.step >= 150 for run in running):
            console = Console(width=SIZE[0], record=True, file=io.StringIO(), force_terminal=True)
            console.print(page(runs, above, SIZE[1]))
            console.save_svg(str(DOCS / "live.svg"), title=f"ablate -m {' '.join(WORDS[:2])}")
            _thread.interrupt_main()
            return


def picture_live() -> None:
    """Write docs/live.svg from a sweep that is stopped then."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            api.train(api.plan([*WORDS, "study=norm_ffn", f"results_dir={folder}"]), Pictured())
        except KeyboardInterrupt:
            return
    raise RuntimeError("the sweep ended before two runs were under way beside two that had ended")


def train() -> None:
    """Train the README's sweep, and write its tables."""
    with tempfile.TemporaryDirectory() as folder:
        plan = api.plan([*WORDS, f"results_dir={folder}"])
        api.train(plan, Terminal())
        write_tables(load_study(plan.results, plan.manifest.study), EXAMPLE)


def make(name: str) -> None:
    """Make one picture."""
    if name in FIGURES:
        draw(example(), name)
    elif name == "report":
        picture_report(example())
    else:
        picture_live()


def main(arguments: list[str] | None = None) -> int:
    """Make pictures; returns the exit code."""
    parser = argparse.ArgumentParser(description="Makes the pictures of README.md and docs/.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--train", action="store_true", help="train the sweep that they show first")
    options: Any = parser.parse_args(arguments)
    for name in options.names:
        if name not in NAMES:
            parser.error(f"{name}: no such picture; there are {', '.join(NAMES)}")
    if options.train:
        train()
    code = 0
    for name in options.names or NAMES:
        try:
            make(name)
            print(f"made {name}")
        except Exception as error:
            print(f"{name} is not made ({one_line(error)})")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
