"""The noise to expect: SDs of finished studies as a forecast for new ones.

The noise atlas holds SDs by contrast, task, scale and metric; `make figures` writes `noise_atlas.csv` from the tables
of committed studies.
"""

import bisect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas

from ablate.config.claims import BOUNDED
from ablate.config.groups import groups as config_groups
from ablate.config.ladder import RUNG
from ablate.evidence.claims import contrast_of
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.equivalence import PAIRS, SEEDS, margin_of
from ablate.evidence.error_rates import ALPHA, described, planned_looks, registered
from ablate.evidence.estimates import groups
from ablate.evidence.exact import is_solved
from ablate.evidence.ladder import DECADE, Rung, combined, line, reference_rungs
from ablate.evidence.scores import endpoints
from ablate.evidence.statistics import POWER, bounded, findable, interval
from ablate.formatting import MINUS, between, counted, first_of, is_number, listed, plain, size
from ablate.results import naming
from ablate.results.records import Manifest
from ablate.results.tables import named_rows

FILE = Path(__file__).with_name("noise_atlas.csv")
FARTHEST = math.log(10)  # largest |log ratio| of parameters × steps at which a row is used
ALIKE = math.log(1.1)  # |log ratio| up to which the size of the source is not mentioned
TEXTS = ("study", "task", "task_kind", "scale", "metric", "kind", "factor", "change", "stratum")
SINGLE = ("main", "step")  # kinds of contrast that change one factor
SLOPE = 0.06  # nats per e-fold of compute, a flat one: references of 0.1 to 1 M parameters had 0.06 to 0.16
MOST = 10_000  # seeds up to which numbers of seeds are searched
# The SD over seeds that a contrast is expected to have, the row of the atlas that it comes from, and how far away that
# is: |log ratio| of parameters × steps.
Expected = tuple[float, Any, float]


def read_atlas() -> pandas.DataFrame:
    """The atlas that is installed with the package."""
    table = pandas.read_csv(FILE, keep_default_na=False, na_values=[""], encoding="utf-8")
    return table.fillna(dict.fromkeys(TEXTS, ""))


def change_of(contrast: Contrast) -> str:
    """What a contrast changes, without its stratum: "norm: rms − ln"."""
    if contrast.kind == "step":
        return f"{contrast.factor}: {contrast.level} {MINUS} {contrast.reference}"
    return contrast.label.removesuffix(f" at {contrast.stratum}")


def noise_lines(manifest: Manifest) -> list[str]:
    """The noise to expect in a study, the effects that its seeds can detect, and the seeds that its margins need."""
    family = [contrast for contrast in contrasts(manifest) if contrast.kind != "cell"]
    single, metrics = [contrast for contrast in family if contrast.kind in SINGLE], endpoints(manifest)
    if naming.no_evidence(manifest) or not single:
        return []
    sources = usable(read_atlas())
    found = [expected(sources, manifest, each, metrics[next(iter(each.weights))]) for each in single]
    known = [each for each in found if each]
    level = ALPHA / len(family) / planned_looks(manifest)
    margin, needed = margin_of(manifest.margin).size, list(_of_claims(manifest, sources))
    if known and len(known) == len(single) and math.isfinite(margin) and manifest.design != "ladder":
        seeds = seeds_to_bound(margin, max(sd for sd, *_ in known), level)
        needed.insert(0, f"{_count(seeds)} would show equality within {plain(margin)}")
    pairs = list(zip(single, found, strict=True))
    seen = {change_of(each) for each, own in pairs if own}  # perhaps at another setting
    others = list(dict.fromkeys(each.factor for each, own in pairs if not own and change_of(each) not in seen))
    n, lines = manifest.sequential.looks[-1] if manifest.sequential else len(manifest.seeds), list[str]()
    if any(is_solved(metric) for metric in metrics.values()):
        # If just one of two cells solves the task, in all n seeds, both bounds are at level/4: 2·(level/4)^(1/n) > 1.
        m = min(filter(None, [registered(manifest), len(family) * (not described(manifest))]), default=1)
        enough = math.floor(math.log2(4 * m * planned_looks(manifest) / ALPHA)) + 1
        lines += [f"fewer than {enough} seeds decide nothing about shares of runs solved"] * (n < enough)
    if known:
        sds = [sd for sd, *_ in known]
        whence = f"from {first_of(_sources(manifest, known), 2)}" + f"; none known of {listed(others)}" * bool(others)
        expectation = f"noise: SD of an effect about {between(min(sds), max(sds))} ({whence})"
        finds = f"fewer than {PAIRS} seeds find nothing"
        if n >= PAIRS:
            least, most = (findable(sd, n, level) for sd in (min(sds), max(sds)))
            finds = f"smallest effect that {counted(n, 'seed')} find with 80 % power: {between(least, most)}"
            if manifest.design == "ladder":
                finds = _of_trends(manifest, [min(sds), max(sds)])
        lines.append(f"{expectation}; {finds}")
    return lines + [f"if there is no difference, {'; '.join(needed)}, with 80 % power"] * bool(needed)


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
    if cell.config is None or cell.params is None:
        return None
    task, budget = manifest.tasks[cell.task], cell.params * cell.config.train.steps
    change = change_of(contrast)
    if not groups(manifest, contrast.weights)[1]:
        return None
    same = (metric, contrast.factor, unversioned(task.name), task.kind)
    alike = [row for row in sources if (row.metric, row.factor, unversioned(row.task), row.task_kind) == same]
    ranked = sorted(
        (row.change != change, row.task != task.name, distance, -row.n, -row.sd, row.Index, row)
        for row in alike
        if (distance := abs(math.log(row.params * row.steps / budget))) <= FARTHEST
    )
    if not ranked:
        return None
    source, squares = ranked[0][-1], sum(weight**2 for weight in contrast.weights.values())
    return float(source.sd) * max(1.0, math.sqrt(squares / source.squares)), source, ranked[0][2]


def unversioned(task: str) -> str:
    """A task's name without Python's version: stdlib of stdlib-3.11."""
    return re.sub(r"-3\.\d+$", "", task)


def _of_trends(manifest: Manifest, sds: list[float]) -> str:
    """How well trends of a ladder will be known near a multiplier of 1, by paired differences with these SDs."""
    rungs = []
    for cell in reference_rungs(manifest):
        n, x = sum(run.cell == cell.id for run in manifest.runs), math.log(cell.training_flops)
        differences = np.linspace(-1, 1, n)
        pairs = np.stack([differences / differences.std(ddof=1), np.full(n, -SLOPE * x)], axis=1)
        rungs.append(Rung(cell, SimpleNamespace(), x, 1.0, pairs))
    changes = sum(len(levels) - 1 for name, levels in manifest.factors.items() if name != RUNG)
    _, half = interval(combined(rungs, line(rungs)), ALPHA / changes / (len(rungs) + 1))
    ends = between(*(DECADE * half * sd for sd in sds))  # near 1, an error is in proportion to the SD
    known = f"trends would be known to ± {ends} per tenfold compute, and hold within no smaller margin"
    return f"{known} (at {SLOPE:g} nats per e-fold of compute; less if the loss falls faster)"


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
        f"{counted(n, 'seed')} of {first_of(each, 2)} at {at.removesuffix(',')}" for (n, at), each in places.items()
    ]


def _of_claims(manifest: Manifest, sources: list[Any]) -> Iterator[str]:
    """The seeds that each claim of a small difference needs, if the atlas has a change of its factor."""
    level = ALPHA / max(1, registered(manifest)) / planned_looks(manifest)
    for name, entry in manifest.claims.items():
        claim = entry.claim
        if claim.relation not in BOUNDED or not is_number(claim.margin) or len(claim.metrics) > 1:
            continue
        claimed, factor = contrast_of(claim, manifest), next(iter(claim.sides[0]))
        label = f"{factor}: {claimed.level} {MINUS} {claimed.reference}"  # as a design's contrast is labelled
        contrast = replace(claimed, factor=factor, label=label)
        metric = next(iter(claim.metrics), endpoints(manifest)[next(iter(contrast.weights))])
        if found := expected(sources, manifest, contrast, metric):
            needed = seeds_to_bound(claim.margin, found[0], level, both=claim.relation == "equivalent")
            yield f"{_count(needed)} would support {name} (margin {plain(claim.margin)})"


def _count(needed: int | None) -> str:
    return f"more than {MOST:,} seeds" if needed is None else f"{needed:,} seeds"


def seeds_to_bound(margin: float, sd: float, alpha: float, both: bool = True) -> int | None:
    """The fewest paired seeds, at least five, that show a difference of zero to lie within ±margin with 80 % power.
    Without `both`, to lie below the margin.  None: more than 10,000."""
    needed = _fewest(lambda n: bounded(margin, sd, n, alpha, both))
    return None if needed is None else max(SEEDS, needed)


def _fewest(chance: Callable[[int], float]) -> int | None:
    """The fewest seeds with 80 % power, which grows with their number; None: more than 10,000."""
    seeds = range(2, MOST + 1)
    place = bisect.bisect_left(seeds, True, key=lambda n: chance(n) >= POWER)
    return seeds[place] if place < len(seeds) else None
