"""The rounds of a command: each a separate study, planned when the ones before it have ended.

tuning       `ablate.planning.tuning`
looks        the study itself; with seeds=auto once per look, until all is decided or seeds_max is reached
other steps  each reference for 0.8, 1, 1.25 and 1.6 times its steps, and further in such factors while the mean score
             of a variant lies beyond what it reached: what effects are worth in training steps

Runs for other numbers of steps are a separate study with the study's seeds; with seeds=auto they are trained after the
runs of each look and before its results are read, so that effects in steps can be decided, too.  The runs at 1 times
the steps are those of the study.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ablate.config.claims import Levels
from ablate.config.compose import Draft
from ablate.config.errors import PlanError, Problem
from ablate.config.ladder import RUNG, at_other_rate
from ablate.config.schema import BY_STEPS, Config
from ablate.formatting import counted, first_of
from ablate.planning.cells import inspected
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import PlannedStudy
from ablate.planning.tuning import tuned, tuning_problems
from ablate.runs.manifest import readable
from ablate.runs.records import Manifest
from ablate.runs.study import Study, load_study

if TYPE_CHECKING:
    import pandas

# Times the steps, about evenly spaced in the logarithm, from the nearest to the last that is trained.
FEWER = (0.8, 0.64, 0.5)
MORE = (1.25, 1.6, 2.0, 2.5, 3.2, 4.0)
FIRST = (0.8, 1.0, 1.25, 1.6)
STEPS = "train.steps"
COMPANION = "exchange"  # the role, and the end of the name, of the study of runs for other numbers of steps
NAMED = 6  # configurations that a note names
Ratios = dict[int, list[float]]  # the multiples of each reference's steps, ascending, by the place of its cell


def next_round(study: PlannedStudy) -> Plan:
    """The first round of a study with something left to train, else its last; its `ended` are those before it."""
    ended: dict[str, Plan] = {}  # of several plans of one study the last
    for plan in rounds_of(study):
        ended[plan.study.name] = plan
        if plan.todo:
            break
    del ended[plan.study.name]
    return dataclasses.replace(plan, ended=list(ended.values()), requested=study)


def rounds_of(study: PlannedStudy) -> Iterator[Plan]:
    """The plans of a command's rounds, each made when the runs of the one before have ended.  Raises PlanError."""
    problems = tuning_problems(study) + step_equivalents_problems(study)
    if problems:
        raise PlanError(problems)
    if study.settings.tune.key is not None:
        study = yield from tuned(study)
    if measures_worth(study.settings):
        yield from with_other_steps(study)
    else:
        yield from looks(study)


def looks(study: PlannedStudy) -> Iterator[Plan]:
    """The study's plan, or with seeds=auto its plan at each look until all is decided."""
    if study.settings.seeds != "auto":
        yield plan_runs(study)
        return
    # Loads SciPy, which no other study needs for planning.
    from ablate.evidence.families import described, looks_until

    planned = looks_until(study.settings.seeds_max)
    for count in planned:
        settings = dataclasses.replace(study.settings, seeds=count)
        plan = plan_runs(dataclasses.replace(study, settings=settings, looks=planned, more=count < planned[-1]))
        if described(plan.manifest) and not any(entry.registered for entry in plan.manifest.claims.values()):
            message = "auto has nothing to decide, since its registered claims are gone or edited; write seeds=8 or so"
            raise PlanError([Problem("seeds", message)])
        yield plan
        if decided(results_of(plan)):
            return


def results_of(plan: Plan) -> Study:
    """The results of a plan's runs."""
    return load_study(plan.results, plan.manifest.study, plan.manifest, curves=False)


def decided(study: Study) -> bool:
    """Whether all registered claims, and all effects that have a verdict, are decided."""
    from ablate.evidence import claims, described, effects, registered, undecided

    if registered(study.manifest) and not undecided(claims(study)).empty:
        return False
    return described(study.manifest) or undecided(effects(study)).empty


def measures_worth(settings: Config) -> bool:
    """Whether references are also trained for other numbers of steps."""
    return bool(settings.step_equivalents) or settings.design == "ladder"


def step_equivalents_problems(study: PlannedStudy) -> list[Problem]:
    """What is wrong with `step_equivalents`, or with the steps of a ladder's rungs."""
    settings = study.settings
    if not measures_worth(settings):
        return []
    least = min(row.planned_config.train.steps for row in study.rows)
    if not study.swept:
        message = "nothing varies here; sweep a key, or leave it out"
    elif STEPS in study.swept:
        message = f"sets {STEPS} by itself; leave one of them out"
    elif settings.match == BY_STEPS:
        message = f"match={BY_STEPS} gives configurations other steps than their reference; write another match"
    elif len({scaled(least, ratio) for ratio in FIRST}) < len(FIRST):
        message = f"{STEPS}={least} is too few to be told from 0.8 or 1.25 times as many; write at least 3"
    else:
        return []
    return [Problem("step_equivalents" if settings.step_equivalents else "design", message)]


def scaled(steps: int, ratio: float) -> int:
    """A multiple of a number of steps, rounded."""
    return math.floor(steps * ratio + 0.5)


def with_other_steps(study: PlannedStudy) -> Iterator[Plan]:
    """The plans of a study, each followed by those of its references' runs for other numbers of steps; the study's last
    one comes again at the end."""
    references = counted(len(references_of(study)), "reference")
    note = f"then {references} for 0.8, 1.25 and 1.6 times the steps, same seeds; for more or fewer where a loss lies "
    note += "beyond"
    name = f"{study.name}-{COMPANION}"
    entries = study.entries | {COMPANION: name}
    for plan in looks(dataclasses.replace(study, entries=entries, notes=[*study.notes, note])):
        yield dataclasses.replace(plan, more=True)
        ratios = ratios_so_far(plan.study, readable(plan.results, name))
        while True:
            others = other_steps(plan, name, ratios)
            yield others
            wider = further(plan, others, ratios)
            if wider == ratios:
                break
            ratios = wider
    yield dataclasses.replace(plan, more=False, notes=[text for text in plan.notes if text != note])


def references_of(study: PlannedStudy) -> list[int]:
    """The places of the references that are trained for other numbers of steps: on a ladder those at its learning
    rate."""
    places = range(len(study.rows))
    return [i for i in places if study.rows[i].reference and not at_other_rate(study.rows[i].levels.get(RUNG))]


def stratum(levels: Levels, study: PlannedStudy) -> Levels:
    """The levels of a cell in the factors that are not compared."""
    return {key: levels.get(key) for key in study.factors if key not in study.reference}


def distinct_ratios(steps: int) -> list[float]:
    """The multiples of a number of steps, ascending; of several that round to one number the nearest to 1."""
    ratios: dict[int, float] = {}
    for ratio in (1.0, *FEWER, *MORE):
        ratios.setdefault(scaled(steps, ratio), ratio)
    return sorted(ratios.values())


def ratios_so_far(study: PlannedStudy, earlier: Manifest | None) -> Ratios:
    """The multiples of each reference's steps that are trained first, with what earlier commands have added."""
    ratios = {}
    for i in references_of(study):
        row = study.rows[i]
        planned = set()
        for cell in earlier.cells if earlier else []:
            if stratum(cell.levels, study) == stratum(row.levels, study):
                planned.add(cell.planned_config.train.steps)
        steps = row.planned_config.train.steps
        multiples = distinct_ratios(steps)
        ratios[i] = [ratio for ratio in multiples if ratio in FIRST or scaled(steps, ratio) in planned]
    return ratios


def other_steps(plan: Plan, name: str, ratios: Ratios) -> Plan:
    """The plan of the references' runs for these multiples of their steps."""
    settings = dataclasses.replace(
        plan.study.settings, study=name, seeds=plan.manifest.seeds, confirm=None, match="none", design="grid", zip=[]
    )
    study = inspected(at_other_steps(plan.study, ratios, settings))
    labels = dict.fromkeys(row.label for row in study.rows)
    note = f"runs of the reference for other numbers of steps: {first_of(labels, NAMED)}"
    return plan_runs(dataclasses.replace(study, notes=[note]), plan.further_seeds)


def at_other_steps(study: PlannedStudy, ratios: Ratios, settings: Config) -> PlannedStudy:
    """The references of a study at these multiples of their steps, as a study with these settings."""
    is_one_number = len({study.rows[i].planned_config.train.steps for i in ratios}) == 1
    levels: dict[float, int | str] = {}
    drafts: list[Draft] = []
    for i, multiples in ratios.items():
        draft = study.drafts[i]
        config = study.rows[i].planned_config
        reference = len(drafts) + multiples.index(1.0)
        for ratio in multiples:
            steps = scaled(config.train.steps, ratio)
            levels[ratio] = steps if is_one_number else f"x{ratio:g}"  # else strata share only the ratio
            label = f"{draft.label}, {steps} steps"
            place = stratum(draft.levels, study) | {STEPS: levels[ratio]}
            drafts.append(Draft(with_steps(config, steps), draft.choices, label, place, reference))
    factors = {key: values for key, values in study.factors.items() if key not in study.reference}
    factors[STEPS] = [levels[ratio] for ratio in sorted(levels)]
    entries = {"exchange_of": study.name, "remarks": []}
    return PlannedStudy(study.command, settings, factors, {STEPS: levels[1.0]}, drafts, entries=entries, more=True)


def with_steps(config: Config, steps: int) -> Config:
    """A configuration with other steps; the warm-up shrinks in proportion if it would no longer end in time."""
    before = config.train.steps
    warmup = config.optim.warmup
    if steps <= warmup < before:
        warmup = math.floor(warmup * steps / before + 0.5)
    return config.with_value("eval.lengths", []).with_value("train.steps", steps).with_value("optim.warmup", warmup)


def further(plan: Plan, others: Plan, ratios: Ratios) -> Ratios:
    """The multiples of each reference's steps, with the next one on either side where the mean score of a configuration
    lies beyond the reference's."""
    from ablate.evidence import endpoints, is_solved, lower_is_better

    metrics = endpoints(plan.manifest)
    by_reference = means_by_reference(plan)
    others_by_reference = means_by_reference(others)
    wider = {}
    for i, multiples in ratios.items():
        row = plan.study.rows[i]
        sign = 1 if lower_is_better(plan.manifest, metrics[row.id]) else -1
        scored = sign * by_reference[row.id].dropna()
        reached = sign * others_by_reference[row.id]
        wider[i] = list(multiples)
        if is_solved(metrics[row.id]) or reached.isna().any():
            continue
        ratios_of_steps = distinct_ratios(row.planned_config.train.steps)
        if scored.min() < reached.min():
            wider[i] += [ratio for ratio in ratios_of_steps if ratio > multiples[-1]][:1]
        if scored.max() > reached.max():
            wider[i] += [ratio for ratio in ratios_of_steps if ratio < multiples[0]][-1:]
        wider[i].sort()
    return wider


def means_by_reference(plan: Plan) -> dict[str, pandas.Series[float]]:
    """The mean scores of the cells of each stratum, by the id of its reference."""
    from ablate.evidence import scores, strata

    means = scores(results_of(plan)).mean()
    by_reference = {}
    for _, cells in strata(plan.manifest):
        for cell in cells:
            if cell.reference:
                by_reference[cell.id] = means[[other.id for other in cells]]
    return by_reference
