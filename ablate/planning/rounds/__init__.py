"""The rounds of a command: each a separate study, planned when the ones before it have ended."""

import dataclasses
from collections.abc import Iterator

from ablate.config.errors import PlanError
from ablate.planning.rounds.placebo import placebo_problems, placebo_study
from ablate.planning.rounds.sequential import looks
from ablate.planning.rounds.step_equivalents import step_equivalents_problems, with_step_equivalents
from ablate.planning.rounds.tuning import tuned, tuning_problems
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import CheckedStudy


def next_round(study: CheckedStudy) -> Plan:
    """The first round of a study that has something left to train, else its last, and the rounds that have ended."""
    ended: dict[str, Plan] = {}
    for plan in rounds_of(study):
        if plan.todo:
            break
        ended.pop(plan.study.name, None)
        ended[plan.study.name] = plan
    ended.pop(plan.study.name, None)
    return dataclasses.replace(plan, ended=list(ended.values()), requested=study)


def rounds_of(study: CheckedStudy) -> Iterator[Plan]:
    """The plans of a command's rounds in order, the study's own last; the next is made when all runs of one have ended.

    Raises PlanError.
    """
    settings = study.settings
    if problems := tuning_problems(study) + placebo_problems(study) + step_equivalents_problems(study):
        raise PlanError(problems)
    if settings.tune.key is not None:
        study = yield from tuned(study)
    if settings.placebo_seeds:
        placebos = placebo_study(study)
        yield plan_runs(placebos)
        study = dataclasses.replace(study, entries=study.entries | {"placebos": placebos.name})
    yield from with_step_equivalents(study) if settings.step_equivalents else looks(study)
