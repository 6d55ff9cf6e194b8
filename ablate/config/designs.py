"""Designs: which combinations of levels are cells, and what each design can and cannot estimate.  Needs no torch."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from string import ascii_lowercase
from typing import Any, NamedTuple, TypedDict

from ablate.formatting import counted, grouped

RUNG = "rung"  # the factor of design=ladder
Cell = tuple[int, ...]  # the index of its level of each factor, in the order of the factors


class Aliases(TypedDict, total=False):
    """Aliases of a fractional design; `together` lists groups of two-way interactions with the same column."""

    resolution: str
    generators: list[str]
    together: list[list[str]]


class Arranged(NamedTuple):
    """The cells of a design, notes on it, and its aliases if it is fractional."""

    cells: list[Cell]
    notes: list[str]
    aliases: Aliases


def size(design: str, counts: dict[str, int]) -> int:
    """An upper bound of a design's number of cells."""
    if design == "ladder":
        *others, rungs = counts.values()
        return rungs * (1 + sum(others) - len(others))
    if design not in ("grid", "fractional"):
        return 1 + sum(counts.values())
    twos = sum(count == 2 for count in counts.values())
    fraction = 2 ** base_factors(twos) if design == "fractional" else 2**twos
    return math.prod(count for count in counts.values() if count != 2) * fraction


def grid(counts: dict[str, int], base: Cell) -> Arranged:
    """Every combination; the last factor varies fastest."""
    return Arranged(list(itertools.product(*map(range, counts.values()))), [], {})


def _changes(name: str, change: str, counts: dict[str, int], base: Cell) -> Arranged:
    """The reference, then each other level of each factor with the reference's levels of all others."""
    found = [base]
    for place, count in enumerate(counts.values()):
        found += [(*base[:place], level, *base[place + 1 :]) for level in range(count) if level != base[place]]
    note = f"{name}: each cell is the reference with one factor {change}; interactions are not measured"
    return Arranged(found, [note], {})


def cumulative(counts: dict[str, int], base: Cell) -> Arranged:
    """From the first values to the last, one change after another, in the given order."""
    found = [(0,) * len(counts)]
    for place, count in enumerate(counts.values()):
        found += [(*found[-1][:place], level, *found[-1][place + 1 :]) for level in range(1, count)]
    note = "cumulative: each step is compared with the one before it, so its effect depends on the order of the steps"
    return Arranged(found, [note], {})


def fractional(counts: dict[str, int], base: Cell) -> Arranged:
    """A resolution-IV fraction of the two-level factors, crossed with all levels of the others.  It is the fraction
    that contains the reference, or the full grid if no fraction is smaller (Box & Hunter 1961)."""
    twos = [place for place, count in enumerate(counts.values()) if count == 2]
    if base_factors(len(twos)) == len(twos):
        smaller = f"smaller than the grid of {counted(len(twos), 'factor')} of two levels"
        note = f"fractional: no fraction of resolution IV is {smaller}, so all combinations are trained"
        return grid(counts, base)._replace(notes=[note])
    from pyDOE3 import fracfact

    words = generators(len(twos))
    signs = fracfact(" ".join([*ascii_lowercase[: base_factors(len(twos))], *words]))
    signs = signs * signs[0]  # the first row becomes the reference: the same words define the fraction
    others = [range(count) if count != 2 else [0] for count in counts.values()]
    cells = []
    for row, rest in itertools.product(signs, itertools.product(*others)):
        two = {place: 1 - base[place] if sign < 0 else base[place] for place, sign in zip(twos, row, strict=True)}
        cells.append(tuple(two.get(place, level) for place, level in enumerate(rest)))
    aliases = _aliases([list(counts)[place] for place in twos], words, signs)
    share = f"{len(cells)} of {math.prod(counts.values())} combinations, resolution {aliases['resolution']}"
    chains = "; ".join(" = ".join(pairs) for pairs in aliases["together"])
    notes = [f"fractional: {share}: main effects are clear of two-way interactions"]
    clear = "no two-way interaction is aliased with another"
    aliased = f"aliased two-way interactions: {chains}" if chains else clear
    return Arranged(sorted(cells), [*notes, f"generators: {'; '.join(aliases['generators'])}", aliased], aliases)


def ladder(counts: dict[str, int], base: Cell) -> Arranged:
    """On every rung, the levels of the last factor, the reference and each change of one other factor."""
    *others, rungs = counts.items()
    arms = _changes("", "", dict(others), base[:-1]).cells
    note = "ladder: on each rung, the reference and each change of one factor; interactions are not measured"
    return Arranged([(*arm, rung) for rung in range(rungs[1]) for arm in arms], [note], {})


# The cells of each design for numbers of levels by factor, and the reference's level of each factor.
DESIGNS: dict[str, Callable[[dict[str, int], Cell], Arranged]] = {
    "grid": grid,
    "one_at_a_time": partial(_changes, "one at a time", "changed"),
    "leave_one_out": partial(_changes, "leave one out", "reverted"),  # of a reference with each factor's last value
    "cumulative": cumulative,
    "fractional": fractional,
    "ladder": ladder,
}


def base_factors(n: int) -> int:
    """The least k such that 2^k rows hold n two-level factors at resolution IV: n ≤ 2^(k−1); n if no k is smaller."""
    return next((k for k in range(3, n) if 2 ** (k - 1) >= n), n)


def generators(n: int) -> list[str]:
    """The words, in letters, that define the factors beyond the base ones; odd, for defining words of length ≥ 4.

    The product of two odd words is even, so with the letters of their factors no defining word has length three.  One
    factor more than the base gets the word of all letters, for the highest resolution.  (pyDOE3's `fracfact_by_res`
    mixes odd and even words, which gives resolution III from 16 factors on, and has no fraction of four factors.)
    """
    k = base_factors(n)
    letters = ascii_lowercase[:k]
    if n == k + 1:
        return [letters]
    odd = ("".join(word) for length in range(3, k + 1, 2) for word in itertools.combinations(letters, length))
    return list(itertools.islice(odd, n - k))


def _aliases(names: list[str], words: list[str], signs: Any) -> Aliases:
    """Resolution, generators and aliased two-way interactions (equal columns), by the factors' names."""
    letters = ascii_lowercase[: len(names) - len(words)]
    spelt = dict(zip(letters, names, strict=False))
    defined = zip(names[len(letters) :], words, strict=True)
    two = itertools.combinations(range(len(names)), 2)
    columns = grouped(((signs[:, i] * signs[:, j]).tobytes(), f"{names[i]} × {names[j]}") for i, j in two)
    together = [pairs for pairs in columns.values() if len(pairs) > 1]
    written = [f"{name} = {' × '.join(spelt[letter] for letter in word)}" for name, word in defined]
    return {"resolution": "IV" if together else "V", "generators": written, "together": together}
