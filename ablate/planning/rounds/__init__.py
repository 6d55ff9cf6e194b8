"""The rounds of a command: each a study of its own, planned when the ones before it have ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ablate.config.errors import PlanError
from ablate.config.schema import Config
from ablate.planning.rounds.sequential import looks
from ablate.planning.rounds.tuning_checks import tuning_problems
from ablate.planning.runs import Plan
from ablate.planning.study import CheckedStudy


def next_round(study: CheckedStudy) -> Plan:
    """The first round of a study that has something left to train, else its last, beside those that have ended."""
    ended: dict[str, Plan] = {}
    for plan in rounds_of(study):
        if plan.todo:
            break
        ended.pop(plan.study.name, None)
        ended[plan.study.name] = plan
    ended.pop(plan.study.name, None)
    return dataclasses.replace(plan, ended=list(ended.values()), asked=study)


def rounds_of(study: CheckedStudy) -> Iterator[Plan]:
    """The plans of a command's rounds in order, the study's own last; the next is made when all runs of one have ended.

    Raises PlanError.
    """
    if has_other_cells(study.settings):
        from ablate.planning.rounds.other_cells import with_other_cells  # which are counted, with torch

        yield from with_other_cells(study)
        return
    if problems := tuning_problems(study):
        raise PlanError(problems)
    yield from looks(study)


def has_other_cells(settings: Config) -> bool:
    """Whether some round has cells that the study itself has not: each at other values, placebos, other steps."""
    return settings.tune.key is not None or bool(settings.placebo_seeds) or settings.step_equivalents
