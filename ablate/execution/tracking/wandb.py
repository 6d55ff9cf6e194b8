"""Weights & Biases as a tracking service."""

import contextlib
import hashlib
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.config.extra import end_wandb, nowhere, wandb_mode, wandb_project_problem, wandb_settings
from ablate.execution.tracking.sender import Row, TrackedRun
from ablate.formatting import show
from ablate.formatting.streams import say

EXIT_CODES = {"done": 0, "failed": 1, "diverged": 2}  # W&B shows nonzero codes as failed
LONGEST_NAME = 128  # characters that W&B takes
LONGEST_JOB_TYPE = 64
LONGEST_TAG = 64


class WandB:
    """Weights & Biases: online if credentials are found, otherwise offline in `<results>/wandb`; never prompts.
    `log` and `finish` raise whatever W&B raises, and the next call starts its service anew."""

    name = "wandb"

    def __init__(self, project: str, entity: str | None = None):
        if problem := wandb_project_problem(project):
            raise ValueError(f"track.project: {problem}")
        self.project = project
        self.entity = entity
        self.mode: Any = wandb_mode()
        self.runs: dict[str, Any] = {}
        self.next_step: dict[str, int] = {}
        self.offline: Path | None = None  # the folder of the runs that were written offline

    def log(self, run: TrackedRun, rows: list[Row]) -> None:
        """Show a run that trains."""
        with self._resetting():
            if run.id not in self.runs:
                self._begin(run)
            self._log_rows(run, rows)

    def finish(self, run: TrackedRun, rows: list[Row], summary: Row) -> None:
        """Show a run that has ended."""
        assert run.status
        with self._resetting():
            if run.id in self.runs:  # shown before its device, versions and status were known
                self.runs[run.id].config.update(run.config, allow_val_change=True)
                self.runs[run.id].tags = tuple(tags(run))
            else:
                self._begin(run)
            self._log_rows(run, rows)
            wandb_run = self.runs[run.id]
            wandb_run.summary.update(with_nan(summary))
            wandb_run.summary.update(
                {"status": run.status, "_runtime": run.seconds, "_wandb": {"runtime": run.seconds}}
            )
            wandb_run.finish(exit_code=EXIT_CODES[run.status])
            del self.runs[run.id]
            if self.mode == "offline":
                self.offline = run.results / "wandb"

    def close(self) -> None:
        """Mark the runs that have not ended as interrupted; the next sender resumes them."""
        for wandb_run in self.runs.values():
            with contextlib.suppress(Exception):
                wandb_run.mark_preempting()
                wandb_run.finish(exit_code=1)
        self.runs.clear()
        end_wandb()  # explicitly: at exit Python would print the traceback of a crashed service
        if self.offline:
            upload = f"wandb sync {shlex.quote(str(self.offline))}/offline-run-*"
            say(f"W&B runs are offline in {self.offline}; to upload them: {upload}")

    def _begin(self, run: TrackedRun) -> None:
        if self.mode == "offline":
            for folder in (run.results / "wandb").glob(f"*run-*-{run.id}"):  # of a killed sender or an earlier attempt
                shutil.rmtree(folder, ignore_errors=True)
        with nowhere(), silent_children():
            settings = wandb_settings(self.mode)
            import wandb

            # W&B's own summary has the duration of this process instead of the run's.
            settings.x_server_side_derived_summary = True
            settings.git_commit = (run.config.get("git") or {}).get("commit")
            seed = f"/s{run.seed}"
            wandb_run = wandb.init(
                project=self.project,
                entity=self.entity,
                dir=str(run.results),
                id=run.id,
                group=run.study,
                job_type=shortened(run.cell, LONGEST_JOB_TYPE),
                name=shortened(run.cell, LONGEST_NAME - len(seed)) + seed,
                tags=tags(run),
                config=run.config,
                mode=self.mode,
                resume="allow" if self.mode == "online" else None,
                reinit="create_new",
                settings=settings,
            )
        wandb_run.define_metric("*", step_metric="step")
        self.runs[run.id] = wandb_run
        self.next_step[run.id] = wandb_run.starting_step

    def _log_rows(self, run: TrackedRun, rows: list[Row]) -> None:
        wandb_run = self.runs[run.id]
        last: Row = {}
        for row in rows:
            last |= row
            if row["step"] >= self.next_step[run.id]:  # a resumed run logs some steps again
                wandb_run.log(with_nan(row), step=row["step"])
                self.next_step[run.id] = row["step"] + 1
        if rows:
            wandb_run.summary.update(with_nan(last) | {"_step": last["step"], "_runtime": last.get("seconds", 0.0)})

    @contextlib.contextmanager
    def _resetting(self) -> Iterator[None]:
        """After an error, drop W&B's service, which may have crashed, with its runs; the next run starts another."""
        try:
            yield
        except BaseException:
            self.runs.clear()
            end_wandb(5)  # it still owns the ids of these runs
            raise


def tags(run: TrackedRun) -> list[str]:
    """A run's levels, and its status unless it is done."""
    texts = [shortened(f"{factor}={show(level)}", LONGEST_TAG) for factor, level in run.levels.items()]
    if run.status not in (None, "done"):
        texts.append(str(run.status))
    return texts


def shortened(text: str, longest: int) -> str:
    """A text of at most `longest` characters; a longer one ends with a digest, so that texts stay distinct."""
    if len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: longest - 9]}-{digest}"


def with_nan(row: Row) -> Row:
    """A row with NaN for null, which stands for numbers that are not finite."""
    return {name: float("nan") if value is None else value for name, value in row.items()}


@contextlib.contextmanager
def silent_children() -> Iterator[None]:
    """Silence the errors of processes started in this context: W&B's service prints long tracebacks when it crashes."""
    with os.fdopen(os.dup(2), "w", errors="replace") as stderr, contextlib.redirect_stderr(stderr):
        with open(os.devnull, "w") as silent:
            os.dup2(silent.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr.fileno(), 2)
