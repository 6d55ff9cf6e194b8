"""From the words of a command line to a plan.

    read_command      words and study file -> Setting, one for each key
    arrange           swept settings -> factors, and the cells of the design
    Composer.compose  the settings of a cell -> its configuration
    check_cells       configurations -> checked, matched and counted cells, tried out
    study_of          with the study's name and claims
    next_round        -> Plan: the runs of a round, with what is done

A misspelt name is answered before torch is loaded, which only cells need that the cache does not have.  Each step
collects the mistakes that it finds; PlanError has those of all steps up to the first that cannot go on.
"""

import dataclasses
from collections.abc import Sequence

from omegaconf import OmegaConf

from ablate.config.choices import Choice
from ablate.config.command import Command, read_command
from ablate.config.compose import Composed, hydras_own
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import compose_design
from ablate.config.key_checks import name_problem, study_problems
from ablate.config.launchers import hydra_problems
from ablate.config.schema import VARIED, WHOLE, Config
from ablate.planning.composition import composed_cells, naming_study_file
from ablate.planning.runs import Plan, is_hydras
from ablate.planning.study import Cells, CheckedStudy

PARTS = ("job", "hydra", "all")  # of Hydra's configuration
# Keys whose values are checked without building a model.
CHECKED_AT_ONCE = {*WHOLE, "train.steps", "train.batch_size", "train.eval_every", "optim.lr", "optim.warmup"}
CHECKED_AT_ONCE -= {"user", "track"}


def plan_study(words: Sequence[str], config_dir: str | None = None) -> Plan:
    """Compose and check a command line, and plan its next round; nothing is trained or written.  Raises PlanError.
    Each round is a separate study: tuning, the requested study, its references for other numbers of steps."""
    launcher = [word for word in words if is_hydras(word)]
    words = [word for word in words if not is_hydras(word)]
    command, cells = compose_words(words, config_dir, hydra_problems(launcher))
    from ablate.planning.check_study import check_composed, planning
    from ablate.planning.rounds import next_round

    with planning():
        return dataclasses.replace(next_round(check_composed(command, cells)), launcher=launcher)


def plan_again(plan: Plan) -> Plan:
    """The next round of the same command, after some of a plan's runs have ended.  Raises PlanError."""
    from ablate.planning.check_study import planning
    from ablate.planning.rounds import next_round

    with planning():
        return dataclasses.replace(next_round(plan.requested or plan.study), launcher=plan.launcher)


def check_study(words: Sequence[str], config_dir: str | None = None) -> CheckedStudy:
    """The study of a command line, with every cell composed and checked.  Raises PlanError."""
    command, cells = compose_words(words, config_dir)
    from ablate.planning.check_study import check_composed, planning

    with planning():
        return check_composed(command, cells)


def check_cell(words: Sequence[str], config_dir: str | None = None) -> Config:
    """The configuration of the one cell of a command line, checked as in a study.  Raises PlanError, also for a
    sweep."""
    command, problems = read_command(words, config_dir)
    problems += [Problem(key, "takes one value here, since only one model is made") for key in command.swept]
    cells = compose_cells(command, problems)
    from ablate.planning.check_study import check_cells, planning

    with planning():
        return check_cells(command, cells).rows[0].planned_config


def compose_words(
    words: Sequence[str], config_dir: str | None, others: Sequence[Problem] = ()
) -> tuple[Command, Cells]:
    """A command line and its composed cells.  Raises PlanError for its problems and these others."""
    command, problems = read_command(words, config_dir)
    with naming_study_file(command):
        return command, compose_cells(command, [*others, *problems])


def compose_cells(command: Command, problems: Sequence[Problem] = ()) -> Cells:
    """The composed cells of a command.  Raises PlanError for these problems and all others of the command line."""
    design, composed, wrong = compose_design(command)
    problems = [*problems, *wrong, *name_problems(composed)]
    if problems:
        raise PlanError(list(dict.fromkeys([*problems, *problems_from_building(command, composed, problems)])))
    return composed_cells(design, composed)


def name_problems(cells: list[Composed]) -> list[Problem]:
    """What is wrong with the study's name, before all cells are checked, which can take minutes."""
    message = name_problem(cells[0].config.study) if cells else None
    return [Problem("study", message)] if message else []


def problems_from_building(command: Command, cells: list[Composed], known: Sequence[Problem]) -> list[Problem]:
    """Problems that only building the models shows, of the cells without the settings that are wrong already.

    So all mistakes are reported at once.  It takes seconds, and is left out where no setting needs it.
    """
    is_user_package_wrong = any(problem.key.partition("=")[0] == "user" for problem in known)
    if is_user_package_wrong or not cells:
        return []
    if not needs_building(command):
        return study_problems(cells[0].config)
    from ablate.planning.check_study import problems_of_cells  # loads torch

    return problems_of_cells(command, cells)


def needs_building(command: Command) -> bool:
    """Whether a command has a file of the user's, or sets more than plain choices of components and keys that are
    checked without building a model."""
    if command.groups.folder or command.study_file:
        return True
    for key, setting in command.settings.items():
        is_plain = all(isinstance(value, Choice) and "(" not in value.text for value in setting.values)
        if key not in CHECKED_AT_ONCE and not (key in (*VARIED, "scale") and is_plain):
            return True
    return False


def configuration_as_yaml(words: Sequence[str], config_dir: str | None, part: str) -> str:
    """The configuration of a command line in YAML: of the job, of Hydra, or all; of a sweep the first one.  Raises
    PlanError."""
    if part not in PARTS:
        raise PlanError([Problem("--cfg", f"{part} is no part of the configuration; write --cfg {' or '.join(PARTS)}")])
    launcher = [word for word in words if is_hydras(word)]
    command, problems = read_command([word for word in words if not is_hydras(word)], config_dir)
    cells = compose_cells(command, [*hydra_problems(launcher), *problems])
    count = len(cells.drafts)
    comment = f"# {cells.drafts[0].label}, the first of {count} configurations\n" if count > 1 else ""
    job = cells.settings.as_json()
    if part == "job":
        return comment + str(OmegaConf.to_yaml(job))
    hydra = {"hydra": hydras_own(launcher, command.groups)}
    return comment + str(OmegaConf.to_yaml(hydra if part == "hydra" else job | hydra))
