"""How large a difference noise alone makes, from placebo runs, and how many seeds a given difference needs."""

import bisect
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pandas

from ablate import formatting
from ablate.evidence.effects import ALPHA, noise
from ablate.evidence.equivalence import SEEDS
from ablate.evidence.scores import endpoint, scores
from ablate.evidence.statistics import POWER, bounded, chi2_quantile, noncentral_power, paired
from ablate.results import naming
from ablate.results.records import Manifest
from ablate.results.study import Study

KEY = "seed.placebo"
SOURCES = {"data": "data order", "init": "initialisation", "chaos": "chaos"}
SINGLE = ("main", "step")  # kinds of contrast that change one factor
MOST = 10_000  # seeds up to which numbers of seeds are searched


class Floor(NamedTuple):
    """Differences placebo − reference of one kind: their number, SD over seeds, and its one-sided 95 % upper bound."""

    kind: str
    n: int
    sd: float
    upper: float


def floors(study: Study) -> list[Floor]:
    """A row per kind of placebo, over the seeds in which both it and the reference have a score."""
    values = scores(study, endpoint(study.manifest))
    cells = {cell.levels[KEY]: cell.id for cell in study.manifest.cells}
    plain = values[cells[None]]
    found = []
    for kind, cell in cells.items():
        if kind:
            moved = paired((values[cell] - plain).dropna().to_numpy())
            found.append(Floor(str(kind), moved.n, moved.sd, upper_bound(moved.sd, moved.n)))
    return found


def upper_bound(sd: float, n: int) -> float:
    """One-sided 95 % upper bound of the SD of normal values, sd · √((n − 1) / χ²_{0.05, n − 1}); NaN below n = 2."""
    return sd * math.sqrt((n - 1) / float(chi2_quantile(0.05, n - 1))) if n > 1 else math.nan


def split(found: Iterable[Floor]) -> dict[str, float]:
    """SD of a single run by source, SD(difference) / √2: data order, initialisation, chaos.

    This assumes that a run is its cell's mean plus an independent term for each source, so that changing one source
    gives the difference of two such terms.  Changing data order or initialisation also triggers chaos, which their
    numbers therefore contain.
    """
    return {row.kind: row.sd / math.sqrt(2) for row in found if row.kind in SOURCES}


def seeds_needed(difference: float, sd: float, alpha: float) -> int | None:
    """The fewest paired seeds that detect a difference with 80 % power at a two-sided level; None: more than 10,000."""
    return _fewest(lambda n: noncentral_power(abs(difference) / sd * math.sqrt(n), n - 1, alpha))


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


def round_differences(effects: Iterable[float], floor: float) -> list[float]:
    """Three falling round sizes (1, 2, 5 times a power of ten) from near the largest effect, or from `floor`."""
    sizes: list[float] = []
    size = max((abs(effect) for effect in effects if math.isfinite(effect) and effect), default=floor)
    for _ in range(3):
        base = 10.0 ** math.floor(math.log10(size))
        rounds = base * np.array([1, 2, 5, 10])
        sizes.append(float(f"{rounds[np.argmin(np.abs(np.log(size / rounds)))]:.3g}"))
        size = sizes[-1] / 2.2
    return sizes


def placebo_lines(table: pandas.DataFrame, placebos: Study) -> list[str]:
    """Lines on a study's placebos: differences due to noise, its sources, and the seeds that differences need.  `table`
    holds the effects of the study that the placebos belong to."""
    found = floors(placebos)
    known = [row for row in found if row.n >= 2]
    manifest = placebos.manifest
    reference = next(cell for cell in manifest.cells if cell.levels[KEY] is None)
    head = f"placebos (placebo_seeds={len(manifest.seeds)}, {reference.label})"
    if not known:
        return [f"{head}: too few ended to say anything"]
    if not any(row.sd for row in known):
        return [f"{head}: no placebo moved anything"]
    own = [row for row in known if row.kind not in SOURCES] + [row for row in known if row.kind == "chaos"]
    kinds = [row.kind for row in own]
    undrawn = [name for name in table.loc[table["kind"].isin(SINGLE), "factor"].unique() if name not in kinds]
    names = ", ".join(naming.named(manifest, name) for name in undrawn)
    floor = f"; nothing of {names} is drawn, so that chaos is the floor there" * bool(undrawn and "chaos" in kinds)
    spreads = ", ".join(
        f"{_short(row.sd)} ({drawn_anew(manifest, row.kind)}; 95 % upper bound {_short(row.upper)})" for row in own
    )
    lines = [f"{head}: pure noise makes differences of SD {spreads}{floor}"] * bool(own)
    sources = ", ".join(f"{SOURCES[kind]} {_short(sd)}" for kind, sd in split(known).items())
    alike = table[table["metric"] == endpoint(placebos.manifest)]
    return [*lines, f"a run's own SD by source, chaos in each: {sources}", *_needed(manifest, alike, own)]


def drawn_anew(manifest: Manifest, kind: str) -> str:
    """What a kind of placebo changes in a run: "ffn drawn anew", "chaos"."""
    return SOURCES.get(kind, f"{naming.named(manifest, kind)} drawn anew")


def _short(value: float) -> str:
    places = formatting.decimals([value])
    least = 10.0**-places
    return f"< {formatting.number(least, places)}" if 0 < value < least / 2 else formatting.number(value, places)


def _needed(manifest: Manifest, table: pandas.DataFrame, own: list[Floor]) -> list[str]:
    """Seeds needed for round differences, at the largest upper bound of an SD, of placebos or of the effects seen.

    Placebos alone would be too optimistic for a component without random numbers: chaos is less than the noise of
    differences between variants.
    """
    spreads = [
        (row.upper, "the SD of chaos" if row.kind == "chaos" else f"the SD with {drawn_anew(manifest, row.kind)}")
        for row in own
    ]
    spreads += [
        (upper_bound(seen.sd, seen.n), "the SD of the effects seen") for seen in noise(table) if seen.kind in SINGLE
    ]
    # The largest upper bound need not belong to the largest SD: it depends on the number of placebos.
    upper, whose = max(spreads, default=(0.0, ""))
    if not upper:
        return []
    design = table[table["kind"] != "cell"]
    effects = design.loc[design["kind"].isin(SINGLE), "mean"].astype(float)
    alpha = float(design["alpha"].min()) if len(design) else ALPHA
    parts: list[str] = []
    for size in round_differences(effects, upper):
        n = seeds_needed(size, upper, alpha)
        count = f"more than {MOST:,}" if n is None else f"about {n:,}"
        parts.append(f"{formatting.plain(size)} {count if parts else f'needs {count} seeds'}")
    return [f"a difference of {', '.join(parts)} (80 % power, at the upper bound of {whose}, {_short(upper)})"]
