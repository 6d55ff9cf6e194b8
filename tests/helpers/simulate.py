"""Many studies at once: the arithmetic of evidence.effects on arrays, and a study of a design to check it by."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from fake_studies import TASK, study_of
from scipy import stats

from ablate import evidence
from ablate.runs.study import Study

DESIGNS: dict[str, dict[str, list[Any]]] = {
    "2x2": {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]},
    "1x4": {"ffn": ["mlp", "gelu", "silu", "swiglu"]},
}
SPREADS = {"equal": (1.0, 1.0, 1.0, 1.0), "unequal": (1.0, 4.0, 2.0, 0.5)}  # SD of each cell's own noise


class Design(NamedTuple):
    """A design over four cells: a study of it, and the weights (cells, rows) of its family."""

    study: Study
    weights: np.ndarray


def design_of(name: str, n: int = 8) -> Design:
    """The design of this name, with n seeds."""
    tasks = {"f0": TASK | {"yardsticks": {}}}  # scores are noise of any size: none is taken for a collapse
    study = study_of(DESIGNS[name], range(n), tasks=tasks)
    return Design(study, weights_of(study))


def weights_of(study: Study) -> np.ndarray:
    """Weights (cells, rows) of the family of a study."""
    found = [contrast for contrast in evidence.contrasts(study.manifest) if contrast.kind != "cell"]
    return np.array([[each.weights.get(cell.id, 0.0) for each in found] for cell in study.manifest.cells])


def with_scores(study: Study, scores: np.ndarray, **manifest: Any) -> Study:
    """The study with scores (seeds, cells) in place of its own, and as many seeds."""
    cells = [cell.id for cell in study.manifest.cells]
    runs = study.runs[study.runs["seed"] < len(scores)].copy()
    runs["test/loss"] = [scores[run.seed, cells.index(run.cell)] for run in runs.itertuples()]
    told = replace(study.manifest, **({"seeds": list(range(len(scores)))} | manifest))
    return Study(told, runs, study.curves, [])


def scores(rng: np.random.Generator, studies: int, n: int, spread: tuple[float, ...]) -> np.ndarray:
    """Scores (studies, seeds, cells) without any effect: noise that a seed's cells share, and noise of their own."""
    own = rng.normal(size=(studies, n, len(spread))) * spread
    return np.asarray(3 + 2 * rng.normal(size=(studies, n, 1)) + own)


def paired_intervals(differences: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends (studies, rows) of the t intervals of differences (studies, seeds, rows)."""
    n = differences.shape[1]
    half = stats.t.isf(alpha / 2, n - 1) * differences.std(1, ddof=1) / math.sqrt(n)
    return differences.mean(1) - half, differences.mean(1) + half


def verdicts(low: np.ndarray, high: np.ndarray, n: int, margin: float = math.nan) -> np.ndarray:
    """The words of intervals of a loss."""
    inside = (low > -margin) & (high < margin) & (n >= 5)
    clear = (low > 0) | (high < 0)
    words = np.where(high < 0, "better", np.where(low > 0, "worse", "undecided"))
    return np.where(inside, np.where(clear, "negligible", "equivalent"), words)


def error(chance: float, studies: int) -> float:
    """Three standard errors of a share of so many studies."""
    return 3 * math.sqrt(chance * (1 - chance) / studies)
