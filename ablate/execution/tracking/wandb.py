"""Weights & Biases as a tracking service, for running and ended runs."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from ablate.config.errors import whole_line
from ablate.config.extra import end_wandb, nowhere, wandb_mode, wandb_settings
from ablate.execution.tracking.mirror import Card
from ablate.formatting.streams import Stream, say

EXIT_CODES = {"done": 0, "failed": 1, "diverged": 2}  # W&B shows nonzero codes as failed
AXES = ("step", "tokens", "seconds")  # possible x-axes of curves; the first is the default
METRICS = ("train/*", "val/*", "test/*", "diag/*", "lr", "grad_norm")


class WandB:
    """Weights & Biases: online if credentials are found, otherwise offline in `<results>/wandb`; never prompts.
    `finish` raises wandb's errors when offline, and ImportError.  Any error online switches it to offline."""

    name = "wandb"

    def __init__(self, project: str, entity: str | None = None):
        self.project, self.entity = project, entity
        self.mode = wandb_mode()
        self.runs: dict[str, Any] = {}
        self.next_step: dict[str, int] = {}

    def log(self, card: Card, rows: list[dict[str, Any]]) -> None:
        """Show a running run."""
        try:
            self._log(self.runs.get(card.id) or self._begin(card), card, rows)
        except Exception as error:
            self._turn_offline(error)

    def finish(self, card: Card, rows: list[dict[str, Any]], status: str, summary: dict[str, Any]) -> None:
        """Show a run that has ended."""
        if self.mode == "online":
            try:
                self._finish(card, rows, status, summary)
                return
            except Exception as error:
                self._turn_offline(error)
        for folder in (card.results / "wandb").glob(f"*run-*-{card.id}"):  # left by a killed mirror or a failed attempt
            shutil.rmtree(folder, ignore_errors=True)
        try:
            self._finish(card, rows, status, summary)
        except Exception:
            self._let_go()
            raise

    def close(self) -> None:
        """Mark the runs that have not ended as interrupted; the next mirror resumes them."""
        for run in self.runs.values():
            with contextlib.suppress(Exception):
                run.mark_preempting()
                run.finish(exit_code=1)
        self.runs.clear()
        end_wandb()  # explicitly: at exit Python would print the traceback of a crashed service

    def _begin(self, card: Card) -> Any:
        with nowhere(), _silent_processes():
            settings = wandb_settings(self.mode)
            import wandb

            # W&B's own summary has the duration of the mirror instead of the run's.
            settings.x_server_side_derived_summary = True
            settings.git_commit = (card.config.get("git") or {}).get("commit")
            given: dict[str, Any] = card._asdict()
            del given["seconds"]
            given |= {"dir": str(given.pop("results")), "project": self.project, "entity": self.entity}
            given |= {"mode": self.mode, "resume": "allow" if self.mode == "online" else None}
            run = wandb.init(**given, reinit="create_new", settings=settings)
        for axis in AXES:
            run.define_metric(axis)
        for metric in METRICS:
            run.define_metric(metric, step_metric=AXES[0])
        self.runs[card.id], self.next_step[card.id] = run, run.starting_step
        return run

    def _log(self, run: Any, card: Card, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            step = row.get("step")
            if isinstance(step, int) and step >= self.next_step[card.id]:  # a resumed run logs some steps again
                run.log(_with_nan(row), step=step)
                self.next_step[card.id] = step + 1
        last = {name: value for row in rows for name, value in row.items()}
        if "step" in last:
            last |= {"_step": last["step"], "_runtime": last.get("seconds", 0.0)}
        run.summary.update(_with_nan(last))

    def _finish(self, card: Card, rows: list[dict[str, Any]], status: str, summary: dict[str, Any]) -> None:
        if run := self.runs.get(card.id):  # started before its final settings and status were known
            run.config.update(card.config, allow_val_change=True)
            run.tags = tuple(card.tags)
        else:
            run = self._begin(card)
        self._log(run, card, rows)
        took = {"_runtime": card.seconds, "_wandb": {"runtime": card.seconds}}
        run.summary.update(_with_nan(summary) | {"status": status} | took)
        run.finish(exit_code=EXIT_CODES[status])
        del self.runs[card.id]

    def _turn_offline(self, error: Exception) -> None:
        if isinstance(error, ImportError):
            raise error
        say(f"W&B cannot be reached; runs are logged offline from now on ({whole_line(error)})")
        self.mode = "offline"
        self._let_go()

    def _let_go(self) -> None:
        """Drop W&B's service, which may have crashed, and its runs; the next run starts another."""
        self.runs.clear()
        end_wandb(5)  # it still owns the ids of runs started online


@contextlib.contextmanager
def _silent_processes() -> Iterator[None]:
    """Silence the errors of processes started in this context: W&B's service prints long tracebacks when it crashes."""
    with os.fdopen(os.dup(2), "w") as saved, contextlib.redirect_stderr(Stream(saved, raises=False)):
        with open(os.devnull, "w") as silent:
            os.dup2(silent.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved.fileno(), 2)


def _with_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {key: float("nan") if value is None else value for key, value in row.items()}  # null: not finite
