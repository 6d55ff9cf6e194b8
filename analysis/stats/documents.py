"""Effects with an interval over held-out documents: what they say of other text, where seeds speak of other runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from scipy import stats

from ablate import evidence
from ablate.results import Corrupt, Run, Study

METRIC = "test/loss"  # the only one that is kept by document
LEAST = 2  # documents


def documents(results: Path, study: Study, effects: pandas.DataFrame) -> pandas.DataFrame | None:
    """Each effect with an interval over documents, at the level of its interval over seeds.

    Columns label, documents, tokens, mean, low, high.  None of a study without documents.
    """
    wanted = effects[(effects["metric"] == METRIC) & effects["low"].notna()]
    if wanted.empty or not _kept(results, study):
        return None
    kept = _losses(results, study)
    weights = {contrast.label: contrast.weights for contrast in evidence.contrasts(study.manifest)}
    rows = []
    for row in wanted.itertuples():
        found = by_document(kept, weights[row.label], row.paired)
        if found is not None and len(found[1]) >= LEAST:
            mean, low, high = clustered(*found, row.alpha)
            tokens = int(found[1].sum())
            rows.append(
                {
                    "label": row.label,
                    "documents": len(found[1]),
                    "tokens": tokens,
                    "mean": mean,
                    "low": low,
                    "high": high,
                }
            )
    return pandas.DataFrame(rows) if rows else None


def clustered(totals: np.ndarray, tokens: np.ndarray, alpha: float) -> tuple[float, float, float]:
    """The difference per token, Σ_d T_d / Σ_d N_d, with its 1 − alpha interval over G documents as clusters.

    T_d (G,) is a document's summed difference and N_d (G,) its tokens: error² = G/(G − 1) · Σ (T_d − mean·N_d)² / N²,
    the cluster-robust one of a ratio, and t with G − 1 degrees of freedom.
    """
    count, size = len(tokens), float(tokens.sum())
    mean = float(totals.sum() / size)
    error = math.sqrt(count / (count - 1) * float(np.sum((totals - mean * tokens) ** 2))) / size
    half = float(stats.t.isf(alpha / 2, count - 1)) * error
    return mean, mean - half, mean + half


Kept = dict[str, dict[int, dict[str, tuple[float, int]]]]  # cell -> seed -> document -> (mean loss, tokens)


def by_document(kept: Kept, weights: dict[str, float], paired: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """T_d, the contrast's summed loss of each document as a mean over seeds, and N_d; None where cells differ in text.

    Paired: over the seeds that all cells have; else each cell over its own.
    """
    seeds = {cell: set(kept.get(cell, {})) for cell in weights}
    common = set.intersection(*seeds.values())
    used = {cell: common if paired else own for cell, own in seeds.items()}
    if not all(used.values()):
        return None
    first = next(iter(weights))
    text = {name: tokens for name, (_, tokens) in kept[first][min(used[first])].items()}
    names = sorted(text)
    tokens = np.array([text[name] for name in names], dtype=float)
    totals = np.zeros(len(names))
    for cell, weight in weights.items():
        for seed in used[cell]:
            scored = kept[cell][seed]
            if {name: count for name, (_, count) in scored.items()} != text:
                return None
            totals += weight / len(used[cell]) * np.array([scored[name][0] for name in names]) * tokens
    return totals, tokens


def _kept(results: Path, study: Study) -> bool:
    """Whether runs of this study keep losses by document, judged by the first that is done."""
    done = study.runs.loc[study.runs["status"] == "done", "path"]
    return bool(len(done)) and bool(_document(results, done.iloc[0]))


def _losses(results: Path, study: Study) -> Kept:
    found: Kept = {}
    for run in study.runs[study.runs["status"] == "done"].itertuples():
        told = _document(results, run.path)
        if told:
            found.setdefault(run.cell, {})[run.seed] = told
    return found


def _document(results: Path, path: Any) -> dict[str, tuple[float, int]]:
    """Mean loss and tokens by document; nothing where a run keeps none, or cannot be read."""
    if not isinstance(path, str):
        return {}
    try:
        result = Run(results, path).result() or {}
    except (Corrupt, OSError):
        return {}
    test = (result.get("documents") or {}).get("test") or {}
    columns: Iterable[Any] = zip(*(test.get(key, []) for key in ("name", "loss", "tokens")), strict=False)
    return {name: (float(loss), int(tokens)) for name, loss, tokens in columns}
