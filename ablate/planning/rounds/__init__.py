"""The rounds of a command: each a study of its own, planned when the ones before it have ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator

from ablate.config.errors import PlanError
from ablate.planning.cells import Draft
from ablate.planning.rounds.placebo import placebo_problems, placebo_study
from ablate.planning.rounds.sequential import looks
from ablate.planning.rounds.step_equivalents import exchange_problems, with_exchange
from ablate.planning.rounds.tuning import tuned
from ablate.planning.rounds.tuning_checks import tuning_problems
from ablate.results.records import Manifest


def rounds_of(draft: Draft, name: str) -> Generator[Draft, Manifest, None]:
    """The drafts of a command's rounds in order, the study's own last; each is answered with its ended manifest.

    `name` is the study's; rounds before it are called by it, too.  Raises PlanError.
    """
    problems = tuning_problems(draft, name) + placebo_problems(draft) + exchange_problems(draft)
    if problems:
        raise PlanError(problems)
    draft = dataclasses.replace(draft, settings=draft.settings | {"study": name})
    if draft.settings["tune"]["key"] is not None:
        draft = yield from tuned(draft, name)
    if draft.settings["aa"]:
        placebos = placebo_study(draft, name)
        yield placebos
        draft = dataclasses.replace(draft, extra=draft.extra | {"placebos": placebos.settings["study"]})
    yield from with_exchange(looks(draft)) if draft.settings["exchange"] else looks(draft)
