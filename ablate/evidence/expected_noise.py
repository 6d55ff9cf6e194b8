"""What a study can expect of noise before it is trained: from the nearest contrasts of the noise atlas, or nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas

from ablate.config.claim_relations import BOUNDED
from ablate.config.groups import groups
from ablate.evidence.claims.rules import contrast_of
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.equivalence import PAIRS, SEEDS, margin_of
from ablate.evidence.estimates import groups as batches
from ablate.evidence.family import ALPHA, registered
from ablate.evidence.noise_atlas import read_atlas
from ablate.evidence.noise_floor import MOST, SINGLE, seeds_to_bound
from ablate.evidence.scores import endpoints
from ablate.evidence.sequential import planned_looks
from ablate.evidence.statistics import findable
from ablate.format import MINUS, between, counted, first_of, plain, size
from ablate.format.settings import is_number
from ablate.results.naming import no_evidence
from ablate.results.records import Manifest

FARTHEST = math.log(10)  # of parameters × steps, either way: what is farther says nothing
ALIKE = math.log(1.1)  # of the same: what is nearer needs no word


class Expected(NamedTuple):
    """The SD over seeds that a contrast of a study may have, and what that is known from."""

    sd: float
    source: Any  # the row of the atlas
    far: float  # |log| of the ratio of parameters × steps


def noise_lines(manifest: Manifest) -> list[str]:
    """What noise this study can expect, what its seeds find, and how many its margins need; nothing where not known."""
    family = [contrast for contrast in contrasts(manifest) if contrast.kind != "cell"]
    single, table = [contrast for contrast in family if contrast.kind in SINGLE], read_atlas()
    if no_evidence(manifest) or not single:
        return []
    metrics = endpoints(manifest)
    found = [expected(table, manifest, each, metrics[next(iter(each.weights))]) for each in single]
    known = [each for each in found if each]
    if not known:
        return []
    level = ALPHA / len(family) / planned_looks(manifest)
    return [_found(manifest, known, level), *_margins(manifest, table, known, level)]


def expected(table: pandas.DataFrame, manifest: Manifest, contrast: Contrast, metric: str) -> Expected | None:
    """The SD of a contrast, from the nearest of the atlas: of its metric and its kind of task, paired, of five seeds.

    Of these the same change, then the same factor, then any; of the same task, then of any; then the nearest in
    log(parameters × steps).  A plain difference has a larger SD than one that is averaged over √(Σ w²); the averaging
    that a study has and the other had not is not counted on: what a component draws is the same in all of its cells.
    """
    cell = next(cell for cell in manifest.cells if cell.id in contrast.side(-1))
    task = manifest.tasks[cell.task]
    if not batches(manifest, contrast.weights)[1]:
        return None
    rows = table[(table["metric"] == metric) & (table["task_kind"] == task.kind) & table["kind"].isin(SINGLE)]
    rows = rows[rows["paired"].astype(bool) & (rows["n"] >= SEEDS) & (rows["sd"] > 0)]
    scale = cell.params * cell.config.train.steps
    ranked = sorted(
        (
            row.change != contrast.label,
            row.factor != contrast.factor,
            row.task != task.name,
            abs(far),
            -row.n,
            row.Index,
        )
        for row in rows.itertuples()
        if abs(far := math.log(row.params * row.steps / scale)) <= FARTHEST
    )
    if not ranked:
        return None
    source = rows.loc[ranked[0][-1]]
    squares = sum(weight**2 for weight in contrast.weights.values())
    return Expected(float(source.sd) * max(1.0, math.sqrt(squares / source.squares)), source, ranked[0][3])


def _found(manifest: Manifest, known: Sequence[Expected], level: float) -> str:
    """The SDs with where they come from, and what the study's seeds find."""
    sds, n = [each.sd for each in known], len(manifest.seeds)
    if manifest.sequential:
        n = manifest.sequential.looks[-1]
    told = f"noise: SD of an effect about {between(min(sds), max(sds))} (from {first_of(_sources(manifest, known), 2)})"
    if n < PAIRS:
        return f"{told}; fewer than {PAIRS} seeds find nothing"
    least, most = (findable(sd, n, level) for sd in (min(sds), max(sds)))
    return f"{told}; {counted(n, 'seed')} would find effects of {between(least, most)} four times in five"


def _sources(manifest: Manifest, known: Sequence[Expected]) -> list[str]:
    """What SDs are from, those of one place together: "64 seeds of norm: rms − ln and ffn: swiglu − mlp at scale=tiny"."""
    presets, tasks = groups().get("scale", {}), [task.name for task in manifest.tasks.values()]
    told: dict[tuple[int, str], list[str]] = {}
    for _, row, far in known:
        where = f"scale={row.scale}" if row.scale in presets else row.scale
        where += f" ({size(int(row.params))} parameters, {row.steps:.0f} steps)" * (far > ALIKE)
        where += f" on {row.task}" * (row.task not in tasks)
        changes = told.setdefault((int(row.n), where), [])
        changes += [row.change] * (row.change not in changes)
    return [f"{counted(n, 'seed')} of {first_of(found, 2)} at {where}" for (n, where), found in told.items()]


def _margins(manifest: Manifest, table: pandas.DataFrame, known: Sequence[Expected], level: float) -> Iterator[str]:
    """How many seeds show differences within the study's margin, and within those of its claims, where there are none."""
    margin = margin_of(manifest).size
    parts = []
    if math.isfinite(margin):
        needed = seeds_to_bound(margin, max(each.sd for each in known), level)
        parts.append(f"{_count(needed)} would show equality within {plain(margin)}")
    level = ALPHA / max(1, registered(manifest)) / planned_looks(manifest)
    for name, entry in manifest.claims.items():
        claim = entry.claim
        if claim.relation not in BOUNDED or not is_number(claim.margin) or len(claim.metrics) > 1:
            continue
        contrast = _single(contrast_of(claim, manifest), next(iter(claim.sides[0])))
        metric = next(iter(claim.metrics), endpoints(manifest)[next(iter(contrast.weights))])
        if found := expected(table, manifest, contrast, metric):
            needed = seeds_to_bound(claim.margin, found.sd, level, both=claim.relation == "equivalent")
            parts.append(f"{_count(needed)} would support {name} (margin {plain(claim.margin)})")
    if parts:
        yield f"if there is no difference, {'; '.join(parts)}, four times in five"


def _single(claimed: Contrast, factor: str) -> Contrast:
    """A claim's contrast under the name that a design gives to that of one factor."""
    return replace(claimed, factor=factor, label=f"{factor}: {claimed.level} {MINUS} {claimed.reference}")


def _count(needed: int | None) -> str:
    return f"more than {MOST:,} seeds" if needed is None else f"{needed:,} seeds"
