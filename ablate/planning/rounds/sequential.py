"""Rounds of a study with seeds=auto: one per look, until all is decided or the seeds are at their most."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from ablate.config.errors import PlanError, Problem
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import CheckedStudy
from ablate.results.records import Manifest
from ablate.results.study import load_study


def looks(study: CheckedStudy) -> Iterator[Plan]:
    """The study's plan, or with seeds=auto its plan at each look until one leaves nothing to decide."""
    if study.settings.seeds != "auto":
        yield plan_runs(study)
        return
    # SciPy takes a while, and no other study plans with it.
    from ablate.evidence import described, looks_until

    planned = looks_until(study.settings.seeds_max)
    for n in planned:
        plan = plan_runs(dataclasses.replace(study.set(seeds=n), looks=planned, more=n < planned[-1]))
        if described(plan.manifest) and not any(entry.registered for entry in plan.manifest.claims.values()):
            message = "auto has nothing to decide, since its registered claims are gone or edited; write seeds=8 or so"
            raise PlanError([Problem("seeds", message)])
        yield plan
        if decided(plan.results, plan.manifest):
            return


def decided(results: Path, manifest: Manifest) -> bool:
    """Whether a look leaves nothing for more seeds to decide: of registered claims, and of effects that are judged."""
    from ablate.evidence import claims, described, effects, registered, undecided

    study = load_study(results, manifest.study, manifest, curves=False)
    tables = [claims(study)] * bool(registered(manifest)) + [effects(study)] * (not described(manifest))
    return all(undecided(table).empty for table in tables)
