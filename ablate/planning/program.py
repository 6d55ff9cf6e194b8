"""From the words of `ablate command` to a plan: a study whose configurations are values of the settings of a program.

read_program_file   a study file with `command:` at the top -> its command, words and claims
read_request        command and words -> fields, settings, options
study_of_program    settings -> factors and cells, with the keys of every study
next_round          -> Plan, as for every study
"""

import dataclasses
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ablate.config.claims import Level, Levels
from ablate.config.command import Command, digest_of
from ablate.config.compose import Draft
from ablate.config.designs import DESIGNS, NOTES, size
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import Design, factors_of, with_levels
from ablate.config.groups import read_groups
from ablate.config.launchers import hydra_problems
from ablate.config.program_keys import CODE, RUNNING, config_of, with_program_file, word_of
from ablate.config.schema import Config
from ablate.config.study_file import is_one_of
from ablate.config.words import MOST, Setting, read_words
from ablate.planning.check_study import with_name_and_claims
from ablate.planning.revisions import revision_facts, revision_notes, uncommitted_note, with_revisions
from ablate.planning.rounds import next_round
from ablate.planning.runs import Plan
from ablate.planning.study import PlannedStudy
from ablate.program.order import digest_of as hash_of
from ablate.program.words import Request, read_request
from ablate.runs.naming import measured_as
from ablate.runs.records import Cell, TaskFacts, Way

VARIABLE = re.compile(r"\$\w+")  # of a shell
LONGEST = 60  # characters of a folder's name
TASK = "program"  # the name of a program's task in its manifest
OUT_UNUSED = "if runs write files, pass {out}, a folder of each run's own"


def plan_program(command: str, words: Sequence[str]) -> Plan:
    """The plan of a command line; nothing is started or written.  Without a command its first word names a study file.
    Raises PlanError with all mistakes."""
    typed_command = shlex.join(["ablate", "command", command, *words])
    if command.startswith("study="):
        words = [command, *words]
        command = ""
    file, command, words, problems = with_program_file(command, words)
    if not command and problems:
        raise PlanError(problems)
    request, wrong_words = read_request(command, words)
    problems += wrong_words
    if command and not wrong_words and CODE not in request.settings:
        problems += missing_file(request)
    problems += hydra_problems(request.launcher)
    if request.launcher and "parallel" in request.options:
        problems.append(Problem("parallel", "is for runs on this machine; leave it to the launcher"))
    groups = read_groups()
    settings, wrong_settings = read_words(request.of_study, groups)
    settings = {**settings_of_program(request), **settings}
    config, wrong_keys = config_of(settings, groups)
    design, wrong_design = design_of(settings, config)
    request, wrong_revisions = with_revisions(request, Path(config.results_dir))
    problems += [*wrong_settings, *wrong_keys, *wrong_design, *wrong_revisions]
    if file:
        for name, claim in file.claims.items():
            if any(metric != request.metric for metric in claim.metrics):
                problems.append(
                    Problem(f"{file.file}: claims.{name}", f"metric: is that of the study, {request.metric}")
                )
    if problems:
        raise PlanError(problems)
    composed_of = Command(words, groups, settings, file)
    if file:
        of_file = {key: setting.text for key, setting in file.settings.items() if key in settings}
        changed = any(settings[key].text != text for key, text in of_file.items() if not is_one_of(key, RUNNING))
        digest = digest_of(file, settings, set(file.settings))
        composed_of = dataclasses.replace(composed_of, changed=changed, digest=digest)
    study = study_of_program(typed_command, request, design, config, composed_of)
    plan = dataclasses.replace(next_round(study), launcher=request.launcher)
    results = Path(config.results_dir)
    notes = [*uncommitted_note(request, results), *(notes_on(request, results) if plan.todo else [])]
    return dataclasses.replace(plan, notes=[*plan.notes, *notes])


def notes_on(request: Request, results: Path) -> list[str]:
    """What may make runs of a command affect each other, and what its revisions lack."""
    notes = []
    if "out" not in request.fields and not request.revisions:  # each of which has a tree
        notes.append(OUT_UNUSED)
    variable = VARIABLE.search(request.command)
    if variable and not request.template.in_shell:
        notes.append(f"{variable[0]} is passed as it stands, since no shell reads the command; shell=true has one")
    values = [value for of_setting in request.settings.values() for value in of_setting]
    device = re.search(r"\bcuda:[1-9]\d*", " ".join([*request.template.words, *values]))
    if device:
        notes.append(f"{device[0]}: where there are several GPUs each run is given one, which it sees as cuda:0")
    if "budget" in request.options and int(request.options.get("parallel", "1")) > 1:
        notes.append("runs at a time share this machine, so that each reaches fewer steps in its time")
    if request.revisions:
        notes += revision_notes(request, results)
    return notes


def missing_file(request: Request) -> list[Problem]:
    """That the first Python file of a command is not there, unless a shell or another machine may have it."""
    for word in request.template.words:
        if word.endswith(".py") and word not in request.files and not os.path.isabs(word):
            if request.template.in_shell or Path(word).exists() or "{" in word:
                break
            return [Problem("command", f"{word} is not in {os.getcwd()}, where the command is run; go to its folder")]
    return []


def settings_of_program(request: Request) -> dict[str, Setting]:
    """The settings of a program as those of a study; those with several values are swept."""
    settings = {}
    for name, values in request.settings.items():
        settings[name] = Setting(name, values, word_of(name, values), swept=len(values) > 1)
    return settings


def design_of(settings: dict[str, Setting], config: Config) -> tuple[Design, list[Problem]]:
    """The combinations of values that are configurations; the first values, or with leave_one_out the last, are the
    reference."""
    kind = config.design if config.design != "ladder" else "grid"  # which is a problem already
    factors, problems = factors_of(settings)
    compared = []
    for factor in factors:
        last = len(factor.levels) - 1
        compared.append(dataclasses.replace(factor, reference=last if kind == "leave_one_out" else 0))
    counts = [len(factor.levels) for factor in compared]
    if size(kind, counts) > MOST:
        problems.append(Problem("design", f"{kind} has {size(kind, counts):,} configurations; write fewer values"))
        kind = "one_at_a_time"
    reference = tuple(factor.reference or 0 for factor in compared)
    notes = [NOTES[kind]] if kind in NOTES else []
    return Design(kind, settings, compared, DESIGNS[kind](counts, reference), notes), problems


def study_of_program(
    typed_command: str, request: Request, design: Design, config: Config, command: Command
) -> PlannedStudy:
    """The study of a program: its configurations, name and claims.  Raises PlanError for claims about missing ones."""
    drafts = []
    for cell in design.cells:
        fixed = {name: values[0] for name, values in request.settings.items()}
        drafts.append(Draft(config, fixed | design.level_settings(cell)))
    drafts, factors, reference = with_levels(drafts, design)
    rows = [cell_of(request, draft.choices, draft.levels, draft.levels == reference) for draft in drafts]
    if config.study is None:
        config = dataclasses.replace(config, study=study_name(request, factors, config.design, rows))
    remarks = list(design.notes)
    if len(rows) == 1:
        remarks.append("only one configuration; for a comparison give a setting several values, as in bias=true,false")
    direction: Way = "min" if request.lower_is_better else "max"
    task = TaskFacts(name=name_of(request), metrics={measured_as(request.metric): direction})
    entries = {"remarks": remarks, "program": request.command, "endpoint": request.metric, "track": config.track}
    study = PlannedStudy(
        typed_command, config, factors, reference, drafts, rows, {TASK: task}, entries, request=request
    )
    return with_name_and_claims(command, study)


def cell_of(request: Request, values: dict[str, str], levels: Levels, is_reference: bool) -> Cell:
    """A configuration: these values of all settings, of which the levels are compared."""
    compared = {name: value for name, value in values.items() if len(request.settings[name]) > 1}
    # Without "=", at which some programs split the path in --out_dir=PATH.
    name = re.sub(r"[^\w.+-]+", "_", "+".join(f"{name}-{value}" for name, value in compared.items()))
    return Cell(
        id=f"c{hash_of([request.content, request.with_tree_of_revision(values), values])[:10]}",
        name=name[:LONGEST] or "single",
        label=", ".join(f"{name}={value}" for name, value in compared.items()) or "the command",
        levels=levels,
        reference=is_reference,
        notes=revision_facts(request, values[CODE]) if request.revisions else [],
        batches="",
        task=TASK,
        params=None,
        flops_per_token=None,
        config=None,
    )


def study_name(request: Request, factors: dict[str, list[Level]], design: str, cells: list[Cell]) -> str:
    """The default name of a study: its factors, and a hash of its configurations."""
    head = "-".join(re.sub(r"[^\w.]+", "_", name) for name in factors)[:LONGEST] or "single"
    return f"{head}-{hash_of([design, [cell.id for cell in cells]])[:6]}"


def name_of(request: Request) -> str:
    """What the study is about, in short: the file that the command names first, else its first word."""
    words = request.template.words[0].split() if request.template.in_shell else request.template.words
    files = [word for word in words[1:] if Path(word).is_file()]  # the first is its interpreter
    return Path(files[0] if files else words[0]).name
