"""Studies of design=ladder whose worths are known."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from fake_studies import STEPS, study_of, with_cells, with_manifest

from ablate.config.ladder import levels_of_rungs
from ablate.runs.study import Study

COST = 1.05  # of swiglu, as a multiple of the reference's compute
TOP = math.log(3 * 250_000 * 16 * 64 * 800)
OTHER_STEPS = [512, 640, 1000, 1280, 1600]
Log = Callable[[float], float]  # log(1 + worth) over log compute of the reference
Law = Callable[[float], float]  # loss over log(steps / the rung's own)


def power(x: float) -> float:
    return math.exp(-0.1 * x)


def rung_of(level: Any) -> int:
    return int(str(level)[0])


def climbed(
    log: Log,
    law: Law = power,
    count: int = 4,
    noise: float = 1e-4,
    rates: Callable[[str, str], float] = lambda ffn, rate: 0.02,
    seeds: int = 8,
    norms: tuple[str, ...] = (),
    other_steps: bool = True,
    fallen: tuple[tuple[int, int, int], ...] = (),
    **more: Any,
) -> Study:
    """A ladder of mlp and swiglu, which is worth these logarithms in steps; other rates lose what `rates` says, and
    other norms change nothing.  `fallen` runs of the reference (rung, steps, seed) collapsed."""

    def compute(rung: int) -> float:
        return TOP - (count - rung) * math.log(4)

    def score(levels: dict[str, Any], seed: int) -> float:
        rung, _, rate = str(levels["rung"]).partition(" at ")
        ffn, steps = levels.get("ffn", "mlp"), levels.get("train.steps", STEPS)
        if (int(rung), steps, seed) in fallen and ffn == "mlp" and not rate:
            return 3.2
        gained = log(compute(int(rung))) if ffn == "swiglu" else math.log(steps / STEPS)
        name = f"{rung} {rate} {ffn} {levels.get('norm', 'ln')} {steps}"
        own = np.random.default_rng([seed, *name.encode()]).normal(0, noise)
        return law(gained) - 0.05 * int(rung) + own + (rates(ffn, rate) if rate else 0.0)

    def flops(_: int, cell: Any) -> dict[str, Any]:
        cost = COST if cell.levels.get("ffn") == "swiglu" else 1
        return {"flops_per_token": 250_000 * 4.0 ** (rung_of(cell.levels["rung"]) - count) * cost}

    rungs: dict[str, list[Any]] = {"rung": levels_of_rungs(count)}
    factors = {"ffn": ["mlp", "swiglu"]} | ({"norm": [*norms]} if norms else {}) | rungs
    batches = lambda levels: str(rung_of(levels["rung"]))  # noqa: E731
    beside = {}
    if other_steps:
        steps = rungs | {"train.steps": [STEPS, *OTHER_STEPS]}
        others = study_of(steps, range(seeds), score, batches=batches, exchange_of="fabricated")
        others = with_manifest(others, reference={"train.steps": STEPS})
        is_own = lambda _, cell: {"reference": cell.levels["train.steps"] == STEPS}  # noqa: E731
        beside = {"exchange": with_cells(others, is_own)}
    study = study_of(factors, range(seeds), score, design="ladder", batches=batches, beside=beside, **more)
    return with_cells(study, flops)
