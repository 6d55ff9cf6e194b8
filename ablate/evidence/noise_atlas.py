"""The noise atlas: SDs seen in finished studies, by contrast, task, scale and metric, as a forecast for new studies.

It is stored in `noise_atlas.csv`, which `make figures` writes from the tables of committed studies.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas

from ablate.config.claims import BOUNDED
from ablate.config.groups import groups as config_groups
from ablate.evidence.claims.rules import contrast_of
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.equivalence import PAIRS, SEEDS, margin_of
from ablate.evidence.estimates import groups
from ablate.evidence.family import ALPHA, registered
from ablate.evidence.noise_floor import MOST, SINGLE, seeds_to_bound
from ablate.evidence.scores import endpoints
from ablate.evidence.sequential import planned_looks
from ablate.evidence.statistics import findable
from ablate.formatting import MINUS, between, counted, is_number, listed, plain, size
from ablate.results.naming import no_evidence
from ablate.results.records import Manifest
from ablate.results.tables import named_rows

FILE = Path(__file__).with_name("noise_atlas.csv")
FARTHEST = math.log(10)  # largest |log ratio| of parameters × steps at which a row is used
ALIKE = math.log(1.1)  # |log ratio| up to which the size of the source is not mentioned
TEXTS = ("study", "task", "task_kind", "scale", "metric", "kind", "factor", "change", "stratum")


def read_atlas() -> pandas.DataFrame:
    """The atlas that is installed with the package."""
    table = pandas.read_csv(FILE, keep_default_na=False, na_values=[""], encoding="utf-8")
    return table.fillna(dict.fromkeys(TEXTS, ""))


def change_of(contrast: Contrast) -> str:
    """What a contrast changes, without its stratum: "norm: rms − ln"."""
    if contrast.kind == "step":
        return f"{contrast.factor}: {contrast.level} {MINUS} {contrast.reference}"
    return contrast.label.removesuffix(f" at {contrast.stratum}")


class Expected(NamedTuple):
    """The SD over seeds that a contrast is expected to have, and the row of the atlas that it comes from."""

    sd: float
    source: Any
    distance: float  # |log ratio| of parameters × steps


def noise_lines(manifest: Manifest) -> list[str]:
    """The noise to expect in a study, the effects that its seeds can detect, and the seeds that its margins need."""
    family = [contrast for contrast in contrasts(manifest) if contrast.kind != "cell"]
    single, metrics = [contrast for contrast in family if contrast.kind in SINGLE], endpoints(manifest)
    if no_evidence(manifest) or not single:
        return []
    sources = usable(read_atlas())
    found = [expected(sources, manifest, each, metrics[next(iter(each.weights))]) for each in single]
    known = [each for each in found if each]
    level = ALPHA / len(family) / planned_looks(manifest)
    margin, needed = margin_of(manifest.margin).size, _of_claims(manifest, sources)
    if known and len(known) == len(single) and math.isfinite(margin):
        seeds = seeds_to_bound(margin, max(each.sd for each in known), level)
        needed.insert(0, f"{_count(seeds)} would show equality within {plain(margin)}")
    others = list(dict.fromkeys(each.factor for each, own in zip(single, found, strict=True) if not own))
    lines = [_expectation(manifest, known, others, level)] if known else []
    return lines + [f"if there is no difference, {'; '.join(needed)}, four times in five"] * bool(needed)


def usable(table: pandas.DataFrame) -> list[Any]:
    """The rows to forecast from: paired changes of one factor, whose SD is from five seeds or more."""
    known = table["paired"].astype(bool) & (table["n"] >= SEEDS) & (table["sd"] > 0) & table["steps"].notna()
    return list(named_rows(table[known & table["kind"].isin(SINGLE)]))


def expected(sources: list[Any], manifest: Manifest, contrast: Contrast, metric: str) -> Expected | None:
    """The SD of a contrast, from the nearest row of the atlas with its metric, task and factor; None without one.

    The same change comes first; then the same text of the task, the nearest in log(parameters × steps), the most seeds
    and the largest SD.  The SD is scaled up by √Σ w² but never down: averaging
    over more cells need not reduce noise, since a component draws the same random numbers in all of them.
    """
    cell = next(cell for cell in manifest.cells if cell.id in contrast.side(-1))
    task, budget = manifest.tasks[cell.task], cell.params * cell.config.train.steps
    change = change_of(contrast)
    if not groups(manifest, contrast.weights)[1]:
        return None
    ranked = sorted(
        (row.change != change, row.task != task.name, distance, -row.n, -row.sd, row.Index, row)
        for row in sources
        if row.metric == metric
        and row.factor == contrast.factor
        and (unversioned(row.task), row.task_kind) == (unversioned(task.name), task.kind)
        and (distance := abs(math.log(row.params * row.steps / budget))) <= FARTHEST
    )
    if not ranked:
        return None
    source, squares = ranked[0][-1], sum(weight**2 for weight in contrast.weights.values())
    sd = float(source.sd) * max(1.0, math.sqrt(squares / source.squares))
    return Expected(sd, source, distance=ranked[0][2])


def unversioned(task: str) -> str:
    """A task's name without Python's version: stdlib of stdlib-3.11."""
    return re.sub(r"-3\.\d+$", "", task)


def _expectation(manifest: Manifest, known: Sequence[Expected], others: list[str], level: float) -> str:
    """The expected SDs with their source, the factors without one, and the effects that the seeds can detect."""
    sds, n = [each.sd for each in known], len(manifest.seeds)
    if manifest.sequential:
        n = manifest.sequential.looks[-1]
    whence = f"from {_some(_sources(manifest, known))}" + f"; none known of {listed(others)}" * bool(others)
    noise = f"noise: SD of an effect about {between(min(sds), max(sds))} ({whence})"
    if n < PAIRS:
        return f"{noise}; fewer than {PAIRS} seeds find nothing"
    least, most = (findable(sd, n, level) for sd in (min(sds), max(sds)))
    return f"{noise}; {counted(n, 'seed')} would find effects of {between(least, most)} four times in five"


def _sources(manifest: Manifest, known: Sequence[Expected]) -> list[str]:
    """Sources of the SDs by scale and task: "64 seeds of norm: rms − ln and ffn: swiglu − mlp at scale=tiny"."""
    presets, tasks = config_groups()["scale"], [task.name for task in manifest.tasks.values()]
    places: dict[tuple[int, str], list[str]] = {}
    for _, row, distance in known:
        where = f"scale={row.scale}" if row.scale in presets else row.scale
        where += f", {size(int(row.params))} parameters × {row.steps:.0f} steps," * (distance > ALIKE)
        where += f" on {row.task}" * (row.task not in tasks)
        changes = places.setdefault((int(row.n), where), [])
        changes += [row.change] * (row.change not in changes)
    return [
        f"{counted(n, 'seed')} of {_some(found)} at {where.removesuffix(',')}" for (n, where), found in places.items()
    ]


def _some(names: list[str]) -> str:
    return listed([*names[:2], *[f"{len(names) - 2} more"] * (len(names) > 2)])


def _of_claims(manifest: Manifest, sources: list[Any]) -> list[str]:
    """The seeds that each claim of a small difference needs, if the atlas has a change of its factor."""
    level = ALPHA / max(1, registered(manifest)) / planned_looks(manifest)
    needs = []
    for name, entry in manifest.claims.items():
        claim = entry.claim
        if claim.relation not in BOUNDED or not is_number(claim.margin) or len(claim.metrics) > 1:
            continue
        claimed, factor = contrast_of(claim, manifest), next(iter(claim.sides[0]))
        label = f"{factor}: {claimed.level} {MINUS} {claimed.reference}"  # as a design's contrast is labelled
        contrast = replace(claimed, factor=factor, label=label)
        metric = next(iter(claim.metrics), endpoints(manifest)[next(iter(contrast.weights))])
        if found := expected(sources, manifest, contrast, metric):
            needed = seeds_to_bound(claim.margin, found.sd, level, both=claim.relation == "equivalent")
            needs.append(f"{_count(needed)} would support {name} (margin {plain(claim.margin)})")
    return needs


def _count(needed: int | None) -> str:
    return f"more than {MOST:,} seeds" if needed is None else f"{needed:,} seeds"
