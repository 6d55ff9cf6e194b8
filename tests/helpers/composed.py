"""Configurations of command lines, composed and not checked further."""

from ablate.config.command import read_command
from ablate.config.compose import Composed
from ablate.config.factors import compose_design


def composed_cells(*words: str, folder: str | None = None) -> list[Composed]:
    """The composed cells of a command line without mistakes."""
    command, problems = read_command(words, folder)
    _, cells, more = compose_design(command)
    assert [*problems, *more] == []
    return cells


def composed(*words: str, folder: str | None = None) -> Composed:
    """The composed cell of a command line that sweeps nothing."""
    [cell] = composed_cells(*words, folder=folder)
    return cell


def composing_problems(*words: str, folder: str | None = None) -> list[str]:
    """What composing finds wrong with a command line."""
    command, problems = read_command(words, folder)
    return [str(problem) for problem in [*problems, *compose_design(command)[2]]]
