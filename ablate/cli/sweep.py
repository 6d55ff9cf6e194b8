"""Trains a study on the command line: its plan (`dry_run=true`), output during training, and the exit code."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ablate import api, evidence
from ablate.cli.similar_study import similar_study
from ablate.cli.summary import summary
from ablate.config.depth import chosen_at
from ablate.config.errors import PlanError, Refused
from ablate.config.key_checks import CHOSEN
from ablate.config.subcommands import Outcome
from ablate.execution.signals import DiskFull, Terminated
from ablate.formatting import columns, counted, epochs, first_of, percent, remainder
from ablate.formatting.streams import say
from ablate.planning.only_variant import about_one_variant
from ablate.planning.runs import Plan
from ablate.runs import naming
from ablate.runs.folder import untested
from ablate.runs.records import Cell, Manifest
from ablate.runs.study import Study

DONE, FAILED, WRONG, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
MOST, HEAD, TAIL = 40, 20, 5  # up to MOST cells are all shown, else the first HEAD and the last TAIL
NAMED = 4  # cells with the same note that are listed


class Terminal:
    """A reporter that prints remarks on standard error, the live view and the summary; it stores study and remarks."""

    def __init__(self) -> None:
        self.study: Study | None = None
        self.remarks: list[str] = []

    def remark(self, text: str) -> None:
        """Print one line."""
        self.remarks.append(text)
        say(text)

    def training(self, plan: Plan) -> AbstractContextManager[None]:
        """Show the live view."""
        from ablate.cli.status import follow  # imports Rich, needed only for training

        return follow(plan.results, plan.manifest.study, plan.todo)

    def ended(self, plan: Plan, study: Study, seconds: float | None) -> None:
        """Print the summary."""
        self.study = study
        print(summary(study, plan.folder, seconds), flush=True)


def sweep(plan: Plan) -> Outcome:
    """Train the remaining runs of a plan and print the summary; if it ends early, print how to continue."""
    terminal = Terminal()
    if like := similar_study(plan.results, plan.manifest):
        terminal.remark(f"{plan.manifest.study} is {like}")
    for line in about_one_variant(plan.manifest):
        terminal.remark(line)
    try:
        study = api.train(plan, terminal)
        statuses = dict(zip(study.runs["path"], study.runs["status"], strict=True))
        lack = untested(plan.results, study.manifest, statuses)
        for path, lengths in lack.items():
            terminal.remark(f"{path} was not tested at eval.lengths={lengths}; its result stands")
        code = FAILED if lack or {"failed", "missing"} & {*statuses.values()} else DONE
    except (KeyboardInterrupt, Terminated) as stop:
        kept = "checkpoints are kept" if plan.is_local else "jobs of the launcher may go on until you cancel them there"
        terminal.remark(f"stopped; {kept}, and the same command continues")
        code = INTERRUPTED if isinstance(stop, KeyboardInterrupt) else TERMINATED
    except DiskFull as full:
        terminal.remark(api.no_space(plan, full))
        code = FAILED
    except (PlanError, Refused) as error:  # of a later round, for example if tuning now chooses another value
        for line in str(error).splitlines():
            terminal.remark(line)
        code = FAILED if isinstance(error, PlanError) else WRONG  # only a later round is planned here
    return Outcome(code, terminal.study and verdicts(terminal.study), terminal.remarks)


def verdicts(study: Study) -> dict[str, object]:
    """A study for `--json`: its runs, cells, effects, claims and multipliers."""
    tables = {"cells": evidence.cells(study), "effects": evidence.effects(study), "claims": evidence.claims(study)}
    tables |= {"ladder": evidence.ladder(study)} if study.manifest.design == "ladder" else {}
    overall = evidence.replication(study.manifest, tables["claims"])
    return {"study": study.manifest.study, "runs": study.runs, **tables, "replicated": overall, "notes": study.notes}


def dry_run(plan: Plan) -> Outcome:
    """Print a plan, and the expected time of its training and of training vectors; `--json` has its cells and runs."""
    time, vectors = "", list[str]()
    if plan.todo:  # else torch is not imported
        from ablate.planning.measured import expected_time, expected_vectors

        time, vectors = expected_time(plan), expected_vectors(plan)
    print(preview(plan, time, vectors))
    known = ("id", "label", "reference", "params", "flops_per_token", "shared_draws", "levels", "notes")
    cells = [{name: getattr(cell, name) for name in known} for cell in plan.manifest.cells]
    runs = []
    for run in plan.manifest.runs:
        runs.append({"cell": run.cell, "seed": run.seed, "path": run.path, "status": plan.statuses[run.path]})
    result = {"study": plan.manifest.study, "folder": str(plan.folder), "cells": cells, "runs": runs, "todo": plan.todo}
    return Outcome(0, result | {"time": time, "vectors": vectors}, [*plan.manifest.remarks, *plan.notes])


def preview(plan: Plan, time: str = "", vectors: Sequence[str] = ()) -> str:
    """A plan as text: a table of its cells, totals, the expected `time`, the cost of `vectors`, the expected noise."""
    from ablate.planning.rounds import scored_plan  # imports torch

    cells, seeds = plan.manifest.cells, plan.manifest.seeds
    tasks = ", ".join(dict.fromkeys(task.title for task in plan.manifest.tasks.values()))
    test = sum(status == "untested" for status in plan.statuses.values())
    cell = counted(len(cells), "configuration")
    seed = counted(len(seeds), "seed")
    run = counted(len(plan.statuses), "run")
    seed += ", twice as many on lower rungs" * (len(plan.manifest.runs) > len(cells) * len(seeds))
    runs = f"{cell} × {seed} = {run}, {len(plan.todo) - test} to do" + f", {test} to test at new lengths" * bool(test)
    like = similar_study(plan.results, plan.manifest)
    where = f"study {plan.manifest.study} in {plan.folder}" + f", {like}" * bool(like)
    held = [*evidence.rung_lines(plan.manifest), *evidence.also_lines(plan.manifest)]
    held += evidence.same_setting_line(plan.manifest)
    quantities = [cell.matched.quantity for cell in cells if cell.matched]
    held += [f"match={plan.manifest.match}: {quantity}" for quantity in quantities[:1]]
    notes = naming.notes(cells)
    study = [*about(plan.manifest), *plan.manifest.remarks]
    steps = first_of(dict.fromkeys(f"{cell.planned_config.train.steps:,}" for cell in cells), NAMED)
    tokens = first_of(dict.fromkeys(f"{cell.tokens_per_step or 0:,}" for cell in cells), NAMED)
    seen = first_of(dict.fromkeys(epochs(plan.manifest.passes(cell)) for cell in cells), NAMED)
    trained = f"{tasks}, {steps} steps of {tokens} tokens ({seen})"  # 600 steps of 1,024 tokens (0.07 epochs)
    noise = evidence.noise_lines((scored_plan(plan) or plan).manifest)
    totals = [f"{trained}; {runs}", *([time] if time else []), *vectors, *noise, where]
    shown = cells if len(cells) <= MOST else [*cells[:HEAD], *cells[-TAIL:]]
    table = columns([heads(plan), *(row(plan, cell) for cell in shown)], numeric=True)
    if len(shown) < len(cells):
        table.insert(1 + HEAD, f"… {counted(len(cells) - len(shown), 'more configuration')} between; --json has all")
    end = "dry run: nothing was trained or written"
    return "\n".join([*table, "", *totals, *study, *held, *notes, *merge_notes(plan.notes, cells), end])


def merge_notes(notes: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    """Notes, with equal ones of several cells (they begin with the cell's label) merged."""
    labels, found = {cell.label for cell in cells}, dict[str, list[str]]()
    for note in notes:
        label, _, text = note.partition(": ")
        found.setdefault(text if label in labels else note, []).append(label)
    return [f"{first_of(whose, NAMED)}: {text}" if set(whose) <= labels else text for text, whose in found.items()]


def heads(plan: Plan) -> tuple[str, ...]:
    """The headings of the table's columns."""
    budget = ("parameters", "difference", "FLOPs/token", "difference", "same initial weights")
    return ("configuration", *budget, *matching(plan), "to do", "done")


def about(manifest: Manifest) -> list[str]:
    """The study's question, published result and number of claims, one line each."""
    claims = list(manifest.claims.values())
    late = sum(not entry.registered for entry in claims)
    early = "registered: written before any seed had results on both sides"
    when = f"{late} post hoc: written when there were results" if late else early
    lines = naming.question_lines(manifest)
    lines += [f"zip: {', '.join(manifest.zip)} change together"] if manifest.zip else []
    return lines + ([f"{counted(len(claims), 'claim')}, {when}"] if claims else [])


def row(plan: Plan, cell: Cell) -> tuple[str, ...]:
    """The row of one cell."""
    statuses = [plan.statuses[run.path] for run in plan.manifest.runs if run.cell == cell.id]
    cells = plan.manifest.cells
    reference = cells[plan.study.cells.at[cells.index(cell)]]
    done = sum(status in ("done", "diverged", "untested") for status in statuses)
    matched: tuple[str, ...] = ()
    if chosen := matching(plan):
        left = remainder(cell.matched.difference) if cell.matched else ""
        matched = (str(chosen_at(cell.planned_config.as_json(), chosen[0].split("."))), left)
    budget = (*_cost(cell.params, reference.params), *_cost(cell.flops_per_token, reference.flops_per_token))
    label, shared = cell.label + " (reference)" * cell.reference, f"{100 * (cell.shared_draws or 0):.0f} %"
    return (label, *budget, shared, *matched, str(len(statuses) - done), str(done))


def _cost(value: float | None, reference: float | None) -> tuple[str, str]:
    """A cell's parameters or FLOPs, and how many more these are than the reference's."""
    if value is None or not reference:
        return "", ""
    return f"{value:,.0f}", percent(value / reference - 1)


def matching(plan: Plan) -> tuple[str, ...]:
    """The headings of the two columns on matching: the adjusted key and the match; empty without matching."""
    how = plan.manifest.match
    return () if how == "none" else (CHOSEN[how][0], f"match={how}")
