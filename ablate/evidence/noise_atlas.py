"""How large noise was in finished studies: the SD and the pair correlation of each contrast, by task, scale and metric.

`noise_atlas.csv` beside this module holds it; `ablate analyse gallery` writes it from the tables of committed studies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from ablate.config.groups import groups
from ablate.config.plain_yaml import read_plain
from ablate.config.schema import Config
from ablate.evidence.collapse import without_collapsed
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.distributions import chi2_quantile
from ablate.evidence.estimates import Scored, estimate_row, scored, sums
from ablate.evidence.family import ALPHA
from ablate.evidence.statistics import Estimate, paired
from ablate.formatting import MINUS
from ablate.results.naming import measured_as, no_evidence
from ablate.results.study import Study

BITS = "test/bpb"  # the loss in another unit
FILE = Path(__file__).with_name("noise_atlas.csv")
COLUMNS = [
    *("study", "task", "task_kind", "scale", "params", "steps", "metric"),
    *("kind", "factor", "change", "stratum", "squares", "paired"),
    *("n", "seeds", "left_out", "sd", "sd_low", "sd_high", "sd_level", "sd_reference", "correlation"),
]
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
    rows = [row for study in studies if not no_evidence(study.manifest) for row in _of_study(study)]
    return pandas.DataFrame(rows, columns=COLUMNS)


def read_atlas() -> pandas.DataFrame:
    """The atlas as it comes with the package."""
    numbers = [name for name in COLUMNS if name not in TEXTS]
    return pandas.read_csv(FILE, keep_default_na=False, na_values=dict.fromkeys(numbers, ""), encoding="utf-8")


def _of_study(study: Study) -> Iterator[dict[str, Any]]:
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
    sides = [_spread(left, contrast, contrast.side(sign)) for sign in (1, -1)]
    numbers = dict(zip(("sd_low", "sd_high"), sd_interval(row["estimate"]), strict=True))
    numbers |= {"sd": row["sd"], "sd_level": sides[0], "sd_reference": sides[1], "correlation": row["correlation"]}
    yield {
        "study": found.study.manifest.study,
        **_place(found, next(iter(contrast.side(-1)))),
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


def _spread(found: Scored, contrast: Contrast, side: dict[str, float]) -> float:
    """SD over seeds of one side, of seeds that have the other, too, where they pair."""
    _, together = found.groups(contrast.weights)
    whole = list(contrast.weights) if together else list(side)
    complete = ~np.isnan(found.of(whole)).any(axis=1)
    return paired(sums(found.of(side)[complete], side)).sd


def _place(found: Scored, reference: str) -> dict[str, Any]:
    """Where a contrast was measured: the task and the scale of its reference."""
    cell = found.cells[reference]
    task, known = found.study.manifest.tasks[cell.task], cell.config.known
    scale, steps = (scale_of(cell.config), cell.config.train.steps) if known else ("", math.nan)
    return {"task": task.name, "task_kind": task.kind, "scale": scale, "params": cell.params, "steps": steps}


def scale_of(config: Config) -> str:
    """The preset whose model a configuration has, else its shape: "tiny", "4 layers of 64"."""
    model = config.model
    shape = {"layers": model.layers, "heads": model.heads, "dim": model.dim}
    named = [name for name, file in scales().items() if shape.items() <= read_plain(file).get("model", {}).items()]
    return named[0] if named else f"{model.layers} layers of {model.dim}"


def scales() -> dict[str, Path]:
    """The presets of sizes, by name."""
    return groups().get("scale", {})


def sd_interval(estimate: Estimate) -> tuple[float, float]:
    """The 95 % interval of the SD of normal values, s·√(ν/χ²); NaN below two seeds."""
    if estimate.n < 2:
        return math.nan, math.nan
    low, high = (
        estimate.sd * math.sqrt(estimate.df / float(chi2_quantile(p, estimate.df))) for p in (1 - ALPHA / 2, ALPHA / 2)
    )
    return low, high
