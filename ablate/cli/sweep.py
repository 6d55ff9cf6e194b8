"""Trains a study on the command line: output during training, and the exit code."""

from contextlib import AbstractContextManager

from ablate import api, evidence
from ablate.cli.diff import nearest
from ablate.cli.summary import summary
from ablate.config.errors import PlanError, Refused
from ablate.config.subcommands import Outcome
from ablate.execution.signals import DiskFull, Terminated
from ablate.formatting.streams import say
from ablate.planning.runs import Plan
from ablate.results.run import untested
from ablate.results.study import Study

DONE, FAILED, WRONG, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


class Terminal:
    """A reporter that prints remarks on standard error, and the live view and the summary on standard output.  It
    stores the ended study and the remarks."""

    def __init__(self) -> None:
        self.study: Study | None = None
        self.remarks: list[str] = []

    def remark(self, text: str) -> None:
        """Print one line."""
        self.remarks.append(text)
        say(text)

    def training(self, plan: Plan) -> AbstractContextManager[None]:
        """Show the live view."""
        from ablate.cli.monitor import follow  # imports Rich, needed only for training

        return follow(plan.results, plan.manifest.study, plan.todo)

    def ended(self, plan: Plan, study: Study, seconds: float | None) -> None:
        """Print the summary."""
        self.study = study
        print(summary(study, plan.folder, seconds), flush=True)


def sweep(plan: Plan) -> Outcome:
    """Train the remaining runs of a plan and print the summary; if it ends early, print how to continue."""
    terminal, code = Terminal(), WRONG
    if like := nearest(plan.results, plan.manifest):
        terminal.remark(f"{plan.manifest.study} is {like}")
    try:
        study = api.train(plan, terminal)
        statuses = dict(zip(study.runs["path"], study.runs["status"], strict=True))
        lack = untested(plan.results, study.manifest, statuses)
        for path, lengths in lack.items():
            terminal.remark(f"{path} was not tested at eval.lengths={lengths}; its result stands")
        code = FAILED if lack or {"failed", "missing"} & {*statuses.values()} else DONE
    except (KeyboardInterrupt, Terminated) as stop:
        terminal.remark("stopped; checkpoints are kept, and the same command continues")
        code = INTERRUPTED if isinstance(stop, KeyboardInterrupt) else TERMINATED
    except DiskFull as full:
        terminal.remark(api.no_space(plan, full))
        code = FAILED
    except (PlanError, Refused) as error:  # of a later round, for example if tuning now chooses another value
        for line in str(error).splitlines():
            terminal.remark(line)
    return Outcome(code, terminal.study and verdicts(terminal.study), terminal.remarks)


def verdicts(study: Study) -> dict[str, object]:
    """A study for `--json`: its runs, cells, effects and claims."""
    tables = {"cells": evidence.cells(study), "effects": evidence.effects(study), "claims": evidence.claims(study)}
    overall = evidence.replication(study.manifest, tables["claims"])
    return {"study": study.manifest.study, "runs": study.runs, **tables, "replicated": overall, "notes": study.notes}
