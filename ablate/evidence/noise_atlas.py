"""How large noise was in finished studies, by contrast, task, scale and metric, and what a new study can expect of it.

`noise_atlas.csv` beside this module holds it; `ablate analyse gallery` writes it from the tables of committed studies.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate.config.claim_relations import BOUNDED
from ablate.config.files import read_plain
from ablate.config.groups import groups as config_groups
from ablate.config.schema import Config
from ablate.evidence.claims.rules import contrast_of
from ablate.evidence.collapse import without_collapsed
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.equivalence import PAIRS, SEEDS, margin_of
from ablate.evidence.estimates import Scored, estimate_row, groups, scored, sums
from ablate.evidence.family import ALPHA, registered
from ablate.evidence.noise_floor import MOST, SINGLE, seeds_to_bound
from ablate.evidence.scores import endpoints
from ablate.evidence.sequential import planned_looks
from ablate.evidence.statistics import Estimate, chi2_quantile, findable, paired
from ablate.formatting import MINUS, between, counted, is_number, listed, plain, size
from ablate.results.naming import measured_as, no_evidence
from ablate.results.records import Manifest
from ablate.results.study import Study
from ablate.results.tables import named_rows

BITS = "test/bpb"  # the loss in another unit
FILE = Path(__file__).with_name("noise_atlas.csv")
COLUMNS = [
    *("study", "task", "task_kind", "scale", "params", "steps", "metric"),
    *("kind", "factor", "change", "stratum", "squares", "paired"),
    *("n", "seeds", "left_out", "sd", "sd_low", "sd_high", "sd_level", "sd_reference", "correlation"),
]
FARTHEST = math.log(10)  # of parameters × steps, either way: what is farther says nothing
ALIKE = math.log(1.1)  # of the same: what is nearer needs no word
TEXTS = ("study", "task", "task_kind", "scale", "metric", "kind", "factor", "change", "stratum")


def atlas(studies: list[Study]) -> pandas.DataFrame:
    """A row per contrast of each study and test metric that its runs have; studies that serve others are left out.

    scale             preset with the layers, heads and width of the reference's side, whose are params and steps, too
    squares           Σ w² of the contrast's weights: where cells' own noise is independent and alike, its SD is
                      proportional to √squares, so that a plain difference, of squares 2, tells of main effects, too
    n, seeds          seeds with a number for every cell of the contrast, and seeds of the study
    left_out          seeds in which a cell of it diverged or collapsed (see evidence.collapse), which are none of n
    sd                SD over seeds of the difference, as in `effects`; sd_low, sd_high: its 95 % interval,
                      s·√(ν/χ²_{0.975, ν}) to s·√(ν/χ²_{0.025, ν})
    sd_level          SD over the same seeds of the level's side, sd_reference of the reference's
    correlation       Pearson's, of the two sides over seeds

    Numbers have six digits, which any machine finds alike.
    """
    rows = [row for study in studies if not no_evidence(study.manifest) for row in _rows(study)]
    return pandas.DataFrame(rows, columns=COLUMNS)


def read_atlas() -> pandas.DataFrame:
    """The atlas as it comes with the package."""
    numbers = [name for name in COLUMNS if name not in TEXTS]
    return pandas.read_csv(FILE, keep_default_na=False, na_values=dict.fromkeys(numbers, ""), encoding="utf-8")


def _rows(study: Study) -> Iterator[dict[str, Any]]:
    known = {name for task in study.manifest.tasks.values() for name in task.metrics}
    tested = [name for name in study.runs if name.startswith("test/") and name != BITS]
    for metric in (name for name in tested if measured_as(name) in known):
        found = scored(study, metric)
        for contrast in contrasts(study.manifest):
            if len({found.cells[cell].task for cell in contrast.weights}) == 1 and contrast.kind != "trend":
                yield from _row(found, metric, contrast)


def _row(found: Scored, metric: str, contrast: Contrast) -> Iterator[dict[str, Any]]:
    """What is known of one contrast; nothing where fewer than two seeds have the metric, and none collapsed."""
    left, lost = without_collapsed(found, list(contrast.weights))
    row = estimate_row(left, contrast)
    if row["n"] < 2 and not lost:
        return
    sides = []
    for side in (contrast.side(1), contrast.side(-1)):  # over seeds that have the other side, too, where they pair
        complete = ~np.isnan(left.of(contrast.weights if row["paired"] else side)).any(axis=1)
        sides.append(paired(sums(left.of(side)[complete], side)).sd)
    numbers = dict(zip(("sd_low", "sd_high"), sd_interval(row["estimate"]), strict=True))
    numbers |= {"sd": row["sd"], "sd_level": sides[0], "sd_reference": sides[1], "correlation": row["correlation"]}
    reference = found.cells[next(iter(contrast.side(-1)))]
    task, known = found.study.manifest.tasks[reference.task], reference.config.known
    yield {
        "study": found.study.manifest.study,
        "task": task.name,
        "task_kind": task.kind,
        "scale": scale_of(reference.config) if known else "",
        "params": reference.params,
        "steps": reference.config.train.steps if known else math.nan,
        "metric": metric,
        "kind": contrast.kind,
        "factor": contrast.factor,
        "change": change_of(contrast),
        "stratum": contrast.stratum,
        "squares": round(sum(weight**2 for weight in contrast.weights.values()), 12),
        "paired": row["paired"],
        "n": row["n"],
        "seeds": len(found.study.manifest.seeds),
        "left_out": lost,
        **{name: float(f"{value:.6g}") for name, value in numbers.items()},
    }


def change_of(contrast: Contrast) -> str:
    """What a contrast changes, wherever that is: "norm: rms − ln", of a step, too."""
    if contrast.kind == "step":
        return f"{contrast.factor}: {contrast.level} {MINUS} {contrast.reference}"
    return contrast.label.removesuffix(f" at {contrast.stratum}")


def scale_of(config: Config) -> str:
    """The preset whose model a configuration has, else its shape: "tiny", "4 layers of 64"."""
    return _scale(config.model.layers, config.model.heads, config.model.dim)


@functools.cache
def _scale(layers: int, heads: int, dim: int) -> str:
    shape = {"layers": layers, "heads": heads, "dim": dim}
    named = [name for name, file in scales().items() if shape.items() <= read_plain(file).get("model", {}).items()]
    return named[0] if named else f"{layers} layers of {dim}"


def scales() -> dict[str, Path]:
    """The presets of sizes, by name."""
    return config_groups().get("scale", {})


def sd_interval(estimate: Estimate) -> tuple[float, float]:
    """The 95 % interval of the SD of normal values, s·√(ν/χ²); NaN below two seeds."""
    if estimate.n < 2:
        return math.nan, math.nan
    low, high = (
        estimate.sd * math.sqrt(estimate.df / float(chi2_quantile(p, estimate.df))) for p in (1 - ALPHA / 2, ALPHA / 2)
    )
    return low, high


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
    margin, needed = margin_of(manifest).size, _of_claims(manifest, sources)
    if known and all(each.kin for each in known) and math.isfinite(margin):  # the noisiest effect
        seeds = seeds_to_bound(margin, max(each.sd for each in known), level)
        needed.insert(0, f"{_count(seeds)} would show equality within {plain(margin)}")
    lines = [_expectation(manifest, known, level)] if known else []
    return lines + [f"if there is no difference, {'; '.join(needed)}, four times in five"] * bool(needed)


def usable(table: pandas.DataFrame) -> list[Any]:
    """The rows of the atlas that tell of others: paired changes of one factor, with the noise of five seeds or more."""
    known = table["paired"].astype(bool) & (table["n"] >= SEEDS) & (table["sd"] > 0) & table["steps"].notna()
    return list(named_rows(table[known & table["kind"].isin(SINGLE)]))


def expected(sources: list[Any], manifest: Manifest, contrast: Contrast, metric: str) -> Expected | None:
    """The SD of a contrast, from the nearest of the atlas by its metric and kind of task; None where none is near.

    The same change comes first, then the same factor, then any; of these the same task; then the nearest in
    log(parameters × steps), that of most seeds, and the noisiest.  A contrast of larger Σ w² is noisier by its root.
    That one of smaller Σ w² is averaged over more cells is not counted on: what a component draws is the same in all.
    """
    cell = next(cell for cell in manifest.cells if cell.id in contrast.side(-1))
    task, budget = manifest.tasks[cell.task], cell.params * cell.config.train.steps
    factor, change = contrast.factor, change_of(contrast)
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
    return Expected(sd, source, far=ranked[0][3], kin=source.factor == factor)


def _expectation(manifest: Manifest, known: Sequence[Expected], level: float) -> str:
    """The SDs with where they come from, and what the study's seeds find."""
    sds, n = [each.sd for each in known], len(manifest.seeds)
    if manifest.sequential:
        n = manifest.sequential.looks[-1]
    how, whence = ("about", "from") if all(each.kin for each in known) else ("perhaps", "known of other changes alone:")
    noise = f"noise: SD of an effect {how} {between(min(sds), max(sds))} ({whence} {_some(_sources(manifest, known))})"
    if n < PAIRS:
        return f"{noise}; fewer than {PAIRS} seeds find nothing"
    least, most = (findable(sd, n, level) for sd in (min(sds), max(sds)))
    return f"{noise}; {counted(n, 'seed')} would find effects of {between(least, most)} four times in five"


def _sources(manifest: Manifest, known: Sequence[Expected]) -> list[str]:
    """What SDs are from, by place: "64 seeds of norm: rms − ln and ffn: swiglu − mlp at scale=tiny"."""
    presets, tasks = scales(), [task.name for task in manifest.tasks.values()]
    places: dict[tuple[int, str], list[str]] = {}
    for _, row, far, _ in known:
        where = f"scale={row.scale}" if row.scale in presets else row.scale
        where += f", {size(int(row.params))} parameters × {row.steps:.0f} steps," * (far > ALIKE)
        where += f" on {row.task}" * (row.task not in tasks)
        changes = places.setdefault((int(row.n), where), [])
        changes += [row.change] * (row.change not in changes)
    return [
        f"{counted(n, 'seed')} of {_some(found)} at {where.removesuffix(',')}" for (n, where), found in places.items()
    ]


def _some(names: list[str]) -> str:
    return listed([*names[:2], *[f"{len(names) - 2} more"] * (len(names) > 2)])


def _of_claims(manifest: Manifest, sources: list[Any]) -> list[str]:
    """How many seeds would support each claim of a small difference, where such a change is known."""
    level = ALPHA / max(1, registered(manifest)) / planned_looks(manifest)
    needs = []
    for name, entry in manifest.claims.items():
        claim = entry.claim
        if claim.relation not in BOUNDED or not is_number(claim.margin) or len(claim.metrics) > 1:
            continue
        claimed, factor = contrast_of(claim, manifest), next(iter(claim.sides[0]))
        label = f"{factor}: {claimed.level} {MINUS} {claimed.reference}"  # the name that a design gives to it
        contrast = replace(claimed, factor=factor, label=label)
        metric = next(iter(claim.metrics), endpoints(manifest)[next(iter(contrast.weights))])
        if (found := expected(sources, manifest, contrast, metric)) and found.kin:
            needed = seeds_to_bound(claim.margin, found.sd, level, both=claim.relation == "equivalent")
            needs.append(f"{_count(needed)} would support {name} (margin {plain(claim.margin)})")
    return needs


def _count(needed: int | None) -> str:
    return f"more than {MOST:,} seeds" if needed is None else f"{needed:,} seeds"
