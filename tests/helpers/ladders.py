"""Studies of design=ladder whose multipliers are known."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from fake_studies import study_of, with_cells

from ablate.config.ladder import levels_of_rungs
from ablate.results.study import Study

COST = 1.05  # of swiglu, as a multiple of the reference's compute
TOP = math.log(3 * 250_000 * 16 * 64 * 800)
Log = Callable[[float], float]  # log M over log C


def power(c: float) -> float:
    return 1.0 + math.exp(-0.08 * (c - TOP))


def rung_of(level: Any) -> int:
    return int(str(level)[0])


def climbed(
    log: Log,
    law: Log = power,
    count: int = 4,
    noise: float = 1e-4,
    rates: Callable[[str, str], float] = lambda ffn, rate: 0.02,
    seeds: int = 8,
    norms: tuple[str, ...] = (),
    **more: Any,
) -> Study:
    """A ladder of mlp and swiglu, whose multipliers have these logarithms; other rates lose what `rates` says, and
    other norms change nothing."""

    def compute(rung: int) -> float:
        return TOP - (count - rung) * math.log(4)

    def score(levels: dict[str, Any], seed: int) -> float:
        rung, _, rate = str(levels["rung"]).partition(" at ")
        c = compute(int(rung))
        gained = c + (log(c) + math.log(COST) if levels["ffn"] == "swiglu" else 0.0)
        own = np.random.default_rng([seed, *str(levels).encode()]).normal(0, noise)
        return law(gained) + own + (rates(levels["ffn"], rate) if rate else 0.0)

    factors: dict[str, list[Any]] = {"ffn": ["mlp", "swiglu"]} | ({"norm": [*norms]} if norms else {})
    factors |= {"rung": levels_of_rungs(count)}
    study = study_of(factors, range(seeds), score, design="ladder", batches=lambda levels: str(levels["rung"]), **more)

    def flops(_: int, cell: Any) -> dict[str, Any]:
        return {
            "flops_per_token": 250_000
            * 4.0 ** (rung_of(cell.levels["rung"]) - count)
            * (COST if cell.levels["ffn"] == "swiglu" else 1)
        }

    return with_cells(study, flops)
