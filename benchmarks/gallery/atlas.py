"""The noise atlas of the package, from the tables of studies: `ablate/evidence/power.py` reads it."""

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
from scipy import stats

from ablate.config.files import read_plain
from ablate.config.groups import groups
from ablate.config.typed_json import parse
from ablate.evidence.collapse import collapsed_runs
from ablate.evidence.contrasts import Contrast, contrasts
from ablate.evidence.estimates import Estimate, compare, paired, weighted_sums
from ablate.evidence.families import ALPHA
from ablate.evidence.power import change_of
from ablate.evidence.scores import StudyScores, study_scores
from ablate.runs.files import read_json
from ablate.runs.naming import measured_as, no_evidence
from ablate.runs.records import Manifest
from ablate.runs.study import Study

RECORDED = Path(__file__).parents[2] / "tests" / "recorded"  # the sweep that the README shows
BITS = "test/bpb"  # the loss in another unit
COLUMNS = [
    *("study", "task", "task_kind", "scale", "params", "steps", "metric"),
    *("kind", "factor", "change", "stratum", "squares", "paired"),
    *("n", "seeds", "left_out", "sd", "sd_low", "sd_high", "sd_level", "sd_reference", "correlation"),
]


def atlas(studies: list[Study]) -> pandas.DataFrame:
    """A row per study, contrast and test metric; studies that are no evidence (`no_evidence`) are left out.

    scale             preset with the layers, heads and width of the reference's side; params and steps are that side's
    squares           Σ w² of the contrast's weights: if cells have independent noise of equal SD, the contrast's SD is
                      proportional to √squares, so that a plain difference (squares = 2) informs main effects
    n, seeds          seeds with a number for every cell of the contrast, and seeds of the study
    left_out          seeds in which one of its cells diverged or collapsed (see evidence.collapse), not counted in n
    sd                SD over seeds of the difference, as in `effects`; sd_low, sd_high: its 95 % interval,
                      s·√(ν/χ²_{0.975, ν}) to s·√(ν/χ²_{0.025, ν})
    sd_level          SD over the same seeds of the level's side, sd_reference of the reference's
    correlation       Pearson correlation of the two sides over seeds

    Numbers are rounded to six digits, so that they are the same on every machine.
    """
    rows = [row for study in studies if not no_evidence(study.manifest) for row in _rows(study)]
    return pandas.DataFrame(rows, columns=COLUMNS)


def _rows(study: Study) -> Iterator[dict[str, Any]]:
    known = {name for task in study.manifest.tasks.values() for name in task.metrics}
    tested = [name for name in study.runs if name.startswith("test/") and name != BITS]
    for metric in (name for name in tested if measured_as(name) in known):
        found = study_scores(study, metric)
        for contrast in contrasts(study.manifest):
            if len({found.cells[cell].task for cell in contrast.weights}) == 1 and contrast.kind != "trend":
                yield from _row(found, metric, contrast)


def _row(found: StudyScores, metric: str, contrast: Contrast) -> Iterator[dict[str, Any]]:
    """The row of one contrast, if two seeds have the metric or a seed collapsed."""
    collapsed = collapsed_runs(found, list(contrast.weights))
    left = found.without_runs(collapsed)
    lost = int(collapsed.any(axis=1).sum())
    comparison = compare(left, contrast)
    estimate = comparison.estimate
    if estimate.n < 2 and not lost:
        return
    sd_of_side = {}
    for sign in (1, -1):
        side = contrast.side(sign)
        values = left.values[[*side]]
        if comparison.paired:  # over the seeds that have both sides
            values = values[left.values[[*contrast.weights]].notna().all(axis=1)]
        sd_of_side[sign] = paired(weighted_sums(values, side)).sd
    low, high = sd_interval(estimate)
    numbers = {"sd_low": low, "sd_high": high, "sd": estimate.sd}
    numbers |= {"sd_level": sd_of_side[1], "sd_reference": sd_of_side[-1], "correlation": comparison.correlation}
    reference = found.cells[next(iter(contrast.side(-1)))]
    task, config = found.study.manifest.tasks[reference.task], reference.config
    yield {
        "study": found.study.manifest.study,
        "task": task.name,
        "task_kind": task.kind,
        "scale": scale_of(config.model.layers, config.model.heads, config.model.dim) if config else "",
        "params": reference.params,
        "steps": config.train.steps if config else math.nan,
        "metric": metric,
        "kind": contrast.kind,
        "factor": contrast.factor,
        "change": change_of(contrast),
        "stratum": contrast.stratum,
        "squares": round(sum(weight**2 for weight in contrast.weights.values()), 12),
        "paired": comparison.paired,
        "n": estimate.n,
        "seeds": len(found.study.manifest.seeds),
        "left_out": lost,
        **{name: float(f"{value:.6g}") for name, value in numbers.items()},
    }


@functools.cache
def scale_of(layers: int, heads: int, dim: int) -> str:
    """The preset with these layers, heads and width, or the shape itself: "tiny", "4 layers of 64"."""
    shape = {"layers": layers, "heads": heads, "dim": dim}
    named = [
        name for name, file in groups()["scale"].items() if shape.items() <= read_plain(file).get("model", {}).items()
    ]
    return named[0] if named else f"{layers} layers of {dim}"


def sd_interval(estimate: Estimate) -> tuple[float, float]:
    """The 95 % interval of the SD of normal values, s·√(ν/χ²); NaN below two seeds."""
    if estimate.n < 2:
        return math.nan, math.nan
    low, high = (
        estimate.sd * math.sqrt(estimate.df / float(stats.chi2.ppf(p, estimate.df))) for p in (1 - ALPHA / 2, ALPHA / 2)
    )
    return low, high


def recorded_study(folder: Path = RECORDED) -> Study:
    """The study of norm_ffn_tiny.csv, without curves; its manifest lists cells but no runs."""
    manifest = parse(Manifest, read_json(folder / "norm_ffn_tiny.manifest.json"))
    table = pandas.read_csv(folder / "norm_ffn_tiny.csv")
    cells = {tuple(cell.levels.values()): cell for cell in manifest.cells}
    whose = [cells[each] for each in zip(*(table[name] for name in manifest.factors), strict=True)]
    runs = table.assign(cell=[cell.id for cell in whose], label=[cell.label for cell in whose])
    return Study(manifest, runs, pandas.DataFrame(columns=["cell", "seed", "step"]), [])
