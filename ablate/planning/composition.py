"""The composed cells of a command, with their levels and labels.  Needs no torch."""

import contextlib
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ablate.config.choices import Choice, named_settings
from ablate.config.claims import Level, Levels
from ablate.config.command import Command
from ablate.config.compose import Composed
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import BASE, Design, labels_of, levels_and_factors
from ablate.config.schema import VARIED, Config
from ablate.formatting import grouped
from ablate.planning.study import Draft
from ablate.runs.records import Manifest

ONLY = "only one variant"


@dataclass(frozen=True)
class Composition:
    """Composed cells of a design."""

    command: Command
    factors: dict[str, list[Level]]
    reference: Levels  # the reference level of each compared factor
    cells: list[Composed]
    drafts: list[Draft]
    remarks: list[str]  # on the cells, for readers of the results

    @property
    def settings(self) -> Config:
        """The configuration with the study's own keys."""
        return self.cells[0].config


def composition_of(command: Command, design: Design, cells: list[Composed]) -> Composition:
    """Composed cells with their levels, labels and remarks."""
    levels, factors, reference = levels_and_factors(cells, design)
    labels = labels_of(cells, design)
    drafts = []
    for cell, label, of_cell in zip(cells, labels, levels, strict=True):
        compared_with = levels.index(of_cell | reference)
        drafts.append(Draft(label, of_cell, compared_with, cell.config, dict(cell.choices)))
    remarks = [*design.notes]
    if labels[0] == BASE:
        whole = ", ".join(f"{name}={level}" for name, level in levels[0].items())
        remarks.append(f"{BASE} is {whole}")
    if len(cells) == 1:
        remarks.append(only_variant(command))
    remarks = list(dict.fromkeys(remarks))
    return Composition(command, factors, reference, cells, drafts, remarks)


def only_variant(command: Command) -> str:
    """The remark on a study of one cell, with a comparison of the first variant that the command chooses."""
    example = "norm=ln,rms"
    for group in (*VARIED, "optim"):
        usual = command.groups.defaults.get(group)
        setting = command.settings.get(group)
        if usual and setting and str(setting.value) != usual:
            example = f"{command.groups.plus(group)}{group}={usual},{setting.value}"
            break
    return f"{ONLY}; for a comparison write {shlex.quote(example)}"


def about_one_variant(manifest: Manifest) -> list[str]:
    """The remark of `only_variant`, if a study has it."""
    return [remark for remark in manifest.remarks if remark.startswith(ONLY)]


def preset_notes(composition: Composition) -> list[str]:
    """Which variants each preset chooses, where they are not the command's or the reference model's."""
    command = composition.command
    if "preset" not in command.settings:
        return []
    notes = []
    for cell in composition.cells:
        chosen = []
        for group, name in cell.choices.items():
            if group not in ("preset", *command.settings) and name != command.groups.defaults.get(group):
                chosen.append(f"{group}={name}")
        if chosen:
            notes.append(f"preset={cell.choices['preset']} sets {', '.join(chosen)}")
    return list(dict.fromkeys(notes))


@contextlib.contextmanager
def naming_study_file(command: Command) -> Iterator[None]:
    """Have the problems of keys that the study file sets name that file."""
    try:
        yield
    except PlanError as error:
        raise PlanError([command.placed(problem) for problem in error.problems]) from None


def choices_of(command: Command) -> list[Choice]:
    """The choices of groups in a command."""
    choices = []
    for setting in command.settings.values():
        choices += [value for value in setting.values if isinstance(value, Choice)]
    return choices


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
