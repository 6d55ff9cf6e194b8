"""The study of composed cells: each checked, matched, counted and tried out; with its name and its claims."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablate.config.choices import Choice, named_settings
from ablate.config.citations import papers
from ablate.config.claims import applicable, metric_problems
from ablate.config.command import Command
from ablate.config.compose import Composed
from ablate.config.depth import folder_choice
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import cell_name
from ablate.config.groups import names_in
from ablate.config.key_checks import idle_problems, study_problems, without_unit
from ablate.data.corpus import Unwritable, nothing_written, written_at_end
from ablate.formatting import grouped, listed
from ablate.model.products import one_thread
from ablate.planning.cells import CHECK, TRY, contradictions, describe_cells, inspect_cells, judge_cells
from ablate.planning.checks.child import Failed, one_child
from ablate.planning.checks.validate import Checked
from ablate.planning.composition import Composition, at_levels, naming_study_file
from ablate.planning.measured import with_kernels
from ablate.planning.study import Cells, CheckedStudy, describe_task, study_name


def check_composition(composition: Composition) -> CheckedStudy:
    """The study of a composition, with every cell checked.  Raises PlanError and Failed."""
    with naming_study_file(composition.command):
        return with_kernels(study_of(composition, check_cells(composition)))


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """Products on one thread; prepared texts are written at the end, so that a refused plan writes none."""
    with one_thread():
        try:
            with written_at_end(), one_child():
                yield
        except (Failed, Unwritable) as error:  # user code that has run before
            raise PlanError([Problem("", str(error))]) from None


def problems_of_cells(command: Command, cells: list[Composed]) -> list[Problem]:
    """The problems of cells that were composed without a command's wrong settings."""
    configs = [cell.config for cell in cells]
    with nothing_written(), one_child():
        found = inspect_cells(configs, [""] * len(configs), [], "none", CHECK)
    problems = at_levels(found.problems, command) + about_metrics(command, found.checked)
    return problems + study_problems(cells[0].config)


def check_cells(composition: Composition) -> Cells:
    """The cells of a composition: checked, matched, counted and tried out.  Raises PlanError."""
    settings = composition.settings
    command = composition.command
    configs = [draft.config for draft in composition.drafts]
    labels = [draft.label for draft in composition.drafts]
    references = [draft.reference for draft in composition.drafts]
    # What is wrong with the study's own keys.
    problems = [*study_problems(settings)]
    problems += idle_problems(keys_set_by(command, with_file=not command.changed), settings, configs)
    problems += contradictions(settings.match, keys_set_by(command), command.swept)
    found = inspect_cells(configs, labels, references, settings.match, CHECK if problems else TRY)
    # Claims and the margin depend on what the cells that passed measure.
    problems = found.problems + problems + about_metrics(command, found.checked)
    wrong_margin = without_unit(settings.margin, (next(iter(cell.task.metrics)) for cell in found.checked))
    if wrong_margin:
        problems.append(Problem("margin", wrong_margin))
    if problems:
        raise PlanError(at_levels(problems, command))
    drafts = []
    for draft, cell, composed in zip(composition.drafts, found.checked, composition.cells, strict=True):
        drafts.append(dataclasses.replace(draft, name=cell_name(folder_choice(cell.config, composed.choices))))
    cells = describe_cells(found.checked, drafts, composition.factors, composition.reference)
    return dataclasses.replace(cells, notes=judge_cells(cells, found, settings))


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


def study_of(composition: Composition, cells: Cells) -> CheckedStudy:
    """The study of checked cells: its name, its claims, and further entries of its manifest.  Raises PlanError for
    claims about missing cells, unless the command line changed the study file's factors."""
    settings = composition.settings
    command = composition.command
    settings = dataclasses.replace(settings, study=settings.study or study_name(settings, cells))
    entries: dict[str, Any] = {
        "remarks": composition.remarks,
        "papers": papers((cell.choices for cell in composition.cells), command.groups),
        "names": names_in(Path(command.groups.folder)) if command.groups.folder else {},
    }
    file = command.study_file
    if file is None:
        return CheckedStudy(command.typed, settings, cells, entries, notes=cells.notes)
    entries |= {"experiment": file.name, "asks": command.digest, "mirror": file.mirror, **file.texts}
    running = [cell.budget.running for cell in cells.checked]
    scored = {name: task.metrics for name, task in cells.tasks.items()}
    claims, left = applicable(file.claims, cells.rows, running, [row.task for row in cells.rows], scored)
    if left and not command.changed:
        raise PlanError([Problem(f"{file.file}: {problem.key}", problem.message) for problem in left])
    notes = list(cells.notes)
    reasons = grouped((problem.message, problem.key) for problem in left)  # why a changed study cannot test claims
    notes += [f"not tested here: {listed(keys)}, since {message}" for message, keys in reasons.items()]
    criterion = file.replicated
    missing = [name for name in criterion.of if name not in claims] if criterion else []
    if missing:
        notes.append(f"replicated: is not judged: its claim {missing[0]} has no configurations here")
        criterion = None
    return CheckedStudy(command.typed, settings, cells, entries, claims, criterion, notes=notes)


def about_metrics(command: Command, checked: Sequence[Checked]) -> list[Problem]:
    """Problems of the metrics that claims name; empty if no cell passed."""
    file = command.study_file
    if file is None or not checked:
        return []
    lengths = [length for cell in checked for length in cell.config.eval.lengths]
    timed = checked[0].config.timing == "isolated"
    problems = metric_problems(file.claims, [dict(describe_task(cell).metrics) for cell in checked], lengths, timed)
    return [Problem(f"{file.file}: {problem.key}", problem.message) for problem in problems]
