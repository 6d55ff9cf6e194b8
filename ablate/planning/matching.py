"""Makes cells equal to their references in parameters or FLOPs.

Parameters and FLOPs per token are matched by the FFN's width, training FLOPs by the steps.  Widths are multiples of 8,
or any integer if no multiple of 8 comes within 1 %; a cell that is equal already does not change.
"""

import bisect
import functools
import math
from collections.abc import Callable

from ablate.config.compose import Draft
from ablate.config.depth import is_patterned
from ablate.config.errors import BadComponent, PlanError, Problem, first_line
from ablate.config.schema import BY_STEPS
from ablate.data.task import Task, batch_positions
from ablate.formatting import first_of, percent
from ablate.planning.checks.small_models import Checked
from ablate.planning.checks.validate import counted
from ablate.runs.records import Matched

STEP = 8  # widths that hardware likes
CLOSE = 0.01  # relative difference that multiples of STEP must reach, and that needs no note
FAR = 0.2  # relative difference beyond which a match is refused
WIDEST = 2**24

Amount = Callable[[Checked], float]  # the matched quantity of a cell


def training_positions(cell: Checked) -> int:
    """The positions in a cell's training batches, which a curriculum may change from step to step, for seed 0."""
    train = cell.config.train
    return positions_of(cell.task, train.batch_size, train.steps)


@functools.lru_cache
def positions_of(task: Task, size: int, steps: int) -> int:
    """The positions in so many batches of a task."""
    if not task.changes_length(size, steps):
        return steps * size * int(task.positions)
    return sum(batch_positions(task.batch(0, step, size)) for step in range(steps))


QUANTITIES: dict[str, tuple[str, Amount]] = {
    "params": ("parameters without embedding and head", lambda cell: cell.budget.core),
    "flops": ("forward FLOPs per token", lambda cell: cell.budget.flops_per_token),
    "flops_total": ("forward FLOPs of training", lambda cell: training_positions(cell) * cell.budget.flops_per_token),
}


def match_cells(match: str, cells: list[Checked], drafts: list[Draft]) -> list[Checked]:
    """The checked cells of these drafts, matched to their references.  Raises PlanError."""
    if match == "none":
        return cells
    lacking = []
    for draft, cell in zip(drafts, cells, strict=True):
        if is_patterned(cell.config.ffn) or "hidden" not in cell.config.ffn:
            lacking.append(draft.label)
    if lacking and match != BY_STEPS:
        message = f"the FFN of {first_of(lacking, 3)} has no single width (ffn.hidden) to choose"
        raise PlanError([Problem("match", f"{message}; leave it out or write match=none")])
    matched = []
    problems = []
    for draft, cell in zip(drafts, cells, strict=True):
        try:
            matched.append(match_cell(match, cell, cells[draft.reference]))
        except BadComponent as error:
            problems.append(Problem(error.key or "match", f"{draft.label}: {first_line(error)}"))
    if problems:
        raise PlanError(problems)
    return matched


def match_cell(match: str, cell: Checked, reference: Checked) -> Checked:
    """A cell with the width or the steps that come nearest to its reference.  Raises BadComponent beyond FAR."""
    if cell.task.fingerprint != reference.task.fingerprint:
        raise BadComponent("match", "its data are not its reference's, so nothing can be held equal; write match=none")
    quantity, amount = QUANTITIES[match]
    target = amount(reference)
    if match == BY_STEPS:
        nearest = with_nearest_steps(cell, amount, target)
        choice = f"train.steps={nearest.config.train.steps}"
    else:
        nearest = cell if amount(cell) == target else with_nearest_width(cell, amount, target)
        choice = f"ffn.hidden={nearest.config.ffn['hidden']}"
    value = amount(nearest)
    difference = value / target - 1
    if abs(difference) > FAR:
        message = f"{percent(difference)} {quantity} against its reference at best, with {choice}"
        raise BadComponent("match", f"{message}; leave it out or write match=none")
    matched = Matched(quantity=quantity, value=value, reference=target, difference=difference)
    return nearest._replace(defaults=cell.defaults, matched=matched, user_code=cell.user_code)


def with_nearest_width(cell: Checked, amount: Amount, target: float) -> Checked:
    """A cell with the width of its FFNs that comes nearest to a target."""

    def with_width(width: int) -> Checked:
        return counted(cell.config.with_value("ffn.hidden", width), cell.task)

    width = nearest_width(lambda width: amount(with_width(width)), target, cell.budget.hidden or STEP)
    return with_width(width)


def nearest_width(amount: Callable[[int], float], target: float, guess: int) -> int:
    """argmin |amount(w) − target| over multiples of 8 where that comes within 1 %, else over all w; ties: the smaller.
    `amount` must not decrease with the width; if it is affine, as for every built-in FFN, few widths are counted."""
    amount = functools.cache(amount)
    other = 2 * guess + STEP
    slope = (amount(other) - amount(guess)) / (other - guess)
    start = guess + (target - amount(guess)) / slope if slope > 0 else guess
    for step in (STEP, 1):
        best = nearest_multiple(amount, target, step, start)
        if abs(amount(best) / target - 1) <= CLOSE:
            break
    return best


def nearest_multiple(amount: Callable[[int], float], target: float, step: int, start: float) -> int:
    """The multiple of `step` nearest to a target: next to `start` if that is right, else by bisection; ties: the
    smaller."""
    below = max(step, int(start) // step * step)
    if amount(below) > target or amount(below + step) < target:
        high = below
        while amount(high) < target and high < WIDEST:
            high *= 2
        multiples = range(step, high + 1, step)
        below = multiples[max(0, bisect.bisect_left(multiples, target, key=amount) - 1)]
    # Rounded, because what division leaves of two equal distances must be a tie.
    return min(below, below + step, key=lambda size: (round(abs(amount(size) / target - 1), 12), size))


def with_nearest_steps(cell: Checked, amount: Amount, target: float) -> Checked:
    """A cell with the number of steps that comes nearest to a target, and a proportional warm-up."""

    def after(steps: int) -> float:
        return amount(cell._replace(config=cell.config.with_value("train.steps", steps)))

    before = cell.config.train.steps
    steps = nearest_multiple(after, target, 1, target / after(before) * before)
    warmup = math.floor(cell.config.optim.warmup * steps / before + 0.5)
    return cell._replace(config=cell.config.with_value("train.steps", steps).with_value("optim.warmup", warmup))
