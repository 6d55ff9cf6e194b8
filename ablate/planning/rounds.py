"""The rounds of a command: each a separate study, planned when the ones before it have ended.

tuning         `ablate.planning.tuning`
looks          the study itself; with seeds=auto once per look, until all is decided or seeds_max is reached
exchange runs  each reference cell at 0.8, 1 and 1.25 times its steps, which give effects in training steps

Exchange runs are a separate study with the study's seeds; with seeds=auto they are trained after the runs of each look
and before its results are read, so that effects in steps can be decided, too.  The runs at 1 times the steps are those
of the study.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator

from ablate import formatting
from ablate.config.errors import PlanError, Problem
from ablate.config.schema import BY_STEPS, Config
from ablate.planning.cells import describe_cells
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import Cells, CheckedStudy, Layout
from ablate.planning.tuning import tuned, tuning_problems
from ablate.results.study import Study, load_study

RATIOS = (0.8, 1.0, 1.25)  # evenly spaced in the logarithm
STEPS = "train.steps"


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
    yield from with_step_equivalents(study) if settings.step_equivalents else looks(study)


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


def step_equivalents_problems(study: CheckedStudy) -> list[Problem]:
    """What is wrong with `step_equivalents`."""
    match, least = study.settings.match, min(cell.config.train.steps for cell in study.cells.checked)
    merged = len({scaled(least, ratio) for ratio in RATIOS}) < len(RATIOS)
    messages = {
        "nothing varies here; sweep a key, or leave it out": not study.cells.swept,
        f"sets {STEPS} by itself; leave one of them out": STEPS in study.cells.swept,
        f"match={match} gives configurations other steps than their reference; write another match": match == BY_STEPS,
        f"{STEPS}={least} is too few to be told from 0.8 or 1.25 times as many; write at least 3": merged,
    }
    asked = study.settings.step_equivalents
    return [Problem("step_equivalents", message) for message, holds in messages.items() if asked and holds]


def scaled(steps: int, ratio: float) -> int:
    """A multiple of a number of steps, rounded."""
    return math.floor(steps * ratio + 0.5)


def with_step_equivalents(study: CheckedStudy) -> Iterator[Plan]:
    """The plans of a study, each followed by that of its exchange runs; the study's last one comes again at the end."""
    own = [cell.config.train.steps for _, cell in study.cells.references]
    steps = [str(scaled(each, ratio)) for each in sorted(set(own)) for ratio in RATIOS if ratio != 1]
    count = formatting.counted(len(own), "reference configuration")
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
    # Strata with different steps share only the ratio.
    shown = [steps if len(set(own)) == 1 else f"x{ratio:g}" for _, ratio, steps in made]
    of = [(*cells.references[i], steps) for i, _, steps in made]
    checked = [cell._replace(config=with_steps(cell.config, steps)) for _, cell, steps in of]
    names, labels = [row.name for row, _, _ in of], [f"{row.label}, {steps} steps" for row, _, steps in of]
    both = zip(of, shown, strict=True)
    levels = [{key: row.levels[key] for key in strata} | {STEPS: level} for (row, _, _), level in both]
    at = [made.index((i, 1.0, own[i])) for i, _, _ in made]
    factors, reference = strata | {STEPS: list(dict.fromkeys(shown))}, {STEPS: shown[RATIOS.index(1.0)]}
    layout = Layout(factors, reference, names, labels, levels, at)
    return describe_cells(checked, [cell.config for cell in checked], layout)


def with_steps(config: Config, steps: int) -> Config:
    """A configuration with other steps; the warm-up shrinks in proportion if it would no longer end in time."""
    before, warmup = config.train.steps, config.optim.warmup
    if steps <= warmup < before:
        warmup = math.floor(warmup * steps / before + 0.5)
    return config.with_value("eval.lengths", []).with_value("train.steps", steps).with_value("optim.warmup", warmup)
