"""The pictures of the README that `make figures` does not draw: docs/live.svg and docs/report.png.

    .venv/bin/python benchmarks/readme_pictures.py    # needs selenium (`.[browser]`), Chromium and chromedriver

The live table is that of the README's sweep, trained until two runs have ended and all that run are at step 150.
The report is that of a committed study, as `ablate analyse` writes it.
"""

import _thread
import io
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text
from selenium import webdriver

from ablate import api
from ablate.cli.status import TICK, counts, endings, follow, table
from ablate.cli.sweep import Terminal
from ablate.planning.runs import Plan
from ablate.results.progress import Runs

DOCS = Path(__file__).parents[1] / "docs"
WORDS = ["norm=ln,rms", "ffn=mlp,swiglu", "study=norm_ffn"]
STUDY = "experiments/results/glu_variants"
SIZE = (95, 12)  # columns and lines of the terminal; a wider one names the machine
WINDOW = (1000, 1100)  # pixels of the page


class Pictured(Terminal):
    """A terminal whose live table is exported once, when enough runs have ended."""

    def training(self, plan: Plan) -> AbstractContextManager[None]:
        """The runs, watched without being shown."""
        return follow(plan.results, plan.manifest.study, plan.todo, picture_table)


def picture_table(runs: Runs, stop: threading.Event) -> None:
    """Write docs/live.svg once two runs have ended and two are under way."""
    while not stop.wait(TICK):
        endings(runs)
        running = runs.by_state().get("running", [])
        if runs.ended() >= 2 and len(running) >= 2 and all(run.pace.step >= 150 for run in running):
            console = Console(width=SIZE[0], record=True, file=io.StringIO(), force_terminal=True)
            console.print(Group(table(runs, *SIZE), Text(counts(runs))))
            console.save_svg(str(DOCS / "live.svg"), title=f"ablate -m {' '.join(WORDS[:2])}")
            _thread.interrupt_main()
            return


def picture_report(page: Path) -> None:
    """Write docs/report.png: the top of a report in a browser."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    with tempfile.TemporaryDirectory() as profile:
        for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.add_argument(f"--window-size={WINDOW[0]},{WINDOW[1]}")
        browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            browser.get(page.as_uri())
            browser.save_screenshot(str(DOCS / "report.png"))
        finally:
            browser.quit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "analysis", STUDY, "--to", folder], check=True)
        picture_report(Path(folder) / "report.html")
        try:
            api.train(api.plan([*WORDS, f"results_dir={folder}"]), Pictured())
        except KeyboardInterrupt:
            print(f"{DOCS / 'live.svg'} and {DOCS / 'report.png'} are written; the sweep was stopped")
