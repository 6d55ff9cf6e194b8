"""The study of composed cells: each checked, matched, counted and tried out; with its name and its claims."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from ablate.config.choices import Choice, named_settings
from ablate.config.citations import papers
from ablate.config.claims import applicable, metric_problems
from ablate.config.command import Command
from ablate.config.compose import Draft
from ablate.config.errors import PlanError, Problem
from ablate.config.groups import names_in
from ablate.config.key_checks import CHOSEN, idle_problems, study_problems, without_unit
from ablate.config.schema import BY_STEPS
from ablate.formatting import grouped, listed
from ablate.planning.cells import inspect_cells
from ablate.planning.checks.child import Failed, one_child
from ablate.planning.study import CHECK, TRY, Inspection, PlannedStudy, study_name


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """One child process for user code.  Raises PlanError for user code that passed the checks, and failed later."""
    try:
        with one_child():
            yield
    except Failed as error:
        raise PlanError([Problem("", str(error))]) from None


def problems_of_cells(command: Command, drafts: list[Draft]) -> list[Problem]:
    """The problems of cells that were composed without a command's wrong settings."""
    with one_child():
        inspection = inspect_cells(drafts, drafts[0].config, CHECK)
    problems = inspection.problems + about_metrics(command, inspection, drafts)
    return problems + study_problems(drafts[0].config)


def check_cells(command: Command, study: PlannedStudy) -> PlannedStudy:
    """A composed study with its cells checked, matched, counted and tried out.  Raises PlanError."""
    settings = study.settings
    # What is wrong with the study's own keys.
    problems = [*study_problems(settings)]
    configs = [draft.config for draft in study.drafts]
    problems += idle_problems(keys_set_by(command, with_file=not command.changed), settings, configs)
    problems += match_problems(settings.match, command)
    inspection = inspect_cells(study.drafts, settings, CHECK if problems else TRY)
    # Claims and the margin depend on what the cells that passed measure.
    problems = inspection.problems + problems + about_metrics(command, inspection, study.drafts)
    wrong_margin = without_unit(settings.margin, (task.measured for task in inspection.tasks.values()))
    if wrong_margin:
        problems.append(Problem("margin", wrong_margin))
    if problems:
        raise PlanError(problems)
    return dataclasses.replace(study, rows=inspection.rows, tasks=inspection.tasks, notes=inspection.notes)


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


def with_name_and_claims(command: Command, study: PlannedStudy) -> PlannedStudy:
    """A checked study with its name, its claims, and further entries of its manifest.  Raises PlanError for claims
    about missing cells, unless the command line changed the study file's factors."""
    settings = dataclasses.replace(study.settings, study=study.settings.study or study_name(study))
    # Those of a program are values of its settings.
    choices = [draft.choices for draft in study.drafts if study.rows[0].config]
    entries = study.entries | {
        "papers": papers(choices, command.groups),
        "names": names_in(Path(command.groups.folder)) if command.groups.folder else {},
    }
    file = command.study_file
    if file is None:
        return dataclasses.replace(study, settings=settings, entries=entries)
    entries |= {"experiment": file.name, "asks": command.digest, "mirror": file.mirror, **file.texts}
    claims, left = applicable(file.claims, study.rows, [row.task for row in study.rows])
    if left and not command.changed:
        raise PlanError([Problem(f"{file.file}: {problem.key}", problem.message) for problem in left])
    notes = [*study.notes]
    reasons = grouped((problem.message, problem.key) for problem in left)  # why a changed study cannot test claims
    notes += [f"not tested here: {listed(keys)}, since {message}" for message, keys in reasons.items()]
    criterion = file.replicated
    missing = [name for name in criterion.of if name not in claims] if criterion else []
    if missing:
        notes.append(f"replicated: is not judged: its claim {missing[0]} has no configurations here")
        criterion = None
    return dataclasses.replace(
        study, settings=settings, entries=entries, claims=claims, replicated=criterion, notes=notes
    )


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
