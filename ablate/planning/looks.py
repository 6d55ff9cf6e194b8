"""Looks at results that a study has had, its own and others'; they are logged by `ablate.results.manifest`."""

from __future__ import annotations

import dataclasses
from collections import Counter

from ablate.planning.earlier_runs import Earlier, read_earlier
from ablate.planning.study import CheckedStudy
from ablate.results.records import Look, PlannedRun, Sequential
from ablate.results.run import now


def looked_at(study: CheckedStudy, earlier: Earlier, seeds: list[int]) -> tuple[list[Look], list[int]]:
    """The looks that a study has had, and the seeds besides `seeds` that were seen in one of another plan."""
    looks = earlier.looks
    looks = looks + looks_before(study.looks, study.settings.seeds, looks)
    seen = {seed for look in looks if look.planned != study.looks for seed in look.seeds}
    return looks, sorted(seen - set(seeds))


def looks_before(planned: list[int], at: int, logged: list[Look]) -> list[Look]:
    """The looks of a sequence before this one that are not logged: who is sent on has had them, killed or not."""
    found = [Look(seeds=list(range(n)), planned=planned, when=now()) for n in planned if n < at]
    known = [(look.seeds, look.planned) for look in logged]
    return [look for look in found if (look.seeds, planned) not in known]


def sequence_of(study: CheckedStudy) -> Sequential | None:
    """What the manifest of a look says of its sequence; None where the number of seeds is fixed."""
    planned = study.looks
    return Sequential(looks=planned, at=study.settings.seeds, max=planned[-1]) if planned else None


def other_looks(earlier: Earlier, runs: list[PlannedRun]) -> list[Look]:
    """Looks that other studies took at the cells of this one: seeds added after them were added after a look, too.

    Who saw a single cell of several, the common reference say, has seen no comparison of this study.  A run that is
    trained again, under reuse=none say, has been seen: its numbers are the same.
    """
    ours, found = {run.path for run in runs} | {(run.cell, run.seed) for run in runs}, []
    least = min(2, len({run.cell for run in runs}))
    for name in sorted(earlier.studies - {earlier.name}):
        other = read_earlier(earlier.results, name)
        known = [run for run in other.runs if ours & {run.path, (run.cell, run.seed)}]
        count = Counter(run.seed for run in known)
        shared = {seed for seed, cells in count.items() if cells >= least}
        for look in other.looks:
            if seeds := sorted(shared.intersection(look.seeds)):
                found.append(dataclasses.replace(look, seeds=seeds, study=name))
    return found
