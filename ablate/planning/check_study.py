"""The study of composed cells: each checked, matched, counted and tried out; with its name and its claims."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.config.choices import Choice, named_settings
from ablate.config.citations import papers
from ablate.config.claims import applicable, metric_problems
from ablate.config.command import Command
from ablate.config.compose import Composed
from ablate.config.errors import PlanError, Problem
from ablate.config.groups import names_in
from ablate.config.key_checks import CHOSEN, idle_problems, study_problems, without_unit
from ablate.config.schema import BY_STEPS
from ablate.formatting import grouped, listed
from ablate.planning.cells import inspect_cells
from ablate.planning.checks.child import Failed, one_child
from ablate.planning.composition import naming_study_file
from ablate.planning.kernels import with_kernels
from ablate.planning.study import CHECK, TRY, Cells, CheckedStudy, Draft, Inspection, study_name


def check_composed(command: Command, cells: Cells) -> CheckedStudy:
    """The study of composed cells, with every cell checked.  Raises PlanError and Failed."""
    with naming_study_file(command):
        return with_kernels(study_of(command, check_cells(command, cells)))


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """One child process for user code.  Raises PlanError for user code that passed the checks, and failed later."""
    try:
        with one_child():
            yield
    except Failed as error:
        raise PlanError([Problem("", str(error))]) from None


def problems_of_cells(command: Command, cells: list[Composed]) -> list[Problem]:
    """The problems of cells that were composed without a command's wrong settings."""
    drafts = [Draft("", {}, 0, cell.config, {}) for cell in cells]
    with one_child():
        inspection = inspect_cells(drafts, cells[0].config, CHECK)
    problems = inspection.problems + about_metrics(command, inspection, drafts)
    return problems + study_problems(cells[0].config)


def check_cells(command: Command, cells: Cells) -> Cells:
    """Composed cells checked, matched, counted and tried out.  Raises PlanError."""
    settings = cells.settings
    # What is wrong with the study's own keys.
    problems = [*study_problems(settings)]
    configs = [draft.config for draft in cells.drafts]
    problems += idle_problems(keys_set_by(command, with_file=not command.changed), settings, configs)
    problems += match_problems(settings.match, command)
    inspection = inspect_cells(cells.drafts, settings, CHECK if problems else TRY)
    # Claims and the margin depend on what the cells that passed measure.
    problems = inspection.problems + problems + about_metrics(command, inspection, cells.drafts)
    wrong_margin = without_unit(settings.margin, (task.measured for task in inspection.tasks.values()))
    if wrong_margin:
        problems.append(Problem("margin", wrong_margin))
    if problems:
        raise PlanError(problems)
    return dataclasses.replace(cells, rows=inspection.rows, tasks=inspection.tasks, notes=inspection.notes)


def match_problems(match: str, command: Command) -> list[Problem]:
    """Problems of keys that the match chooses, too; steps may be set, for the reference, but not swept."""
    keys = {*command.swept} if match == BY_STEPS else keys_set_by(command)
    problems = []
    for key in CHOSEN.get(match, ()):
        if key in keys:
            message = f"match={match} chooses it per configuration; leave it out or write match=none"
            problems.append(Problem(key, message))
    return problems


def keys_set_by(command: Command, with_file: bool = True) -> set[str]:
    """The keys that a command and its study file set, also behind the name of a variant."""
    keys = set()
    for key, setting in command.settings.items():
        if setting.file and not with_file:
            continue
        keys.add(key)
        for value in setting.values:
            if isinstance(value, Choice):
                keys |= named_settings(value.group, value.text) | set(value.beside)
    return keys


def study_of(command: Command, cells: Cells) -> CheckedStudy:
    """The study of checked cells: its name, its claims, and further entries of its manifest.  Raises PlanError for
    claims about missing cells, unless the command line changed the study file's factors."""
    settings = cells.settings
    settings = dataclasses.replace(settings, study=settings.study or study_name(settings, cells))
    # Those of a program are values of its settings.
    choices = [draft.choices for draft in cells.drafts if cells.rows[0].config]
    entries: dict[str, Any] = {
        "remarks": cells.remarks,
        "papers": papers(choices, command.groups),
        "names": names_in(Path(command.groups.folder)) if command.groups.folder else {},
    }
    file = command.study_file
    notes = [*cells.notes]
    if file is None:
        return CheckedStudy(command.typed, settings, cells, entries, notes=notes)
    entries |= {"experiment": file.name, "asks": command.digest, "mirror": file.mirror, **file.texts}
    claims, left = applicable(file.claims, cells.rows, [row.task for row in cells.rows])
    if left and not command.changed:
        raise PlanError([Problem(f"{file.file}: {problem.key}", problem.message) for problem in left])
    reasons = grouped((problem.message, problem.key) for problem in left)  # why a changed study cannot test claims
    notes += [f"not tested here: {listed(keys)}, since {message}" for message, keys in reasons.items()]
    criterion = file.replicated
    missing = [name for name in criterion.of if name not in claims] if criterion else []
    if missing:
        notes.append(f"replicated: is not judged: its claim {missing[0]} has no configurations here")
        criterion = None
    return CheckedStudy(command.typed, settings, cells, entries, claims, criterion, notes=notes)


def about_metrics(command: Command, inspection: Inspection, drafts: list[Draft]) -> list[Problem]:
    """Problems of the metrics that claims name; empty if no cell passed."""
    file = command.study_file
    if file is None or not inspection.tasks:
        return []
    lengths = [length for draft in drafts for length in draft.config.eval.lengths]
    is_timed = drafts[0].config.timing == "isolated"
    metrics: list[dict[str, str]] = [{**task.metrics} for task in inspection.tasks.values()]
    problems = metric_problems(file.claims, metrics, lengths, is_timed)
    return [Problem(f"{file.file}: {problem.key}", problem.message) for problem in problems]
