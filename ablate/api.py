"""Plans and trains a study; used by the command line and by `ablate.python`.

planned = api.plan(["norm=ln,rms", "scale=tiny", "seeds=2"])    # the words of `ablate -m ...`
study = api.train(planned, reporter)
"""

import contextlib
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ablate.config.errors import Corrupt, PlanError, Problem, Refused, whole_line
from ablate.execution.signals import DiskFull, raising_disk_full
from ablate.planning.runs import Plan, device_problem
from ablate.runs.folder import now
from ablate.runs.manifest import log_look, outside, renew_manifest
from ablate.runs.study import Study, load_study

CONTINUES = "the same command continues with what is missing"


class Reporter(Protocol):
    """Receives reports on the progress of a study."""

    def remark(self, text: str) -> None:
        """Report a remark of one line."""

    def training(self, plan: Plan) -> AbstractContextManager[None]:
        """A context that is active while the runs of a plan are trained."""

    def ended(self, plan: Plan, study: Study, seconds: float | None) -> None:
        """Report that the study has ended, after `seconds`; None if nothing was trained."""


def plan(words: Sequence[str], config_dir: str | None = None) -> Plan:
    """Compose and check every cell of a study, and count its runs; nothing is trained or written.

    `words` are those of the command line, `config_dir` is the folder of your own variants.  Raises PlanError, whose
    `problems` list all mistakes.
    """
    from ablate.planning.plan import plan_study

    planned = plan_study(words, os.path.abspath(config_dir) if config_dir else config_dir)
    if planned.is_local and (problem := device_problem(planned)):
        raise PlanError([problem])
    if not planned.is_local and planned.manifest.timing:
        message = "isolated runs are trained one after another on one machine; leave hydra/launcher out"
        raise PlanError([Problem("timing", message)])
    return planned


def train(plan: Plan, reporter: Reporter) -> Study:
    """Train the remaining runs of a plan, round after round, and return the study as tables.

    Ended runs are on disk, so after an interruption the same call continues.  Failed runs are rows with that status.
    Raises PlanError, Refused if the results folder cannot be written, and DiskFull.
    """
    from ablate.planning.plan import plan_again

    started = time.monotonic()
    is_trained = bool(plan.todo)
    while True:
        run_round(plan, reporter)
        following = plan_again(plan) if plan.more and plan.todo else plan
        is_last = following.manifest.runs == plan.manifest.runs  # or incomplete
        plan = following
        if is_last:
            break
    seconds = time.monotonic() - started if is_trained else None
    study = load_study(plan.results, plan.manifest.study, plan.manifest)
    try:
        with raising_disk_full(plan.results):  # before results are shown
            log_look(plan.results, plan.manifest, now())
    except (OSError, Corrupt) as error:
        reporter.remark(f"this interim analysis cannot be logged ({error})")
    reporter.ended(plan, study, seconds)
    return study


def run_round(plan: Plan, reporter: Reporter) -> None:
    """Write the manifests of one round, and train its remaining runs."""
    try:
        with raising_disk_full(plan.results):
            for planned in [*plan.ended, plan]:
                renew_manifest(planned.results, planned.manifest)
    except OSError as error:
        raise Refused(f"results_dir: {plan.results} cannot be written ({error.strerror})") from None
    link = outside(plan.results, plan.todo)
    if link:
        raise Refused(f"results_dir: a link leads {link} out of {plan.results}; remove the link, or write another")
    for note in plan.notes:
        reporter.remark(note)
    if not plan.todo:
        return
    with contextlib.ExitStack() as contexts:
        if plan.manifest.track or any(config.track for config in plan.manifest.configs):
            from ablate.execution.tracking.sender import tracking

            user = plan.study.settings.user
            contexts.enter_context(tracking(plan.results, plan.manifest.study, user, reporter.remark))
        contexts.enter_context(reporter.training(plan))
        problem = run_plan(plan)
    if problem:
        reporter.remark(problem)


def run_plan(plan: Plan) -> str | None:
    """Train the remaining runs of a plan; returns a message if that failed for any reason.  Raises DiskFull."""
    from ablate.execution.launcher import launch, run_orders
    from ablate.execution.pool import StoppedEarly

    try:
        if not plan.is_local:
            failure = launch(plan.launcher, plan.orders())
            return f"{failure}; {CONTINUES}" if failure else None
        run_orders(plan.orders())
    except StoppedEarly as error:
        return str(error)
    except Exception as error:
        return f"the launcher failed ({whole_line(error)}); {CONTINUES}"
    return None


def no_space(plan: Plan, full: DiskFull) -> str:
    """The message for a full disk, in one line."""
    folder = plan.folder if full.file.is_relative_to(plan.results) else full.file
    how = "free some space (or move the results and write results_dir=...), and the same command continues"
    return f"no space left for {folder}: {how}"
