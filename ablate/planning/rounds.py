"""The rounds of a command: each a separate study, planned when the ones before it have ended.

tuning       `ablate.planning.tuning`
looks        the study itself; with seeds=auto once per look, until all is decided or seeds_max is reached
other steps  each reference for 0.8, 1, 1.25 and 1.6 times its steps, and further in such factors while the mean score
             of a variant lies beyond what it reached: what effects are worth in training steps

Runs for other numbers of steps are a separate study with the study's seeds; with seeds=auto they are trained after the
runs of each look and before its results are read, so that effects in steps can be decided, too.  The runs at 1 times
the steps are those of the study.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from ablate import formatting
from ablate.config.errors import PlanError, Problem
from ablate.config.ladder import RUNG, at_other_rate
from ablate.config.schema import BY_STEPS, Config
from ablate.planning.cells import describe_cells
from ablate.planning.checks.validate import Checked
from ablate.planning.earlier_runs import read_earlier
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import Cells, CheckedStudy, Layout
from ablate.planning.tuning import tuned, tuning_problems
from ablate.runs.records import Cell, Manifest
from ablate.runs.study import Study, load_study

# Times the steps, about evenly spaced in the logarithm, from the nearest to the last that is trained.
FEWER = (0.8, 0.64, 0.5)
MORE = (1.25, 1.6, 2.0, 2.5, 3.2, 4.0)
FIRST = (0.8, 1.0, 1.25, 1.6)
STEPS = "train.steps"
COMPANION = "exchange"  # the role, and the end of the name, of the study of runs for other numbers of steps
Ratios = list[tuple[float, ...]]  # of each reference, ascending


def next_round(study: CheckedStudy) -> Plan:
    """The first round of a study with something left to train, else its last; its `ended` are those before it."""
    ended: dict[str, Plan] = {}
    for plan in rounds_of(study):
        if plan.todo:
            break
        ended.pop(plan.study.name, None)
        ended[plan.study.name] = plan
    ended.pop(plan.study.name, None)
    return dataclasses.replace(plan, ended=list(ended.values()), requested=study)


def rounds_of(study: CheckedStudy) -> Iterator[Plan]:
    """The plans of a command's rounds, each made when the runs of the one before have ended.  Raises PlanError."""
    settings = study.settings
    if problems := tuning_problems(study) + step_equivalents_problems(study):
        raise PlanError(problems)
    if settings.tune.key is not None:
        study = yield from tuned(study)
    yield from with_other_steps(study) if measures_worth(settings) else looks(study)


def looks(study: CheckedStudy) -> Iterator[Plan]:
    """The study's plan, or with seeds=auto its plan at each look until all is decided."""
    if study.settings.seeds != "auto":
        yield plan_runs(study)
        return
    # Loads SciPy, which no other study needs for planning.
    from ablate.evidence.families import described, looks_until

    planned = looks_until(study.settings.seeds_max)
    for n in planned:
        settings = dataclasses.replace(study.settings, seeds=n)
        plan = plan_runs(dataclasses.replace(study, settings=settings, looks=planned, more=n < planned[-1]))
        if described(plan.manifest) and not any(entry.registered for entry in plan.manifest.claims.values()):
            message = "auto has nothing to decide, since its registered claims are gone or edited; write seeds=8 or so"
            raise PlanError([Problem("seeds", message)])
        yield plan
        if decided(load_study(plan.results, plan.manifest.study, plan.manifest, curves=False)):
            return


def scored_plan(plan: Plan) -> Plan | None:
    """The plan of the study that a plan of another round belongs to, before tuning with untuned cells; None for the
    study's own, and if it exists with tuned cells."""
    study = plan.requested
    with contextlib.suppress(PlanError):
        if study and study.name != plan.manifest.study:
            return dataclasses.replace(next(looks(study)), launcher=plan.launcher)
    return None


def decided(study: Study) -> bool:
    """Whether all registered claims, and all effects that have a verdict, are decided."""
    from ablate.evidence import claims, described, effects, registered, undecided

    tables = [claims] * bool(registered(study.manifest)) + [effects] * (not described(study.manifest))
    return all(undecided(table(study)).empty for table in tables)


def measures_worth(settings: Config) -> bool:
    """Whether references are also trained for other numbers of steps."""
    return bool(settings.step_equivalents) or settings.design == "ladder"


def step_equivalents_problems(study: CheckedStudy) -> list[Problem]:
    """What is wrong with `step_equivalents`, or with the steps of a ladder's rungs."""
    settings = study.settings
    least = min(cell.config.train.steps for cell in study.cells.checked)
    merged = len({scaled(least, ratio) for ratio in FIRST}) < len(FIRST)
    match = settings.match
    messages = {
        "nothing varies here; sweep a key, or leave it out": not study.cells.swept,
        f"sets {STEPS} by itself; leave one of them out": STEPS in study.cells.swept,
        f"match={match} gives configurations other steps than their reference; write another match": match == BY_STEPS,
        f"{STEPS}={least} is too few to be told from 0.8 or 1.25 times as many; write at least 3": merged,
    }
    key = "step_equivalents" if settings.step_equivalents else "design"
    return [Problem(key, message) for message, holds in messages.items() if measures_worth(settings) and holds]


def scaled(steps: int, ratio: float) -> int:
    """A multiple of a number of steps, rounded."""
    return math.floor(steps * ratio + 0.5)


def references_of(cells: Cells) -> list[tuple[Cell, Checked]]:
    """The references that are trained for other numbers of steps: on a ladder those at its learning rate."""
    return [pair for pair in cells.references if not at_other_rate(pair[0].levels.get(RUNG))]


def with_other_steps(study: CheckedStudy) -> Iterator[Plan]:
    """The plans of a study, each followed by those of its references' runs for other numbers of steps; the study's last
    one comes again at the end."""
    count = formatting.counted(len(references_of(study.cells)), "reference")
    note = f"then {count} for 0.8, 1.25 and 1.6 times the steps, same seeds; for more or fewer where a loss lies beyond"
    name = f"{study.name}-{COMPANION}"
    entries = study.entries | {COMPANION: name}
    for plan in looks(dataclasses.replace(study, entries=entries, notes=[*study.notes, note])):
        yield dataclasses.replace(plan, more=True)
        ratios = ratios_so_far(plan.study.cells, read_earlier(study.results, name).manifest)
        while True:
            others = other_steps(plan, name, ratios)
            yield others
            wider = further(plan, others, ratios)
            if wider == ratios:
                break
            ratios = wider
    yield dataclasses.replace(plan, more=False, notes=[each for each in plan.notes if each != note])


def other_steps(plan: Plan, name: str, ratios: Ratios) -> Plan:
    """The plan of the references' runs for these multiples of their steps."""
    cells = other_steps_cells(plan.study.cells, ratios)
    note = f"runs of the reference for other numbers of steps: {formatting.first_of(dict.fromkeys(cells.labels), 6)}"
    entries = {"exchange_of": plan.study.name}
    companion = plan.study.companion(name, cells, note, entries, seeds=plan.manifest.seeds)
    return plan_runs(companion, plan.further_seeds)


def ratios_so_far(cells: Cells, earlier: Manifest | None) -> Ratios:
    """The multiples of each reference's steps that are trained first, with what earlier commands have added."""
    found = []
    for row, reference in references_of(cells):
        there = [cell for cell in earlier.cells if _outside(cells, cell) == _outside(cells, row)] if earlier else []
        planned = {cell.planned_config.train.steps for cell in there}
        steps = reference.config.train.steps
        ratios = {scaled(steps, ratio): ratio for ratio in (*reversed(FEWER), *reversed(MORE), *FIRST)}
        found.append(tuple(sorted({*FIRST, *(ratio for at, ratio in ratios.items() if at in planned)})))
    return found


def _outside(cells: Cells, row: Cell) -> dict[str, Any]:
    """The levels of a cell in the factors that define strata."""
    return {key: row.levels.get(key) for key in cells.factors if key not in cells.reference}


def further(plan: Plan, others: Plan, ratios: Ratios) -> Ratios:
    """The multiples of each reference's steps, with the next one on either side where the mean score of a configuration
    lies beyond the reference's."""
    from ablate.evidence import endpoints, is_solved, lower_is_better, scores, strata

    metrics = endpoints(plan.manifest)
    means = [
        scores(load_study(one.results, one.manifest.study, one.manifest, curves=False)).mean() for one in (plan, others)
    ]
    members, trained = (
        {cell.id: [each.id for each in cells] for _, cells in strata(one.manifest) for cell in cells if cell.reference}
        for one in (plan, others)
    )
    found = []
    for (row, reference), own in zip(references_of(plan.study.cells), ratios, strict=True):
        sign = 1 if lower_is_better(plan.manifest, metrics[row.id]) else -1
        scored = sign * means[0][members[row.id]].dropna()
        reached = sign * means[1][trained[row.id]]
        wider = list(own)
        if not is_solved(metrics[row.id]) and reached.notna().all():
            wider += _next(MORE, own, reference) if scored.min() < reached.min() else []
            wider += _next(FEWER, own, reference) if scored.max() > reached.max() else []
        found.append(tuple(sorted(wider)))
    return found


def _next(outwards: tuple[float, ...], trained: tuple[float, ...], reference: Checked) -> list[float]:
    """The next multiple that is another whole number of steps; [] at the last."""
    steps = reference.config.train.steps
    there = {scaled(steps, ratio) for ratio in trained}
    return [ratio for ratio in outwards if ratio not in trained and scaled(steps, ratio) not in there][:1]


def other_steps_cells(cells: Cells, ratios: Ratios) -> Cells:
    """The references at these multiples of their steps."""
    references = references_of(cells)
    strata = {key: values for key, values in cells.factors.items() if key not in cells.reference}
    same = len({reference.config.train.steps for _, reference in references}) == 1
    checked = list[Checked]()
    names = list[str]()
    labels = list[str]()
    levels = list[dict[str, Any]]()
    at = list[int]()
    shown = dict[float, Any]()
    for (row, reference), own in zip(references, ratios, strict=True):
        at += [len(checked) + own.index(1.0)] * len(own)
        for ratio in own:
            steps = scaled(reference.config.train.steps, ratio)
            # Strata with different steps share only the ratio.
            shown[ratio] = steps if same else f"x{ratio:g}"
            checked.append(reference._replace(config=with_steps(reference.config, steps)))
            names.append(row.name)
            labels.append(f"{row.label}, {steps} steps")
            levels.append({key: row.levels[key] for key in strata} | {STEPS: shown[ratio]})
    factors = strata | {STEPS: [shown[ratio] for ratio in sorted(shown)]}
    layout = Layout(factors, {STEPS: shown[1.0]}, names, labels, levels, at)
    return describe_cells(checked, [cell.config for cell in checked], layout)


def with_steps(config: Config, steps: int) -> Config:
    """A configuration with other steps; the warm-up shrinks in proportion if it would no longer end in time."""
    before, warmup = config.train.steps, config.optim.warmup
    if steps <= warmup < before:
        warmup = math.floor(warmup * steps / before + 0.5)
    return config.with_value("eval.lengths", []).with_value("train.steps", steps).with_value("optim.warmup", warmup)
