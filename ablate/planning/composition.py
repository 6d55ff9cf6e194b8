"""The composed cells of a command, with their levels and labels.  Needs no torch."""

import contextlib
from collections.abc import Iterator

from ablate.config.command import Command
from ablate.config.compose import Composed
from ablate.config.errors import PlanError
from ablate.config.factors import BASE, Design, labels_of, levels_and_factors
from ablate.planning.study import Cells, Draft

ONLY_ONE = "only one variant; for a comparison write several, as in norm=ln,rms"


def composed_cells(design: Design, composed: list[Composed]) -> Cells:
    """Composed cells with their levels, labels and remarks."""
    levels, factors, reference = levels_and_factors(composed, design)
    labels = labels_of(composed, design)
    drafts = []
    for cell, label, of_cell in zip(composed, labels, levels, strict=True):
        compared_with = levels.index(of_cell | reference)
        drafts.append(Draft(label, of_cell, compared_with, cell.config, dict(cell.choices)))
    remarks = [*design.notes]
    if labels[0] == BASE:
        whole = ", ".join(f"{name}={level}" for name, level in levels[0].items())
        remarks.append(f"{BASE} is {whole}")
    if len(drafts) == 1:
        remarks.append(ONLY_ONE)
    return Cells(factors, reference, drafts, remarks=list(dict.fromkeys(remarks)))


@contextlib.contextmanager
def naming_study_file(command: Command) -> Iterator[None]:
    """Have the problems of keys that the study file sets name that file."""
    try:
        yield
    except PlanError as error:
        raise PlanError([command.placed(problem) for problem in error.problems]) from None
