"""The rounds of a command that trains other cells, too: tuning, placebos, exchange runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ablate.config.errors import PlanError
from ablate.planning.rounds.placebo import placebo_problems, placebo_study
from ablate.planning.rounds.sequential import looks
from ablate.planning.rounds.step_equivalents import exchange_problems, with_exchange
from ablate.planning.rounds.tuning import tuned
from ablate.planning.rounds.tuning_checks import tuning_problems
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import CheckedStudy


def with_other_cells(study: CheckedStudy) -> Iterator[Plan]:
    """The plans of all rounds in order.  Raises PlanError."""
    problems = tuning_problems(study) + placebo_problems(study) + exchange_problems(study)
    if problems:
        raise PlanError(problems)
    if study.settings.tune.key is not None:
        study = yield from tuned(study)
    if study.settings.placebo_seeds:
        placebos = placebo_study(study)
        yield plan_runs(placebos)
        study = dataclasses.replace(study, entries=study.entries | {"placebos": placebos.name})
    yield from with_exchange(study) if study.settings.step_equivalents else looks(study)
