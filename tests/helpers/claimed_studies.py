"""Studies with claims, of a grid of norm × ffn in which swiglu lowers the loss, and what a table says of one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fake_studies import Levels, fabricate

from ablate.results.study import Study, load_study

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


def made(folder: Path, claims: dict[str, Any], **kwargs: Any) -> Study:
    """A study of norm × ffn with claims."""
    kwargs = {"score": noisy, "seeds": range(8), "factors": {"norm": ["ln", "rms"], "ffn": FFN}} | kwargs
    return load_study(folder, fabricate(folder, kwargs.pop("factors"), claims=claims, **kwargs))


def row(table: Any, name: str) -> Any:
    return table.set_index("name").loc[name]


def scores_of(study: Study, **levels: Any) -> np.ndarray:
    """Mean over the cells with these levels, by seed."""
    runs = study.runs
    for name, level in levels.items():
        runs = runs[runs[name] == level]
    return np.asarray(runs.groupby("seed")["test/loss"].mean())


NORMAL = "if differences are roughly normal"
TRAINED = "supported among seeds that trained"  # of a loss: too many seeds may collapse to say more
SIDES = [{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}]
