"""A study that is trained from Python, as one line: a bar of its steps, and how far its runs are."""

import contextlib
import sys
import threading
import warnings
from contextlib import AbstractContextManager

from ablate.cli.monitor.state import Runs
from ablate.cli.monitor.view import counts, follow
from ablate.planning.runs import Plan
from ablate.results.study import Study

TICK = 0.5  # seconds between polls
FORMAT = "{percentage:3.0f} % {bar:30} {desc}"


class Bar:
    """A reporter for notebooks and terminals: a bar on standard error while runs are trained; remarks are warnings."""

    def remark(self, text: str) -> None:
        """A warning."""
        warnings.warn(text, stacklevel=2)

    def training(self, plan: Plan) -> AbstractContextManager[None]:
        """The bar, where anybody sees it."""
        if not is_visible():
            return contextlib.nullcontext()
        return follow(plan.results, plan.manifest.study, plan.todo, _show)

    def ended(self, plan: Plan, study: Study, seconds: float | None) -> None:
        """Nothing: the study is returned, and shows itself."""


def is_visible() -> bool:
    """Whether standard error can be written over: on a terminal, and in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _show(runs: Runs, stop: threading.Event) -> None:
    from tqdm import tqdm

    last = False
    with tqdm(total=sum(run.steps for run in runs.runs), bar_format=FORMAT, file=sys.stderr) as bar:
        while not last:
            last = stop.wait(TICK)
            runs.poll()
            bar.n = sum(run.steps if run.result else min(run.pace.step, run.steps) for run in runs.runs)
            bar.set_description_str(counts(runs))
