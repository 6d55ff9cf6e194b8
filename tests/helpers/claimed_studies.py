"""Studies with claims, of a grid of norm × ffn in which swiglu lowers the loss, and what a table says of one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fake_studies import Levels, study_of

from ablate.runs.study import Study

NOISE = np.random.default_rng(20).normal(0, 0.004, (40, 12))
FFN = ["mlp", "gelu", "silu", "glu", "reglu", "swiglu"]


def entry(claim: dict[str, Any], registered: bool = True, earlier: Sequence[Any] = ()) -> dict[str, Any]:
    """What a manifest holds of a claim."""
    old = [{"claim": claim, "written": "2025-01-01T00:00:00+00:00", "registered": each} for each in earlier]
    return {"claim": claim, "written": "2025-01-02T00:00:00+00:00", "registered": registered, "earlier": old}


def noisy(levels: Levels, seed: int) -> float:
    """swiglu lowers the loss by 0.05; seeds share noise, and each cell has its own."""
    own = NOISE[seed, 2 * FFN.index(levels.get("ffn", "mlp")) + (levels.get("norm") == "rms")]
    return float(2.0 - 0.05 * (levels.get("ffn") == "swiglu") + NOISE[seed].sum() + own)


def made(
    claims: dict[str, Any],
    factors: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": FFN},  # noqa: B006
    seeds: Sequence[int] = range(8),
    score: Callable[[Levels, int], float] = noisy,
    **more: Any,
) -> Study:
    """A study with claims."""
    return study_of(factors, seeds, score, claims=claims, **more)


def row(table: Any, name: str) -> Any:
    return table.set_index("name").loc[name]


def scores_of(study: Study, **levels: list[Any]) -> np.ndarray:
    """Mean over the cells with these levels, by seed."""
    runs = study.runs
    for name, among in levels.items():
        runs = runs[runs[name].isin(among)]
    return np.asarray(runs.groupby("seed")["test/loss"].mean())


SIDES = [{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}]
