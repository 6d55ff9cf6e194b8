"""Trains a study on the command line, or shows its plan (`dry_run=true`): output and the exit code."""

import contextlib
from contextlib import AbstractContextManager

from ablate import api, evidence
from ablate.cli.preview import next_step, preview
from ablate.cli.summary import summary
from ablate.config.errors import PlanError, Refused
from ablate.config.subcommands import Outcome
from ablate.execution.signals import DiskFull, Terminated
from ablate.formatting.streams import echo, say
from ablate.planning.plan import ONLY_ONE
from ablate.planning.reporting import report
from ablate.planning.runs import Plan
from ablate.runs.folder import untested
from ablate.runs.study import Study

DONE = 0
FAILED = 1
WRONG = 2
INTERRUPTED = 130
TERMINATED = 143


class Terminal:
    """A reporter that prints remarks on standard error, the live view and the summary; it stores study and remarks."""

    def __init__(self) -> None:
        self.study: Study | None = None
        self.remarks: list[str] = []

    def remark(self, text: str) -> None:
        """Print one line."""
        self.remarks.append(text)
        say(text)

    def training(self, plan: api.Plan) -> AbstractContextManager[None]:
        """Show the live view."""
        from ablate.cli.status import follow  # imports Rich, needed only for training

        return follow(plan.results, plan.manifest.study, plan.todo)

    def ended(self, plan: api.Plan, study: Study, seconds: float | None) -> None:
        """Print the summary."""
        self.study = study
        with contextlib.suppress(BrokenPipeError):  # nobody reads it; the exit code says how the runs ended
            echo(summary(study, plan.folder, seconds))


def sweep(plan: Plan) -> Outcome:
    """Train the remaining runs of a plan and print the summary; if it ends early, print how to continue."""
    terminal = Terminal()
    if ONLY_ONE in plan.manifest.remarks:
        terminal.remark(ONLY_ONE)
    code = train(plan, terminal)
    result = verdicts(terminal.study) if terminal.study else None
    return Outcome(code, result, terminal.remarks)


def train(plan: api.Plan, terminal: Terminal) -> int:
    """Train a plan; returns the exit code."""
    try:
        study = api.train(plan, terminal)
    except (KeyboardInterrupt, Terminated) as stop:
        kept = "checkpoints are kept" if plan.is_local else "jobs of the launcher may go on until you cancel them there"
        if plan.manifest.program:
            kept = "runs that have ended are kept"
        terminal.remark(f"stopped; {kept}, and the same command continues")
        return INTERRUPTED if isinstance(stop, KeyboardInterrupt) else TERMINATED
    except DiskFull as full:
        terminal.remark(api.no_space(plan, full))
        return FAILED
    except PlanError as error:  # of a later round, for example if tuning now chooses another value
        for problem in error.problems:
            terminal.remark(str(problem))
        return FAILED
    except Refused as error:
        terminal.remark(str(error))
        return WRONG
    statuses = dict(zip(study.runs["path"], study.runs["status"], strict=True))
    not_tested = untested(plan.results, study.manifest, statuses)
    for path, lengths in not_tested.items():
        terminal.remark(f"{path} was not tested at eval.lengths={lengths}; its result stands")
    if not_tested or not {"failed", "missing"}.isdisjoint(statuses.values()):
        return FAILED
    return DONE


def verdicts(study: Study) -> dict[str, object]:
    """A study for `--json`: its runs, cells, effects, claims and multipliers."""
    manifest = study.manifest
    claims = evidence.claims(study)
    result: dict[str, object] = {"study": manifest.study, "runs": study.runs, "cells": evidence.cells(study)}
    result |= {"effects": evidence.effects(study), "claims": claims}
    if manifest.design == "ladder":
        result["ladder"] = evidence.ladder(study)
    return result | {"replicated": evidence.replication(manifest, claims), "notes": study.notes}


def expected_cost(plan: Plan) -> str:
    """What a plan's training costs on this machine, as a line."""
    if not plan.todo:  # torch is not imported
        return ""
    from ablate.planning.measured import expected_time

    report("timing a few steps")
    return expected_time(plan)


def dry_run(plan: Plan, time: str) -> Outcome:
    """Print a plan with its expected time and the command that trains it; `--json` has its configurations and runs."""
    echo(f"{preview(plan, time)}\n{next_step(plan)}")
    keys = ("id", "label", "reference", "params", "flops_per_token", "shared_draws", "levels", "notes")
    cells = []
    for cell in plan.manifest.cells:
        cells.append({key: getattr(cell, key) for key in keys})
    runs = []
    for run in plan.manifest.runs:
        runs.append({"cell": run.cell, "seed": run.seed, "path": run.path, "status": plan.statuses[run.path]})
    result = {"study": plan.manifest.study, "folder": str(plan.folder), "cells": cells, "runs": runs, "todo": plan.todo}
    return Outcome(0, result | {"time": time}, [*plan.manifest.remarks, *plan.notes])
