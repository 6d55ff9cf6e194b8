"""From the words of a command line to a plan: Command -> Design -> Composition -> Cells -> CheckedStudy -> Plan.

Each stage reads the result of the one before and raises PlanError with all mistakes that it finds.  A plan holds the
runs of one round.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from ablate.config.citations import papers
from ablate.config.claims import applicable
from ablate.config.command import read_command
from ablate.config.depth import folder_choice, named_settings
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import arrange, cell_name
from ablate.config.groups import names_in
from ablate.config.key_checks import idle_problems, study_problems, without_unit
from ablate.config.overrides import key_of
from ablate.execution.launcher import launcher_problems
from ablate.formatting import listed
from ablate.planning.budget_matching import contradictions, match_cells
from ablate.planning.checks.preflight import one_thread, try_out
from ablate.planning.checks.user_code import Failed, end_kept
from ablate.planning.checks.validate import Checked, Validator
from ablate.planning.composition import Composition, about_metrics, at_levels, compose_cells
from ablate.planning.describe import describe_cells
from ablate.planning.kernels import with_kernels
from ablate.planning.rounds import next_round
from ablate.planning.runs import Plan, is_hydras
from ablate.planning.step_seconds import with_step_seconds
from ablate.planning.study import Cells, CheckedStudy, Layout, study_name


def plan_study(words: Sequence[str], config_dir: str | None = None) -> Plan:
    """Compose and check a command line, and plan its next round; nothing is trained or written.  Raises PlanError.
    Each round is a separate study: tuning, placebos, the requested study, its exchange runs."""
    launcher = [word for word in words if is_hydras(word)]
    if problems := launcher_problems(launcher):
        raise PlanError(problems)
    with _planning():
        study = check_study([word for word in words if not is_hydras(word)], config_dir)
        return dataclasses.replace(next_round(study), launcher=launcher)


def plan_again(plan: Plan) -> Plan:
    """The next round of the same command, after some of a plan's runs have ended.  Raises PlanError."""
    with _planning():
        return dataclasses.replace(next_round(plan.requested or plan.study), launcher=plan.launcher)


@contextlib.contextmanager
def _planning() -> Iterator[None]:
    with one_thread():
        try:
            yield
        except Failed as error:  # user code that has run before
            raise PlanError([Problem("", str(error))]) from None
        finally:
            end_kept()


def check_study(words: Sequence[str], config_dir: str | None = None) -> CheckedStudy:
    """The study of a command line, with every cell composed and checked.  Raises PlanError and Failed."""
    command = read_command(words, config_dir)
    try:
        composition = compose_cells(arrange(command))
        cells = check_cells(composition)
        return with_step_seconds(with_kernels(study_of(composition, cells)))
    except PlanError as error:  # problems of keys that the study file sets name that file
        raise PlanError([command.request.placed(problem) for problem in error.problems]) from None


def check_cell(words: Sequence[str], config_dir: str | None = None) -> Checked:
    """The one cell of a command line, composed and checked as in a study.  Raises PlanError, also for a sweep."""
    command = read_command(words, config_dir)
    if command.swept:
        raise PlanError([Problem(key, "build makes one model; write one value") for key in command.swept])
    with _planning():
        return check_cells(compose_cells(arrange(command))).checked[0]


def check_cells(composition: Composition) -> Cells:
    """The cells of a composition: checked, matched, counted and tried out.  Raises PlanError."""
    settings, validator, at = composition.settings, Validator(), composition.at
    raw = [cell.config for cell in composition.cells]
    checked, problems = validator.validate(raw, composition.labels)
    problems += composition.problems + study_wide_problems(composition, checked)
    if problems:
        raise PlanError(at_levels(problems, composition.cells))
    checked = match_cells(settings.match, checked, composition.labels, at, validator)
    both = zip(checked, composition.cells, strict=True)
    names = [cell_name(folder_choice(own.config, cell.choices)) for own, cell in both]
    factors, reference = composition.factors, composition.reference
    layout = Layout(factors, reference, names, composition.labels, composition.levels, at)
    cells = describe_cells(checked, raw, layout)
    return dataclasses.replace(cells, notes=try_out(cells.rows, checked, settings))


def study_wide_problems(composition: Composition, checked: list[Checked]) -> list[Problem]:
    """What is wrong with a study's own keys and claims, given the cells that passed."""
    settings, command = composition.settings, composition.design.command
    problems = study_problems(settings) + about_metrics(command.request, checked)
    problems += idle_problems(command.given, settings)
    choices = {choice for cell in composition.cells for choice in cell.choices.items()}
    given = {*map(key_of, command.request.overrides)}.union(*(named_settings(*choice) for choice in choices))
    problems += contradictions(settings.match, given, list(command.swept))
    if wrong := without_unit(settings.margin, (next(iter(cell.task.metrics)) for cell in checked)):
        problems.append(Problem("margin", wrong))
    return problems


def study_of(composition: Composition, cells: Cells) -> CheckedStudy:
    """The study of checked cells: its name, its claims, and further entries of its manifest.  Raises PlanError for
    claims about missing cells, unless the command line changed the study file's factors."""
    settings, design = composition.settings, composition.design
    request = design.command.request
    running = [cell.budget.running for cell in cells.checked]
    scored = {name: task.metrics for name, task in cells.tasks.items()}
    claims, left = applicable(request.claims, cells.rows, running, [row.task for row in cells.rows], scored)
    if left and not request.changed:
        raise PlanError([Problem(f"{request.file}: {problem.key}", problem.message) for problem in left])
    reasons: dict[str, list[str]] = {}  # why a changed study cannot test claims
    for problem in left:
        reasons.setdefault(problem.message, []).append(problem.key)
    unasked = [f"not asked here: {listed(keys)}, since {message}" for message, keys in reasons.items()]
    lost = [name for name in request.replicated.of if name not in claims] if request.replicated else []
    unmet = [f"replicated: is not judged, since there are no cells of its claim {name} here" for name in lost[:1]]
    groups = design.command.groups
    sources = papers((cell.choices for cell in composition.cells), groups)
    return CheckedStudy(
        design.command.typed,
        dataclasses.replace(settings, study=settings.study or study_name(settings, cells)),
        cells,
        request.kept
        | {"aliases": design.aliases, "remarks": composition.remarks, "papers": sources}
        | {"names": names_in(Path(groups.folder)) if groups.folder else {}},
        claims,
        None if lost else request.replicated,
        notes=[*cells.notes, *unasked, *unmet],
    )
