"""The cells of a study: configurations that are checked, counted, matched, tried out and made rows of the manifest.

A study that names user code is inspected in a child process, so that this one never imports any.

Matching makes parameters or FLOPs equal to the reference's by the FFN's width, training FLOPs by the steps.  Widths are
multiples of 8, or any integer if no multiple of 8 comes within 1 %; a cell that is equal already does not change.  In a
pattern over the layers each variant gets the width that it would have in all layers; if the FFN of some layers has no
width, those of the others are scaled in proportion.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from ablate.config.depth import chosen_at, is_patterned, variants_of
from ablate.config.errors import BadComponent, PlanError, Problem, first_line
from ablate.config.key_checks import CHOSEN
from ablate.config.schema import BUILT, BY_STEPS, LAYERS, Config, typed
from ablate.config.typed_json import parse, plain
from ablate.data.corpus import nothing_prepared
from ablate.data.task import Task, batch_positions, build_task
from ablate.formatting import first_of, percent, rough
from ablate.model.cost import Budget
from ablate.model.init import shared_draws
from ablate.model.products import one_thread
from ablate.planning.checks import child
from ablate.planning.checks.duplicates import Pair, about_networks, refuse_equal, same_networks
from ablate.planning.checks.examine import examine_cell
from ablate.planning.checks.memory import memory_facts, memory_problems
from ablate.planning.checks.user_code import (
    DescribedTask,
    describe,
    foreign_parts,
    isolate_user_code,
    runs_user_code,
    seen_lengths,
)
from ablate.planning.checks.validate import Checked, Validator
from ablate.planning.reporting import reported
from ablate.planning.study import Cells, Draft, describe_task
from ablate.runs.key import batches, cell_id, is_foreign, numbers
from ablate.runs.records import Cell, Matched, TaskFacts, UserCode

CHECK, MATCH, TRY = 1, 2, 3  # how far cells are inspected
AT_ONCE = 5  # seeds of `auto` before the first look
STEP = 8  # widths that hardware likes
CLOSE = 0.01  # relative difference that multiples of STEP must reach, and that needs no note
FAR = 0.2  # relative difference beyond which a match is refused
EXTREME = 4  # a width may grow to four times itself, and shrink to a quarter of what one token uses of it
WIDEST = 2**24


@dataclasses.dataclass
class Inspection:
    """What is found of a study's cells: those that passed, in their order, and what is wrong with the others."""

    checked: list[Checked] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    notes: list[list[str]] = dataclasses.field(default_factory=list)  # on each cell
    pairs: list[Pair] = dataclasses.field(default_factory=list)  # of cells that are the same network


def inspect_cells(
    configs: list[Config], labels: list[str], references: list[int], match: str, until: int = TRY
) -> Inspection:
    """Check composed configurations, match each to its reference `configs[references[i]]`, and try it out on a small
    copy; later steps are left out after problems, and after `until`.  Texts are prepared only if all checks pass."""
    call = partial(inspect, configs, labels, references, match, until)
    if child.loads_user_code or not any(map(runs_user_code, configs)):
        return call()
    try:
        return from_plain(child.run_in_child(partial(as_plain, call)), configs[0].user)
    except child.Failed as error:
        return Inspection(problems=[Problem("", str(error))])


def inspect(configs: list[Config], labels: list[str], references: list[int], match: str, until: int) -> Inspection:
    """`inspect_cells` in this process."""
    validator = Validator()
    with nothing_prepared() as unprepared:
        checked, problems = validator.validate(configs, labels)
    if unprepared and not problems and until > CHECK:
        checked, problems = validator.validate(configs, labels)
    found = Inspection(checked, problems, [[] for _ in checked])
    if problems or until == CHECK:
        return found
    try:
        found.checked = match_cells(match, checked, labels, references, validator)
    except PlanError as error:
        found.problems = error.problems
        return found
    if until == TRY:
        with one_thread():
            try_out(found)
    return found


def try_out(found: Inspection) -> None:
    """Try out small copies of cells: those with user code for mistakes, all for equal networks; count their memory."""
    for i, cell in enumerate(reported(list(found.checked), "trying")):
        problems, notes = list[Problem](), list[str]()
        if is_foreign(numbers(cell.config)):
            child.begin(foreign_parts(cell.config))
            problems, notes = examine_cell(cell)
        found.problems += problems
        found.notes[i] += notes
        found.checked[i] = cell._replace(memory=memory_facts(cell))
    if not found.problems:
        found.pairs = same_networks(found.checked)


def as_plain(call: Callable[[], Inspection]) -> dict[str, Any]:
    """What is found of cells with user code, as plain data."""
    found = call()
    cells = []
    for cell in found.checked:
        row = {key: getattr(cell, key) for key in ("defaults", "memory")}
        row |= {key: plain(getattr(cell, key)) for key in ("config", "budget", "matched", "user_code")}
        cells.append(row | {"task": describe(cell.task, cell.config)})
    return {"checked": cells, "problems": found.problems, "notes": found.notes, "pairs": found.pairs}


def from_plain(found: dict[str, Any], user: list[str]) -> Inspection:
    """What `as_plain` made of an inspection."""
    tasks: dict[str, DescribedTask] = {}
    checked = []
    for row in found["checked"]:
        task = DescribedTask(row["task"])
        checked.append(
            Checked(
                config=dataclasses.replace(typed(row["config"]), user=user),
                task=tasks.setdefault(task.identity, task),
                budget=parse(Budget, row["budget"]),
                defaults=row["defaults"],
                matched=row["matched"] and parse(Matched, row["matched"]),
                user_code=row["user_code"] and parse(UserCode, row["user_code"]),
                memory=row["memory"],
            )
        )
    problems = [Problem(*row) for row in found["problems"]]
    return Inspection(checked, problems, found["notes"], [tuple(pair) for pair in found["pairs"]])


def judge_cells(cells: Cells, found: Inspection, settings: Config) -> list[str]:
    """Notes on cells that may train.  Raises PlanError for those that are the same network as another cell, or are too
    large for the device."""
    notes = refuse_equal(cells.rows, cells.checked, settings.allow_duplicates)
    for row, remarks in zip(cells.rows, found.notes, strict=True):
        notes += [f"{row.label}: {note}" for note in remarks]
    same = about_networks(cells.rows, found.pairs)
    twins = []
    if settings.allow_duplicates:
        notes += [f"{sentence}; allow_duplicates=true trains both" for sentence in same]
    else:
        how = "leave one out, or write allow_duplicates=true"
        twins = [Problem("", f"{sentence}; {how}") for sentence in same]
    seeds = settings.seeds
    at_once = len(seeds) if isinstance(seeds, list) else seeds if isinstance(seeds, int) else AT_ONCE
    large, tight = memory_problems(cells.rows, cells.checked, len(cells.rows) * at_once)
    if problems := large + twins:
        raise PlanError(list(dict.fromkeys(problems)))
    return list(dict.fromkeys([*notes, *tight]))


_counts: WeakKeyDictionary[Task, dict[Any, Any]] = WeakKeyDictionary()  # positions of a task's batches


def seen_in_training(lengths: dict[str, float]) -> list[str]:
    """A note on the lengths whose test examples occur in training; [] if there are none."""
    shares = ", ".join(f"{length} ({rough(share)})" for length, share in lengths.items())
    note = f"eval.lengths seen in training: {shares} of the test examples: there are too few to hold any out"
    return [note] if shares else []


def training_positions(cell: Checked) -> int:
    """The positions in a cell's training batches, which a curriculum may change from step to step, for seed 0."""
    train = cell.config.train
    if not changes_length(cell):
        return train.steps * train.batch_size * int(cell.task.positions)
    lengths: list[int] = _counts[cell.task].setdefault(train.batch_size, [])
    if len(lengths) < train.steps:
        lengths += isolate_user_code(cell.config, partial(batch_lengths, cell.config, len(lengths), train.steps))
    return sum(lengths[: train.steps])


def changes_length(cell: Checked) -> bool:
    """Whether a cell's training batches have other positions than its task says."""
    train, known = cell.config.train, _counts.setdefault(cell.task, {})
    if (of := (train.batch_size, train.steps)) not in known:
        known[of] = cell.task.changes_length(*of)
    return bool(known[of])


def batch_lengths(config: Config, start: int, stop: int) -> list[int]:
    """The number of positions of the batch of each step in range(start, stop)."""
    task = build_task(config)
    return [batch_positions(task.batch(0, step, config.train.batch_size)) for step in range(start, stop)]


Amount = Callable[[Checked], float]  # the matched quantity of a cell
QUANTITIES: dict[str, tuple[str, Amount]] = {
    "params": ("parameters without embedding and head", lambda cell: cell.budget.core),
    "flops": ("forward FLOPs per token", lambda cell: cell.budget.flops_per_token),
    "flops_total": ("forward FLOPs of training", lambda cell: training_positions(cell) * cell.budget.flops_per_token),
}


def contradictions(how: str, given: Iterable[str], swept: list[str]) -> list[Problem]:
    """Problems of `given` keys that the match chooses; steps may be set, for the reference, but not swept."""
    given = {*given} if how != BY_STEPS else {*swept}
    keys = [key for key in CHOSEN.get(how, ()) if key in given]
    found = [
        Problem(key, f"match={how} chooses it per configuration; leave it out or write match=none") for key in keys
    ]
    if how in ("params", "flops") and not found and not {*swept} & {*BUILT, "model", "preset"}:
        found.append(Problem("match", "makes variants of a component equal; sweep one, or write match=none"))
    return found


def match_cells(how: str, cells: list[Checked], names: list[str], at: list[int], validator: Validator) -> list[Checked]:
    """The cells matched to their references `cells[at[i]]`.  Raises PlanError."""
    if how == "none":
        return cells
    nodes = zip(names, (variants_of(cell.config.ffn) for cell in cells), strict=True)
    lacking = [name for name, ffns in nodes if not any("hidden" in node for node in ffns)]
    if lacking and how != BY_STEPS:
        message = f"the FFN of {first_of(lacking, 3)} has no width (ffn.hidden) to choose"
        raise PlanError([Problem("match", f"{message}; leave it out or write match=none")])
    brought, problems = list[Checked](), list[Problem]()
    for i, cell in enumerate(cells):
        try:
            brought.append(bring(how, cell, cells[at[i]], validator))
        except BadComponent as error:
            problems.append(Problem(error.key or "match", f"{names[i]}: {first_line(error)}"))
    if problems:
        raise PlanError(problems)
    return brought


def bring(how: str, cell: Checked, reference: Checked, validator: Validator) -> Checked:
    """A cell with the width or the steps that come nearest to its reference.  Raises BadComponent beyond FAR."""
    if cell.task.fingerprint != reference.task.fingerprint:
        raise BadComponent("match", "its data are not its reference's, so nothing can be held equal; write match=none")
    (quantity, amount), by_steps = QUANTITIES[how], how == BY_STEPS
    target = amount(reference)
    found = lengthen(cell, amount, target) if by_steps else widen(cell, amount, target, validator)
    value = amount(found)
    left = Matched(quantity=quantity, value=value, reference=target, difference=value / target - 1)
    config, widths = found.config, zip(found.budget.widths, cell.budget.widths, strict=True)
    extreme = any(not active / EXTREME <= new / own <= EXTREME for (new, _), (own, active) in widths)
    if abs(left.difference) > FAR or extreme:
        width = f"ffn.hidden={chosen_at(config.ffn, ['hidden'])}"
        where = f"train.steps={config.train.steps}" if by_steps else width
        why = f", more than {EXTREME} times off its own width" if extreme and abs(left.difference) <= FAR else ""
        message = f"{percent(left.difference)} {quantity} against its reference at best, with {where}{why}"
        raise BadComponent("match", f"{message}; leave it out or write match=none")
    return found._replace(defaults=cell.defaults, matched=left, user_code=cell.user_code)


def widen(cell: Checked, amount: Amount, target: float, validator: Validator) -> Checked:
    """A cell with the FFN width, or the widths of a pattern's variants, that come nearest to a target."""
    if amount(cell) == target:
        return cell
    return (widen_each if is_patterned(cell.config.ffn) else with_nearest_width)(cell, amount, target, validator)


def with_nearest_width(cell: Checked, amount: Amount, target: float, validator: Validator) -> Checked:
    """A cell with the one width of all its FFNs that comes nearest to a target."""

    def at(width: int) -> Checked:
        if width == cell.budget.hidden:  # its budget is known
            return cell
        return validator.checked(cell.config.with_value("ffn.hidden", width), cell.task)

    return at(nearest_width(lambda width: amount(at(width)), target, cell.budget.hidden or STEP))


def widen_each(cell: Checked, amount: Amount, target: float, validator: Validator) -> Checked:
    """`widen` for a pattern over the layers: see the module."""
    node = {name: settings for name, settings in cell.config.ffn.items() if name != LAYERS}
    whole: dict[str, int] = {}
    for name in (name for name, settings in node.items() if "hidden" in settings):
        in_all = validator.checked(cell.config.with_value("ffn", node[name]), cell.task)
        found = widen(in_all, amount, target, validator).config.ffn["hidden"]
        # An FFN may have none of these widths.
        whole[name] = found or with_nearest_width(in_all, amount, target, validator).config.ffn["hidden"]
    first = next(iter(whole))

    def at(width: int) -> Checked:
        scaled = {name: max(1, round(each * width / whole[first])) for name, each in whole.items()}
        own = {name: node[name] | {"hidden": hidden} for name, hidden in scaled.items()}
        return validator.checked(cell.config.with_value("ffn", cell.config.ffn | own), cell.task)

    if len(whole) == len(node):
        return at(whole[first])
    return at(nearest_width(lambda width: amount(at(width)), target, whole[first]))


def nearest_width(amount: Callable[[int], float], target: float, guess: int) -> int:
    """argmin |amount(w) − target| over multiples of 8 where that comes within 1 %, else over all w; ties: the smaller.
    `amount` must not decrease with the width; if it is affine, as for every built-in FFN, few widths are counted."""
    other = 2 * guess + STEP
    slope = (amount(other) - amount(guess)) / (other - guess)
    start = guess + (target - amount(guess)) / slope if slope > 0 else guess
    for step in (STEP, 1):
        best = nearest_multiple(amount, target, step, max(step, int(start) // step * step))
        if abs(amount(best) / target - 1) <= CLOSE:
            break
    return best


def nearest_multiple(amount: Callable[[int], float], target: float, step: int, low: int) -> int:
    """The multiple of `step` nearest to a target, by doubling strides from `low`, then bisection; ties: the smaller."""
    high, stride = low, step
    while amount(high) < target and high < WIDEST:
        low, high, stride = high, high + stride, 2 * stride
    while amount(low) > target and low > step:
        low, high, stride = max(step, low - stride), low, 2 * stride
    while high - low > step:
        middle = (low + high) // 2 // step * step
        low, high = (middle, high) if amount(middle) <= target else (low, middle)
    # Rounded, because what division leaves of two equal distances must be a tie.
    return min(low, high, key=lambda size: (round(abs(amount(size) / target - 1), 12), size))


def lengthen(cell: Checked, amount: Amount, target: float) -> Checked:
    """A cell with the number of steps that comes nearest to a target, and a proportional warm-up."""

    def after(steps: int) -> float:
        return amount(cell._replace(config=cell.config.with_value("train.steps", steps)))

    own = cell.config.train.steps
    steps = nearest_multiple(after, target, 1, max(1, math.floor(target / after(own) * own)))
    warmup = math.floor(cell.config.optim.warmup * steps / own + 0.5)
    return cell._replace(config=cell.config.with_value("train.steps", steps).with_value("optim.warmup", warmup))


def describe_cells(
    checked: list[Checked], drafts: list[Draft], factors: dict[str, list[Any]], reference: dict[str, Any]
) -> Cells:
    """Checked cells with their rows of the manifest.  Raises PlanError if `solved_at` of a task differs."""
    rows = []
    tasks: dict[str, TaskFacts] = {}
    for cell, draft in zip(checked, drafts, strict=True):
        task = describe_task(cell)
        first = tasks.setdefault(cell.task.fingerprint, task)
        if first.solved_at != task.solved_at:
            differ = f"is {first.solved_at} and {task.solved_at} in configurations of one task; write one for all"
            raise PlanError([Problem("data.solved_at", differ)])
        compared = checked[draft.reference].budget
        steps = cell.config.train.steps
        positions = training_positions(cell)
        seen = seen_lengths(cell.config, cell.task)
        notes = cell.task.notes + cell.budget.notes
        for half, what in ("init", "initialisation"), ("data", "the order of the data"):
            if (seed := getattr(cell.config.seed, half)) is not None:
                notes.append(f"seed.{half}={seed} for every run: intervals do not cover {what}")
        notes += seen_in_training(seen)
        if (left := cell.matched) and abs(left.difference) > CLOSE:
            missed = f"{percent(left.difference)} {left.quantity} against its reference"
            notes.append(f"{draft.label}: {missed}, and nothing comes nearer")
        rows.append(
            Cell(
                id=cell_id(draft.name, cell.config, cell.task.fingerprint),
                name=draft.name,
                label=draft.label,
                levels=draft.levels,
                reference=drafts[draft.reference].levels == draft.levels,
                **{key: getattr(cell, key) for key in ("matched", "defaults", "config", "user_code")},
                **{key: getattr(cell.budget, key) for key in ("params", "flops_per_token")},
                params_vs_reference=cell.budget.params / compared.params - 1,
                shared_draws=shared_draws(cell.budget.shapes, compared.shapes),
                tokens_per_step=positions / steps if positions % steps else positions // steps,
                batches=batches(cell.config, cell.task.fingerprint),
                task=cell.task.fingerprint,
                seen_lengths=seen,
                notes=notes,
            )
        )
    return Cells(factors, reference, drafts, checked, rows, tasks)


def recomposed(
    settings: Config, drafts: list[Draft], factors: dict[str, list[Any]], reference: dict[str, Any]
) -> Cells:
    """Cells with the study's own `settings`, checked and matched, without trying them out again.  Raises PlanError."""
    configs = [draft.config for draft in drafts]
    labels = [draft.label for draft in drafts]
    references = [draft.reference for draft in drafts]
    found = inspect_cells(configs, labels, references, settings.match, MATCH)
    if found.problems:
        raise PlanError(found.problems)
    cells = describe_cells(found.checked, drafts, factors, reference)
    refuse_equal(cells.rows, cells.checked, settings.allow_duplicates)
    return cells
