"""From the words of a command line to a plan.

    read_command          words and study file -> Command: a Setting for each key
    compose_study         Command -> PlannedStudy: its factors are swept Settings, its drafts the composed cells
    check_cells           with each draft checked, matched, counted and tried out, as a row of the manifest
    with_name_and_claims  with its name, and the study file's claims
    next_round            PlannedStudy -> Plan: the runs of a round, with what is done

A misspelt name is answered before torch is loaded, which only cells need that the cache does not have.  Each step
collects the mistakes that it finds; PlanError has those of all steps up to the first that cannot go on.
"""

import dataclasses
from collections.abc import Sequence

from omegaconf import OmegaConf

from ablate.config.choices import Choice
from ablate.config.command import Command, read_command
from ablate.config.compose import Draft, hydras_own
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import BASE, compose_design, labels_of, with_levels
from ablate.config.key_checks import name_problem, study_problems
from ablate.config.launchers import hydra_problems
from ablate.config.schema import VARIED, WHOLE, Config
from ablate.planning.check_study import check_cells, planning, problems_of_cells, with_name_and_claims
from ablate.planning.kernels import with_kernels
from ablate.planning.rounds import next_round
from ablate.planning.runs import Plan, is_hydras
from ablate.planning.study import PlannedStudy

PARTS = ("job", "hydra", "all")  # of Hydra's configuration
# Keys whose values are checked without building a model.
CHECKED_AT_ONCE = {*WHOLE, "train.steps", "train.batch_size", "train.eval_every", "optim.lr", "optim.warmup"}
CHECKED_AT_ONCE -= {"user", "track"}
ONLY_ONE = "only one variant; for a comparison write several, as in norm=ln,rms"


def plan_study(words: Sequence[str], config_dir: str | None = None) -> Plan:
    """Compose and check a command line, and plan its next round; nothing is trained or written.  Raises PlanError.
    Each round is a separate study: tuning, the requested study, its references for other numbers of steps."""
    launcher = [word for word in words if is_hydras(word)]
    command, problems = read_command([word for word in words if not is_hydras(word)], config_dir)
    with planning():
        study = study_of_command(command, [*hydra_problems(launcher), *problems])
        return dataclasses.replace(next_round(study), launcher=launcher)


def plan_again(plan: Plan) -> Plan:
    """The next round of the same command, after some of a plan's runs have ended.  Raises PlanError."""
    with planning():
        return dataclasses.replace(next_round(plan.requested or plan.study), launcher=plan.launcher)


def check_cell(words: Sequence[str], config_dir: str | None = None) -> Config:
    """The configuration of the one cell of a command line, checked as in a study.  Raises PlanError, also for a
    sweep."""
    command, problems = read_command(words, config_dir)
    problems += [Problem(key, "takes one value here, since only one model is made") for key in command.swept]
    with planning():
        composed = compose_study(command, problems)
        return check_cells(command, composed).rows[0].planned_config


def study_of_command(command: Command, problems: Sequence[Problem]) -> PlannedStudy:
    """The study of a command: composed, checked, with its name and its claims.  Raises PlanError for these problems and
    all others of the command line."""
    with command.naming_study_file():
        composed = compose_study(command, problems)
        checked = check_cells(command, composed)
        return with_kernels(with_name_and_claims(command, checked))


def compose_study(command: Command, problems: Sequence[Problem] = ()) -> PlannedStudy:
    """The study of a command, composed and not checked.  Raises PlanError for these problems and all others of the
    command line."""
    design, drafts, wrong = compose_design(command)
    problems = [*problems, *wrong, *name_problems(drafts)]
    if problems:
        raise PlanError(list(dict.fromkeys([*problems, *problems_from_building(command, drafts, problems)])))
    drafts, factors, reference = with_levels(drafts, design)
    labels = labels_of(drafts, design)
    drafts = [dataclasses.replace(draft, label=label) for draft, label in zip(drafts, labels, strict=True)]
    remarks = [*design.notes]
    if labels[0] == BASE:
        levels = ", ".join(f"{name}={level}" for name, level in drafts[0].levels.items())
        remarks.append(f"{BASE} is {levels}")
    if len(drafts) == 1:
        remarks.append(ONLY_ONE)
    entries = {"remarks": list(dict.fromkeys(remarks))}
    return PlannedStudy(command.typed, drafts[0].config, factors, reference, drafts, entries=entries)


def name_problems(drafts: list[Draft]) -> list[Problem]:
    """What is wrong with the study's name, before all cells are checked, which can take minutes."""
    message = name_problem(drafts[0].config.study) if drafts else None
    return [Problem("study", message)] if message else []


def problems_from_building(command: Command, drafts: list[Draft], known: Sequence[Problem]) -> list[Problem]:
    """Problems that only building the models shows, of the cells without the settings that are wrong already.

    So all mistakes are reported at once.  It takes seconds, and is left out where no setting needs it.
    """
    is_user_package_wrong = any(problem.key.partition("=")[0] == "user" for problem in known)
    if is_user_package_wrong or not drafts:
        return []
    if not needs_building(command):
        return study_problems(drafts[0].config)
    return problems_of_cells(command, drafts)


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
    study = compose_study(command, [*hydra_problems(launcher), *problems])
    count = len(study.drafts)
    comment = f"# {study.drafts[0].label}, the first of {count} configurations\n" if count > 1 else ""
    job = study.settings.as_json()
    if part == "job":
        return comment + str(OmegaConf.to_yaml(job))
    hydra = {"hydra": hydras_own(launcher, command.groups)}
    return comment + str(OmegaConf.to_yaml(hydra if part == "hydra" else job | hydra))
