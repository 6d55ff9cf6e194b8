"""Rounds of a study with seeds=auto: one per look, until all is decided or the seeds are at their most."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from pathlib import Path

from ablate.planning.cells import Draft
from ablate.results.records import Look, Manifest, Sequential
from ablate.results.run import now
from ablate.results.study import load_study


def looks(draft: Draft) -> Generator[Draft, Manifest, None]:
    """The draft itself, or with seeds=auto the draft at each look; takes the manifest of a look that has ended."""
    if draft.settings["seeds"] != "auto":
        yield draft
        return
    from ablate.evidence import looks_until  # SciPy takes a while, and no other study plans with it

    planned = looks_until(draft.settings["seeds_max"])
    for n in planned:
        settings = draft.settings | {"seeds": n}
        manifest = yield dataclasses.replace(draft, settings=settings, looks=planned, more=n < planned[-1])
        if decided(Path(settings["results_dir"]), manifest):
            return


def decided(results: Path, manifest: Manifest) -> bool:
    """Whether a look leaves nothing that more seeds could decide: of the registered claims, or else of the effects."""
    from ablate.evidence import claims, effects, registered, undecided

    study = load_study(results, manifest.study, manifest, curves=False)
    return undecided(claims(study) if registered(manifest) else effects(study)).empty


def looks_before(planned: list[int], at: int, logged: list[Look]) -> list[Look]:
    """The looks of a sequence before this one that are not logged: who is sent on has had them, killed or not."""
    found = [Look(seeds=list(range(n)), planned=planned, when=now()) for n in planned if n < at]
    known = [(look.seeds, look.planned) for look in logged]
    return [look for look in found if (look.seeds, planned) not in known]


def sequence_of(planned: list[int], at: int) -> Sequential | None:
    """What the manifest of a look says of its sequence; None where the number of seeds is fixed."""
    return Sequential(looks=planned, at=at, max=planned[-1]) if planned else None
