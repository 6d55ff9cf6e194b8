"""From the words of a command line to a plan: Command -> Design -> Composition -> Cells -> CheckedStudy -> Plan.

Each stage reads the result of the one before and raises PlanError with all mistakes that it finds.  A plan holds the
runs of one round.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import OmegaConf

from ablate.config.blame import blame, unreached
from ablate.config.citations import papers
from ablate.config.claims import applicable, metric_problems
from ablate.config.command import Command, StudyRequest, read_command
from ablate.config.components import taken_by
from ablate.config.compose import COMPOSING, Composed, Composer
from ablate.config.depth import folder_choice, named_settings
from ablate.config.errors import PlanError, Problem, first_line
from ablate.config.factors import BASE, Design, arrange, cell_name, factors_of, labels_of
from ablate.config.groups import names_in
from ablate.config.key_checks import idle_problems, study_problems, without_unit
from ablate.config.overrides import chosen, key_of
from ablate.config.schema import Config
from ablate.data.corpus import Unwritable, nothing_prepared, written_at_end
from ablate.execution.launcher import launcher_problems
from ablate.formatting import grouped, listed
from ablate.model.products import one_thread
from ablate.planning.cells import contradictions, describe_cells, match_cells
from ablate.planning.checks.preflight import try_out
from ablate.planning.checks.user_code import Failed, isolate_user_code
from ablate.planning.checks.validate import Checked, Validator
from ablate.planning.measured import with_kernels
from ablate.planning.only_variant import only_variant
from ablate.planning.rounds import next_round
from ablate.planning.runs import Plan, is_hydras
from ablate.planning.study import Cells, CheckedStudy, Layout, describe_task, study_name

PARTS = ("job", "hydra", "all")  # of Hydra's configuration


@dataclasses.dataclass(frozen=True)
class Composition(Layout):
    """Composed cells; they are named after they are matched."""

    design: Design
    cells: list[Composed]
    remarks: list[str]  # on the cells, for readers of the results

    @property
    def settings(self) -> Config:
        """The configuration with the study's own keys."""
        return self.cells[0].config


def plan_study(words: Sequence[str], config_dir: str | None = None) -> Plan:
    """Compose and check a command line, and plan its next round; nothing is trained or written.  Raises PlanError.
    Each round is a separate study: tuning, the requested study, its references for other
    numbers of steps."""
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
            with written_at_end():  # corpora of a plan that is refused are not
                yield
        except (Failed, Unwritable) as error:  # user code that has run before
            raise PlanError([Problem("", str(error))]) from None


def check_study(words: Sequence[str], config_dir: str | None = None) -> CheckedStudy:
    """The study of a command line, with every cell composed and checked.  Raises PlanError and Failed."""
    command = read_command(words, config_dir)
    try:
        composition = compose_cells(arrange(command))
        return with_kernels(study_of(composition, check_cells(composition)))
    except PlanError as error:  # problems of keys that the study file sets name that file
        raise PlanError([command.request.placed(problem) for problem in error.problems]) from None


def check_cell(words: Sequence[str], config_dir: str | None = None) -> Checked:
    """The one cell of a command line, composed and checked as in a study.  Raises PlanError, also for a sweep."""
    command = read_command(words, config_dir)
    if command.swept:
        raise PlanError([Problem(key, "takes one value here, since only one model is made") for key in command.swept])
    with _planning():
        return check_cells(compose_cells(arrange(command))).checked[0]


def check_cells(composition: Composition) -> Cells:
    """The cells of a composition: checked, matched, counted and tried out.  Raises PlanError."""
    settings, validator = composition.settings, Validator()
    raw = [cell.config for cell in composition.cells]
    with nothing_prepared() as unprepared:  # until everything else is right
        checked, problems = validator.validate(raw, composition.labels)
    if unprepared and not problems:
        checked, problems = validator.validate(raw, composition.labels)
    # What is wrong with the study's own keys and claims, given the cells that passed.
    command = composition.design.command
    problems += study_problems(settings) + about_metrics(command.request, checked)
    problems += idle_problems(command.given, settings)
    choices = {choice for cell in composition.cells for choice in cell.choices.items()}
    given = {*map(key_of, command.request.overrides)}.union(*(named_settings(*choice) for choice in choices))
    problems += contradictions(settings.match, given, list(command.swept))
    if wrong := without_unit(settings.margin, (next(iter(cell.task.metrics)) for cell in checked)):
        problems.append(Problem("margin", wrong))
    if problems:
        raise PlanError(at_levels(problems, composition.cells, command))
    checked = match_cells(settings.match, checked, composition.labels, composition.at, validator)
    both = zip(checked, composition.cells, strict=True)
    names = [cell_name(folder_choice(own.config, cell.choices)) for own, cell in both]
    cells = describe_cells(checked, raw, dataclasses.replace(composition, names=names))
    return dataclasses.replace(cells, notes=try_out(cells.rows, checked, settings))


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
    reasons = grouped((problem.message, problem.key) for problem in left)  # why a changed study cannot test claims
    unasked = [f"not tested here: {listed(keys)}, since {message}" for message, keys in reasons.items()]
    lost = [name for name in request.replicated.of if name not in claims] if request.replicated else []
    unmet = [f"replicated: is not judged: its claim {name} has no configurations here" for name in lost[:1]]
    groups = design.command.groups
    sources = papers((cell.choices for cell in composition.cells), groups)
    entries = request.kept | {"remarks": composition.remarks, "papers": sources}
    entries |= {"names": names_in(Path(groups.folder)) if groups.folder else {}}
    settings = dataclasses.replace(settings, study=settings.study or study_name(settings, cells))
    criterion, notes = None if lost else request.replicated, [*cells.notes, *unasked, *unmet]
    return CheckedStudy(design.command.typed, settings, cells, entries, claims, criterion, notes=notes)


def compose_cells(design: Design) -> Composition:
    """Compose every cell of a design.  Raises PlanError with all problems of the command line."""
    overrides = list(design.overrides())
    with Composer(design.command.groups, takes) as composer:
        try:
            cells, problems = [composer.compose(each) for each in overrides], design.problems
        except COMPOSING as error:
            found, valid = blame(composer, design.command, overrides)
            cells = []  # if the valid overrides cannot be composed either
            with contextlib.suppress(*COMPOSING):
                cells = [composer.compose(each) for each in arrange(valid).overrides()]
            known = {problem.key for problem in design.problems}
            new = [problem for problem in found if problem.key not in known]
            problems = [*design.problems, *new] or [Problem("", first_line(error))]
    if problems:  # the valid overrides are checked, too, so that every mistake is reported at once
        cells = [] if any(key_of(each.key) == "user" for each in problems) else cells  # more would follow from that
        with nothing_prepared():
            checked, wrong = Validator().validate(cell.config for cell in cells)
        wrong = at_levels(wrong, cells, design.command) + about_metrics(design.command.request, checked)
        raise PlanError(problems + wrong + (study_problems(cells[0].config) if cells else []))
    cells = [cell._replace(choices=design.command.with_level_names(cell.choices)) for cell in cells]
    levels, factors, reference = factors_of(cells, design)
    at = [levels.index(level | reference) for level in levels]
    missed = unreached(list(zip(cells, overrides, strict=True)), design.command.groups.variants["preset"])
    labels, whole = labels_of(cells, design), ", ".join(f"{name}={level}" for name, level in levels[0].items())
    remarks = [*design.notes, *missed, *[f"{BASE} is {whole}"] * (labels[0] == BASE)]
    if len(cells) == 1:
        remarks.append(only_variant(design.command, cells[0].choices))
    return Composition(factors, reference, [], labels, levels, at, design, cells, remarks)


def configuration_of(words: Sequence[str], config_dir: str | None, part: str) -> str:
    """The configuration of a command line in YAML: of the job, of Hydra, or all.  Raises PlanError."""
    if part not in PARTS:
        raise PlanError([Problem("--cfg", f"{part} is no part of the configuration; write --cfg {' or '.join(PARTS)}")])
    command = read_command(words, config_dir)
    if command.swept:
        raise PlanError([Problem("--cfg", "shows one configuration; leave out -m, and write one value for each key")])
    job = compose_cells(arrange(command)).settings.as_json()
    with Composer(command.groups) as composer:
        groups = next(composer.each_variant(filter(composer.chooses_group, command.fixed)))
        whole = compose("config", [*composer.search, *groups], return_hydra_config=True)
    hydra = {"hydra": whole.hydra}
    return OmegaConf.to_yaml({"job": job, "hydra": hydra, "all": job | hydra}[part])


def at_levels(problems: Iterable[Problem], cells: Iterable[Composed], command: Command) -> list[Problem]:
    """The problems; one of a setting in parentheses is reported by the level that has it, if only one does."""
    choices = {choice for cell in cells for choice in cell.choices.items()}
    settings = [(key, f"{group}={choice}") for group, choice in choices for key in named_settings(group, choice)]
    settings += [(key, f"{key_of(text)}={chosen(text)}") for text, beside in command.beside.items() for key in beside]
    levels = grouped(settings)
    only = {key: each[0] for key, each in levels.items() if len(each) == 1}
    return [Problem(only[key], f"{key}: {why}") if key in only else Problem(key, why) for key, why in problems]


def about_metrics(request: StudyRequest, checked: Iterable[Checked]) -> list[Problem]:
    """Problems of the metrics that claims name; empty if no cell passed."""
    passed = list(checked)
    lengths = [length for cell in passed for length in cell.config.eval.lengths]
    if not passed:
        return []
    timed = passed[0].config.timing == "isolated"
    found = metric_problems(request.claims, [dict(describe_task(cell).metrics) for cell in passed], lengths, timed)
    return [Problem(f"{request.file}: {problem.key}", problem.message) for problem in found]


def takes(config: Config, group: str, key: str) -> bool:
    """Whether the constructor of a component has an argument; false if it cannot be imported."""
    ask = partial(_takes, group, getattr(config, group), key, config.user)
    try:
        return bool(isolate_user_code(config, ask))
    except Failed:  # reported by its own check
        return False


def _takes(group: str, node: dict[str, Any], key: str, user: list[str]) -> bool:
    return key in taken_by(group, node, user)
