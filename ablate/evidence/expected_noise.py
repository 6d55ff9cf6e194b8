"""What a study can expect of noise before it is trained: from the nearest contrasts of the noise atlas, or nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas

from ablate.config.claim_relations import BOUNDED
from ablate.evidence.claims.rules import contrast_of
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.equivalence import PAIRS, SEEDS, margin_of
from ablate.evidence.estimates import groups
from ablate.evidence.family import ALPHA, registered
from ablate.evidence.noise_atlas import change_of, read_atlas, scales
from ablate.evidence.noise_floor import MOST, SINGLE, seeds_to_bound
from ablate.evidence.scores import endpoints
from ablate.evidence.sequential import planned_looks
from ablate.evidence.statistics import findable
from ablate.formatting import MINUS, between, counted, listed, plain, size
from ablate.formatting.settings import is_number
from ablate.results.naming import no_evidence
from ablate.results.records import Manifest

FARTHEST = math.log(10)  # of parameters × steps, either way: what is farther says nothing
ALIKE = math.log(1.1)  # of the same: what is nearer needs no word


class Expected(NamedTuple):
    """The SD over seeds that a contrast of a study may have, and what that is known from."""

    sd: float
    source: Any  # the row of the atlas
    far: float  # |log| of the ratio of parameters × steps
    kin: bool  # whether that contrast changes the same factor


def noise_lines(manifest: Manifest) -> list[str]:
    """What noise this study can expect, what its seeds find, and how many its margins need; nothing where not known."""
    family = [contrast for contrast in contrasts(manifest) if contrast.kind != "cell"]
    single, metrics = [contrast for contrast in family if contrast.kind in SINGLE], endpoints(manifest)
    if no_evidence(manifest) or not single:
        return []
    sources = usable(read_atlas())
    found = [expected(sources, manifest, each, metrics[next(iter(each.weights))]) for each in single]
    known = [each for each in found if each]
    level = ALPHA / len(family) / planned_looks(manifest)
    needed = _of_margin(manifest, known, level) + _of_claims(manifest, sources)
    told = [_found(manifest, known, level)] if known else []
    return told + [f"if there is no difference, {'; '.join(needed)}, four times in five"] * bool(needed)


def usable(table: pandas.DataFrame) -> list[Any]:
    """The rows of the atlas that tell of others: paired changes of one factor, with the noise of five seeds or more."""
    known = table["paired"].astype(bool) & (table["n"] >= SEEDS) & (table["sd"] > 0) & table["steps"].notna()
    return list(table[known & table["kind"].isin(SINGLE)].itertuples())


def expected(sources: list[Any], manifest: Manifest, contrast: Contrast, metric: str) -> Expected | None:
    """The SD of a contrast, from the nearest of the atlas by its metric and kind of task; None where none is near.

    The same change comes first, then the same factor, then any; of these the same task; then the nearest in
    log(parameters × steps), that of most seeds, and the noisiest.  A contrast of larger Σ w² is noisier by its root.
    That one of smaller Σ w² is averaged over more cells is not counted on: what a component draws is the same in all.
    """
    cell = next(cell for cell in manifest.cells if cell.id in contrast.side(-1))
    task, budget, change = manifest.tasks[cell.task], cell.params * cell.config.train.steps, change_of(contrast)
    if not groups(manifest, contrast.weights)[1]:
        return None
    ranked = sorted(
        (
            row.change != change,
            row.factor != contrast.factor,
            row.task != task.name,
            far,
            -row.n,
            -row.sd,
            row.Index,
            row,
        )
        for row in sources
        if row.metric == metric
        and row.task_kind == task.kind
        and (far := abs(math.log(row.params * row.steps / budget))) <= FARTHEST
    )
    if not ranked:
        return None
    source, squares = ranked[0][-1], sum(weight**2 for weight in contrast.weights.values())
    sd = float(source.sd) * max(1.0, math.sqrt(squares / source.squares))
    return Expected(sd, source, far=ranked[0][3], kin=source.factor == contrast.factor)


def _found(manifest: Manifest, known: Sequence[Expected], level: float) -> str:
    """The SDs with where they come from, and what the study's seeds find."""
    sds, n = [each.sd for each in known], len(manifest.seeds)
    if manifest.sequential:
        n = manifest.sequential.looks[-1]
    how, whence = ("about", "from") if all(each.kin for each in known) else ("perhaps", "known of other changes alone:")
    told = f"noise: SD of an effect {how} {between(min(sds), max(sds))} ({whence} {_some(_sources(manifest, known))})"
    if n < PAIRS:
        return f"{told}; fewer than {PAIRS} seeds find nothing"
    least, most = (findable(sd, n, level) for sd in (min(sds), max(sds)))
    return f"{told}; {counted(n, 'seed')} would find effects of {between(least, most)} four times in five"


def _sources(manifest: Manifest, known: Sequence[Expected]) -> list[str]:
    """What SDs are from, by place: "64 seeds of norm: rms − ln and ffn: swiglu − mlp at scale=tiny"."""
    presets, tasks = scales(), [task.name for task in manifest.tasks.values()]
    told: dict[tuple[int, str], list[str]] = {}
    for _, row, far, _ in known:
        where = f"scale={row.scale}" if row.scale in presets else row.scale
        where += f", {size(int(row.params))} parameters × {row.steps:.0f} steps," * (far > ALIKE)
        where += f" on {row.task}" * (row.task not in tasks)
        changes = told.setdefault((int(row.n), where), [])
        changes += [row.change] * (row.change not in changes)
    return [
        f"{counted(n, 'seed')} of {_some(found)} at {where.removesuffix(',')}" for (n, where), found in told.items()
    ]


def _some(names: list[str]) -> str:
    return listed([*names[:2], *[f"{len(names) - 2} more"] * (len(names) > 2)])


def _of_margin(manifest: Manifest, known: Sequence[Expected], level: float) -> list[str]:
    """How many seeds would show the noisiest effect within the study's margin."""
    margin = margin_of(manifest).size
    if not known or not all(each.kin for each in known) or not math.isfinite(margin):
        return []
    needed = seeds_to_bound(margin, max(each.sd for each in known), level)
    return [f"{_count(needed)} would show equality within {plain(margin)}"]


def _of_claims(manifest: Manifest, sources: list[Any]) -> list[str]:
    """How many seeds would support each claim of a small difference, where such a change is known."""
    level = ALPHA / max(1, registered(manifest)) / planned_looks(manifest)
    told = []
    for name, entry in manifest.claims.items():
        claim = entry.claim
        if claim.relation not in BOUNDED or not is_number(claim.margin) or len(claim.metrics) > 1:
            continue
        contrast = _single(contrast_of(claim, manifest), next(iter(claim.sides[0])))
        metric = next(iter(claim.metrics), endpoints(manifest)[next(iter(contrast.weights))])
        if (found := expected(sources, manifest, contrast, metric)) and found.kin:
            needed = seeds_to_bound(claim.margin, found.sd, level, both=claim.relation == "equivalent")
            told.append(f"{_count(needed)} would support {name} (margin {plain(claim.margin)})")
    return told


def _single(claimed: Contrast, factor: str) -> Contrast:
    """A claim's contrast under the name that a design gives to that of one factor."""
    return replace(claimed, factor=factor, label=f"{factor}: {claimed.level} {MINUS} {claimed.reference}")


def _count(needed: int | None) -> str:
    return f"more than {MOST:,} seeds" if needed is None else f"{needed:,} seeds"
