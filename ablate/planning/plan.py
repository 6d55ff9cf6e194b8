"""From the words of a command line to a plan.

    read_command      words and study file -> Setting, one for each key
    arrange           swept settings -> factors, and the cells of the design
    Composer.compose  the settings of a cell -> its configuration
    check_cells       configurations -> checked, matched and counted cells, tried out
    study_of          with the study's name and claims
    next_round        -> Plan: the runs of a round, with what is done

Each step collects the mistakes that it finds; PlanError has those of all steps up to the first that cannot go on.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ablate.config.choices import Choice, named_settings
from ablate.config.citations import papers
from ablate.config.claims import applicable, metric_problems
from ablate.config.command import Command, read_command
from ablate.config.compose import Composed, hydras_own
from ablate.config.depth import folder_choice
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import BASE, cell_name, compose_design, labels_of, levels_and_factors, with_level_names
from ablate.config.groups import names_in
from ablate.config.key_checks import idle_problems, study_problems, without_unit
from ablate.config.schema import Config
from ablate.data.corpus import Unwritable, nothing_prepared, written_at_end
from ablate.execution.launcher import launcher_problems
from ablate.formatting import grouped, listed
from ablate.model.products import one_thread
from ablate.planning.cells import contradictions, describe_cells, match_cells
from ablate.planning.checks.preflight import try_out
from ablate.planning.checks.user_code import Failed
from ablate.planning.checks.validate import Checked, Validator
from ablate.planning.measured import with_kernels
from ablate.planning.only_variant import only_variant
from ablate.planning.rounds import next_round
from ablate.planning.runs import Plan, is_hydras
from ablate.planning.study import Cells, CheckedStudy, Layout, describe_task, study_name

PARTS = ("job", "hydra", "all")  # of Hydra's configuration


@dataclass(frozen=True)
class Composition(Layout):
    """Composed cells; they are named after they are matched."""

    command: Command
    cells: list[Composed]
    remarks: list[str]  # on the cells, for readers of the results

    @property
    def settings(self) -> Config:
        """The configuration with the study's own keys."""
        return self.cells[0].config


def plan_study(words: Sequence[str], config_dir: str | None = None) -> Plan:
    """Compose and check a command line, and plan its next round; nothing is trained or written.  Raises PlanError.
    Each round is a separate study: tuning, the requested study, its references for other numbers of steps."""
    launcher = [word for word in words if is_hydras(word)]
    problems = launcher_problems(launcher)
    if problems:
        raise PlanError(problems)
    with planning():
        study = check_study([word for word in words if not is_hydras(word)], config_dir)
        return dataclasses.replace(next_round(study), launcher=launcher)


def plan_again(plan: Plan) -> Plan:
    """The next round of the same command, after some of a plan's runs have ended.  Raises PlanError."""
    with planning():
        return dataclasses.replace(next_round(plan.requested or plan.study), launcher=plan.launcher)


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """Products on one thread; prepared texts are written at the end, so that a refused plan writes none."""
    with one_thread():
        try:
            with written_at_end():
                yield
        except (Failed, Unwritable) as error:  # user code that has run before
            raise PlanError([Problem("", str(error))]) from None


def check_study(words: Sequence[str], config_dir: str | None = None) -> CheckedStudy:
    """The study of a command line, with every cell composed and checked.  Raises PlanError and Failed."""
    command, problems = read_command(words, config_dir)
    try:
        composition = compose_cells(command, problems)
        return with_kernels(study_of(composition, check_cells(composition)))
    except PlanError as error:  # problems of keys that the study file sets name that file
        raise PlanError([command.placed(problem) for problem in error.problems]) from None


def check_cell(words: Sequence[str], config_dir: str | None = None) -> Checked:
    """The one cell of a command line, composed and checked as in a study.  Raises PlanError, also for a sweep."""
    command, problems = read_command(words, config_dir)
    problems += [Problem(key, "takes one value here, since only one model is made") for key in command.swept]
    with planning():
        return check_cells(compose_cells(command, problems)).checked[0]


def compose_cells(command: Command, problems: Sequence[Problem] = ()) -> Composition:
    """The composed cells of a command.  Raises PlanError for these problems and all others of the command line."""
    design, cells, wrong = compose_design(command)
    problems = [*problems, *at_levels(wrong, command)]
    if problems:
        raise PlanError(list(dict.fromkeys([*problems, *problems_of_cells(command, cells, problems)])))
    cells = with_level_names(cells, command.settings)
    levels, factors, reference = levels_and_factors(cells, design)
    compared_with = [levels.index(level | reference) for level in levels]
    labels = labels_of(cells, design)
    remarks = [*design.notes]
    for cell in cells:
        remarks += cell.remarks
    if labels[0] == BASE:
        whole = ", ".join(f"{name}={level}" for name, level in levels[0].items())
        remarks.append(f"{BASE} is {whole}")
    if len(cells) == 1:
        remarks.append(only_variant(command, cells[0].choices))
    remarks = list(dict.fromkeys(remarks))
    return Composition(factors, reference, [], labels, levels, compared_with, command, cells, remarks)


def problems_of_cells(command: Command, cells: list[Composed], known: Sequence[Problem]) -> list[Problem]:
    """Further problems of cells that were composed without a command's wrong settings, so that all mistakes are
    reported at once."""
    if any(problem.key.partition("=")[0] == "user" for problem in known):
        return []  # more would follow from that
    with nothing_prepared():
        checked, problems = Validator().validate([cell.config for cell in cells])
    problems = at_levels(problems, command) + about_metrics(command, checked)
    return problems + study_problems(cells[0].config)


def check_cells(composition: Composition) -> Cells:
    """The cells of a composition: checked, matched, counted and tried out.  Raises PlanError."""
    settings = composition.settings
    command = composition.command
    validator = Validator()
    raw = [cell.config for cell in composition.cells]
    with nothing_prepared() as unprepared:  # until everything else is right
        checked, problems = validator.validate(raw, composition.labels)
    if unprepared and not problems:
        checked, problems = validator.validate(raw, composition.labels)
    # What is wrong with the study's own keys and claims, given the cells that passed.
    problems += study_problems(settings)
    problems += about_metrics(command, checked)
    problems += idle_problems(command.typed_keys, settings)
    problems += contradictions(settings.match, keys_set_by(command), command.swept)
    wrong_margin = without_unit(settings.margin, (next(iter(cell.task.metrics)) for cell in checked))
    if wrong_margin:
        problems.append(Problem("margin", wrong_margin))
    if problems:
        raise PlanError(at_levels(problems, command))
    checked = match_cells(settings.match, checked, composition.labels, composition.at, validator)
    names = []
    for own, cell in zip(checked, composition.cells, strict=True):
        names.append(cell_name(folder_choice(own.config, cell.choices)))
    cells = describe_cells(checked, raw, dataclasses.replace(composition, names=names))
    return dataclasses.replace(cells, notes=try_out(cells.rows, checked, settings))


def keys_set_by(command: Command) -> set[str]:
    """The keys that a command or its study file sets, also behind the name of a variant."""
    keys = set(command.settings)
    for choice in choices_of(command):
        keys |= named_settings(choice.group, choice.text)
    return keys


def choices_of(command: Command) -> list[Choice]:
    """The choices of groups in a command."""
    choices = []
    for setting in command.settings.values():
        choices += [value for value in setting.values if isinstance(value, Choice)]
    return choices


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


def configuration_of(words: Sequence[str], config_dir: str | None, part: str) -> str:
    """The configuration of a command line in YAML: of the job, of Hydra, or all.  Raises PlanError."""
    if part not in PARTS:
        raise PlanError([Problem("--cfg", f"{part} is no part of the configuration; write --cfg {' or '.join(PARTS)}")])
    command, problems = read_command(words, config_dir)
    if command.swept:
        message = "shows one configuration; leave out -m, and write one value for each key"
        problems.append(Problem("--cfg", message))
    job = compose_cells(command, problems).settings.as_json()
    if part == "job":
        return str(OmegaConf.to_yaml(job))
    hydra = {"hydra": hydras_own([], command.groups)}
    return str(OmegaConf.to_yaml(hydra if part == "hydra" else job | hydra))


def at_levels(problems: Iterable[Problem], command: Command) -> list[Problem]:
    """The problems; one of a setting in parentheses is reported by the choice that has it, if only one does."""
    by_key = grouped(
        (key, f"{choice.group}={choice.text}")
        for choice in choices_of(command)
        for key in {*named_settings(choice.group, choice.text), *choice.beside}
    )
    placed = []
    for problem in problems:
        levels = by_key.get(problem.key, [])
        if len(levels) == 1:
            problem = Problem(levels[0], f"{problem.key}: {problem.message}")
        placed.append(problem)
    return placed


def about_metrics(command: Command, checked: Sequence[Checked]) -> list[Problem]:
    """Problems of the metrics that claims name; empty if no cell passed."""
    file = command.study_file
    if file is None or not checked:
        return []
    lengths = [length for cell in checked for length in cell.config.eval.lengths]
    timed = checked[0].config.timing == "isolated"
    problems = metric_problems(file.claims, [dict(describe_task(cell).metrics) for cell in checked], lengths, timed)
    return [Problem(f"{file.file}: {problem.key}", problem.message) for problem in problems]
