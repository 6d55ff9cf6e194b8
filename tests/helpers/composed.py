"""Configurations of command lines, composed and not checked further, and studies whose cells are checked."""

from collections.abc import Sequence

from ablate.config.command import read_command
from ablate.config.compose import Draft
from ablate.config.factors import compose_design
from ablate.planning.check_study import planning
from ablate.planning.plan import study_of_command
from ablate.planning.study import PlannedStudy


def composed_cells(*words: str, folder: str | None = None) -> list[Draft]:
    """The composed cells of a command line without mistakes."""
    command, problems = read_command(words, folder)
    _, cells, more = compose_design(command)
    assert [*problems, *more] == []
    return cells


def composed(*words: str, folder: str | None = None) -> Draft:
    """The composed cell of a command line that sweeps nothing."""
    [cell] = composed_cells(*words, folder=folder)
    return cell


def composing_problems(*words: str, folder: str | None = None) -> list[str]:
    """What composing finds wrong with a command line."""
    command, problems = read_command(words, folder)
    return [str(problem) for problem in [*problems, *compose_design(command)[2]]]


def check_study(words: Sequence[str], folder: str | None = None) -> PlannedStudy:
    """The study of a command line, with every cell checked.  Raises PlanError."""
    command, problems = read_command(words, folder)
    with planning():
        return study_of_command(command, problems)
