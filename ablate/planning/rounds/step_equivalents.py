"""Exchange runs: each reference cell at 0.8, 1 and 1.25 times its steps, which give effects in training steps.

They are a separate study, trained after the study with the seeds that it has; with seeds=auto after the runs of
each look and before its results are read, so that whatever is decided can be decided in steps, too.  No comparison
has been seen when they start, and they add no seed.  The runs at 1 times the steps are the study's own.
"""

import dataclasses
import math
from collections.abc import Iterator

from ablate import formatting
from ablate.config.errors import Problem
from ablate.config.schema import BY_STEPS, Config
from ablate.planning.describe import cells_of
from ablate.planning.rounds.sequential import looks
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import Cells, CheckedStudy

RATIOS = (0.8, 1.0, 1.25)  # at even distances in the logarithm
KEY = "train.steps"


def step_equivalents_problems(study: CheckedStudy) -> list[Problem]:
    """What is wrong with `step_equivalents`."""
    if not study.settings.step_equivalents:
        return []
    swept = [key for name in study.cells.factors for key in name.split("+")]  # of a zipped factor all
    least = min(cell.config.train.steps for cell in study.cells.checked)
    found = []
    if not swept:
        found.append("nothing varies, so there is no difference to tell in steps; sweep a key, or leave it out")
    if KEY in swept:
        found.append(f"sets {KEY} by itself; leave one of them out")
    if study.settings.match in BY_STEPS:
        found.append(f"match={study.settings.match} gives cells other steps than their reference; write another match")
    if len({scaled(least, ratio) for ratio in RATIOS}) < len(RATIOS):
        found.append(f"{KEY}={least} is too few to be told from 0.8 or 1.25 times as many; write at least 3")
    return [Problem("step_equivalents", message) for message in found]


def scaled(steps: int, ratio: float) -> int:
    """A multiple of a number of steps, rounded."""
    return math.floor(steps * ratio + 0.5)


def with_step_equivalents(study: CheckedStudy) -> Iterator[Plan]:
    """The plans of a study, each followed by that of exchange runs with its seeds; the last comes again as the end."""
    own = [cell.config.train.steps for _, cell in study.cells.references]
    steps = [str(scaled(each, ratio)) for each in sorted(set(own)) for ratio in RATIOS if ratio != 1]
    count = formatting.counted(len(own), "reference cell")
    note = f"then exchange runs: {count} at {' and '.join(steps)} steps, with the same seeds"
    entries = study.entries | {"exchange": f"{study.name}-exchange"}
    for plan in looks(dataclasses.replace(study, entries=entries, notes=[*study.notes, note])):
        yield dataclasses.replace(plan, more=True)
        cells, of, seeds = exchange_cells(plan.study.cells), {"exchange_of": plan.study.name}, plan.manifest.seeds
        shown = f"exchange runs: {', '.join(dict.fromkeys(cells.labels))}"
        yield plan_runs(plan.study.companion(entries["exchange"], cells, shown, of, seeds=seeds))
    yield dataclasses.replace(plan, more=False, notes=[each for each in plan.notes if each != note])


def exchange_cells(cells: Cells) -> Cells:
    """The reference cells of all strata at each multiple of their steps."""
    own = [cell.config.train.steps for _, cell in cells.references]
    strata = {key: values for key, values in cells.factors.items() if key not in cells.reference}
    made = [(i, ratio, scaled(steps, ratio)) for i, steps in enumerate(own) for ratio in RATIOS]
    # Strata of other lengths have no number of steps in common.
    shown = [steps if len(set(own)) == 1 else f"x{ratio:g}" for _, ratio, steps in made]
    checked, names, levels, labels = [], [], [], []
    for (i, _, steps), level in zip(made, shown, strict=True):
        row, cell = cells.references[i]
        checked.append(cell._replace(config=with_steps(cell.config, steps)))
        names.append(row.name)
        levels.append({key: row.levels[key] for key in strata} | {KEY: level})
        labels.append(f"{row.label}, {steps} steps")
    at = [made.index((i, 1.0, own[i])) for i, _, _ in made]
    factors, reference = strata | {KEY: list(dict.fromkeys(shown))}, {KEY: shown[RATIOS.index(1.0)]}
    return cells_of(factors, reference, checked, names, levels, labels, at)


def with_steps(config: Config, steps: int) -> Config:
    """A configuration with another number of steps; the warm-up stays, or shrinks where it no longer ends in time."""
    before, warmup = config.train.steps, config.optim.warmup
    if steps <= warmup < before:
        warmup = math.floor(warmup * steps / before + 0.5)
    return config.with_value("eval.lengths", []).with_value("train.steps", steps).with_value("optim.warmup", warmup)
