"""The rounds of a command: each a separate study, planned when the ones before it have ended.

tuning         `ablate.planning.tuning`
placebos       the reference cell beside copies of itself in which one part of the randomness is drawn anew
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
from typing import Any

from ablate import formatting
from ablate.config.errors import PlanError, Problem
from ablate.config.schema import BY_STEPS, COMPONENTS, Config
from ablate.model.init import FIXED, redrawn
from ablate.planning.cells import describe_cells
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import Cells, CheckedStudy, Layout
from ablate.planning.tuning import summary_of, tuned, tuning_problems
from ablate.results.study import Study, load_study

LEAST = 3  # placebos of a kind, for a standard deviation
PLACEBO_LABELS = {"data": "data in another order", "init": "initialised anew", "chaos": "perturbed by 1e-7"}
PLACEBO = "seed.placebo"
RATIOS = (0.8, 1.0, 1.25)  # evenly spaced in the logarithm
STEPS = "train.steps"
Shapes = dict[str, tuple[str, tuple[int, ...]]]  # of parameters: name -> (role, shape)


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
    if problems := tuning_problems(study) + placebo_problems(study) + step_equivalents_problems(study):
        raise PlanError(problems)
    if settings.tune.key is not None:
        study = yield from tuned(study)
    if settings.placebo_seeds:
        placebos = placebo_study(study)
        yield plan_runs(placebos)
        study = dataclasses.replace(study, entries=study.entries | {"placebos": placebos.name})
    yield from with_step_equivalents(study) if settings.step_equivalents else looks(study)


def looks(study: CheckedStudy) -> Iterator[Plan]:
    """The study's plan, or with seeds=auto its plan at each look until all is decided."""
    if study.settings.seeds != "auto":
        yield plan_runs(study)
        return
    # Loads SciPy, which no other study needs for planning.
    from ablate.evidence.error_rates import described, looks_until

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


def placebo_problems(study: CheckedStudy) -> list[Problem]:
    """What is wrong with `placebo_seeds`."""
    count, seed = study.settings.placebo_seeds, study.settings.seed
    few = f"must be ≥ {LEAST}, as in placebo_seeds=8: {count} of each kind cannot estimate a standard deviation"
    same = "seed.init and seed.data are both fixed, so that all its seeds would be one run"
    own = f"sets {PLACEBO} by itself; leave one of them out"
    fixed = None not in (seed.init, seed.data)
    given = PLACEBO in study.cells.swept or any(cell.config.seed.placebo for cell in study.cells.checked)
    messages = {few: count < LEAST, own: given, same: fixed}
    return [Problem("placebo_seeds", message) for message, holds in messages.items() if count and holds]


def placebo_study(study: CheckedStudy) -> CheckedStudy:
    """The reference cell of the first stratum and a placebo of each kind, with seeds 0, 1, 2, …: the swept components
    with random initial values, data order, initialisation, and chaos."""
    count, (row, plain) = study.settings.placebo_seeds, study.cells.references[0]
    shapes, config = plain.budget.shapes, plain.config.with_value("eval.lengths", [])
    drawn = [key for key in study.cells.swept if key in COMPONENTS and key != "init"]
    drawn = [key for key in drawn if shared_draws(key, shapes, plain.config) < 1]
    # Without the parts of the randomness that `seed.init` or `seed.data` fixes.
    varying = [half for half in ("data", "init") if getattr(config.seed, half) is None]
    kinds: list[Any] = [None, *(drawn if "init" in varying else []), *varying, "chaos"]
    checked = [plain._replace(config=config.with_value(PLACEBO, kind)) for kind in kinds]
    labels = [f"{row.label}, {PLACEBO_LABELS.get(kind, f'{kind} drawn anew')}" if kind else row.label for kind in kinds]
    levels, names, at = [{PLACEBO: kind} for kind in kinds], [row.name] * len(kinds), [0] * len(kinds)
    layout = Layout({PLACEBO: kinds}, {PLACEBO: None}, names, labels, levels, at)
    cells = describe_cells(checked, [cell.config for cell in checked], layout)
    shares = [shared_draws(kind, shapes, plain.config) for kind in kinds]
    rows = [dataclasses.replace(each, shared_draws=share) for each, share in zip(cells.rows, shares, strict=True)]
    note = f"placebos: {row.label} and {len(kinds) - 1} kinds of placebo × {count} seeds; then: {summary_of(study)}"
    entries, seeds = {"placebo_of": study.base}, list(range(count))
    return study.companion(f"{study.base}-aa", dataclasses.replace(cells, rows=rows), note, entries, seeds=seeds)


def shared_draws(kind: str | None, shapes: Shapes, config: Config) -> float:
    """Share of a model's random initial values, trained vectors included, that a placebo does not draw anew."""
    fixed = {*FIXED} - ({"vectors"} if config.embedding.get("shared") is False else set())
    drawn = {name: math.prod(shape) for name, (role, shape) in shapes.items() if role not in fixed}
    return 1 - sum(drawn[name] for name in redrawn(kind, drawn)) / max(1, sum(drawn.values()))


def step_equivalents_problems(study: CheckedStudy) -> list[Problem]:
    """What is wrong with `step_equivalents`."""
    match, least = study.settings.match, min(cell.config.train.steps for cell in study.cells.checked)
    merged = len({scaled(least, ratio) for ratio in RATIOS}) < len(RATIOS)
    messages = {
        "nothing varies here; sweep a key, or leave it out": not study.cells.swept,
        f"sets {STEPS} by itself; leave one of them out": STEPS in study.cells.swept,
        f"match={match} gives cells other steps than their reference; write another match": match == BY_STEPS,
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
