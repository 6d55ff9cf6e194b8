"""Makes cells equal to their references in parameters or FLOPs.

Parameters and FLOPs per token are matched by the FFN's width, training FLOPs by the steps.  Widths are multiples of 8,
or any integer if no multiple of 8 comes within 1 %; a cell that is equal already does not change.  In a pattern over
the layers each variant gets the width that it would have in all layers; if the FFN of some layers has no width, those
of the others are scaled in proportion.
"""

import functools
import math
from collections.abc import Callable
from weakref import WeakKeyDictionary

from ablate.config.depth import chosen_at, is_patterned, variants_of
from ablate.config.errors import BadComponent, PlanError, Problem, first_line
from ablate.config.schema import BY_STEPS, LAYERS
from ablate.data.task import Task, batch_positions
from ablate.formatting import first_of, percent
from ablate.planning.checks.small_models import Checked
from ablate.planning.checks.validate import counted
from ablate.runs.records import Matched

STEP = 8  # widths that hardware likes
CLOSE = 0.01  # relative difference that multiples of STEP must reach, and that needs no note
FAR = 0.2  # relative difference beyond which a match is refused
EXTREME = 4  # a width may grow to four times itself, and shrink to a quarter of what one token uses of it
WIDEST = 2**24

Amount = Callable[[Checked], float]  # the matched quantity of a cell
_changes: WeakKeyDictionary[Task, dict[tuple[int, int], bool]] = WeakKeyDictionary()  # by batch size and steps
_lengths: WeakKeyDictionary[Task, dict[int, list[int]]] = WeakKeyDictionary()  # positions of batches, by batch size


def training_positions(cell: Checked) -> int:
    """The positions in a cell's training batches, which a curriculum may change from step to step, for seed 0."""
    train = cell.config.train
    size = train.batch_size
    changes = _changes.setdefault(cell.task, {})
    if (size, train.steps) not in changes:
        changes[size, train.steps] = cell.task.changes_length(size, train.steps)
    if not changes[size, train.steps]:
        return train.steps * size * int(cell.task.positions)
    lengths = _lengths.setdefault(cell.task, {}).setdefault(size, [])
    for step in range(len(lengths), train.steps):
        lengths.append(batch_positions(cell.task.batch(0, step, size)))
    return sum(lengths[: train.steps])


QUANTITIES: dict[str, tuple[str, Amount]] = {
    "params": ("parameters without embedding and head", lambda cell: cell.budget.core),
    "flops": ("forward FLOPs per token", lambda cell: cell.budget.flops_per_token),
    "flops_total": ("forward FLOPs of training", lambda cell: training_positions(cell) * cell.budget.flops_per_token),
}


def match_cells(match: str, cells: list[Checked], labels: list[str], references: list[int]) -> list[Checked]:
    """The cells matched to their references `cells[references[i]]`.  Raises PlanError."""
    if match == "none":
        return cells
    lacking = []
    for label, cell in zip(labels, cells, strict=True):
        if not any("hidden" in node for node in variants_of(cell.config.ffn)):
            lacking.append(label)
    if lacking and match != BY_STEPS:
        message = f"the FFN of {first_of(lacking, 3)} has no width (ffn.hidden) to choose"
        raise PlanError([Problem("match", f"{message}; leave it out or write match=none")])
    matched = []
    problems = []
    for label, cell, reference in zip(labels, cells, references, strict=True):
        try:
            matched.append(match_cell(match, cell, cells[reference]))
        except BadComponent as error:
            problems.append(Problem(error.key or "match", f"{label}: {first_line(error)}"))
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
        nearest = lengthen(cell, amount, target)
        choice = f"train.steps={nearest.config.train.steps}"
    else:
        nearest = widen(cell, amount, target)
        choice = f"ffn.hidden={chosen_at(nearest.config.ffn, ['hidden'])}"
    value = amount(nearest)
    difference = value / target - 1
    is_extreme = False
    for (new, _), (before, active) in zip(nearest.budget.widths, cell.budget.widths, strict=True):
        is_extreme = is_extreme or not active / EXTREME <= new / before <= EXTREME
    if abs(difference) > FAR or is_extreme:
        why = f", more than {EXTREME} times off its own width" if abs(difference) <= FAR else ""
        message = f"{percent(difference)} {quantity} against its reference at best, with {choice}{why}"
        raise BadComponent("match", f"{message}; leave it out or write match=none")
    matched = Matched(quantity=quantity, value=value, reference=target, difference=difference)
    return nearest._replace(defaults=cell.defaults, matched=matched, user_code=cell.user_code)


def widen(cell: Checked, amount: Amount, target: float) -> Checked:
    """A cell with the FFN width, or the widths of a pattern's variants, that come nearest to a target."""
    if amount(cell) == target:
        return cell
    if is_patterned(cell.config.ffn):
        return widen_variants(cell, amount, target)
    return with_nearest_width(cell, amount, target)


def with_nearest_width(cell: Checked, amount: Amount, target: float) -> Checked:
    """A cell with the one width of all its FFNs that comes nearest to a target."""
    width = nearest_width(lambda width: amount(with_width(cell, width)), target, cell.budget.hidden or STEP)
    return with_width(cell, width)


def with_width(cell: Checked, width: int) -> Checked:
    """A cell with one width of all its FFNs."""
    return counted(cell.config.with_value("ffn.hidden", width), cell.task)


def widen_variants(cell: Checked, amount: Amount, target: float) -> Checked:
    """`widen` for a pattern over the layers: see the module."""
    variants = {name: settings for name, settings in cell.config.ffn.items() if name != LAYERS}
    widths: dict[str, int] = {}
    for name, settings in variants.items():
        if "hidden" in settings:
            in_all_layers = counted(cell.config.with_value("ffn", settings), cell.task)
            width = widen(in_all_layers, amount, target).config.ffn["hidden"]
            if width is None:  # an FFN may have none of these widths
                width = with_nearest_width(in_all_layers, amount, target).config.ffn["hidden"]
            widths[name] = width
    first = next(iter(widths.values()))

    def scaled(width: int) -> Checked:
        ffn = dict(cell.config.ffn)
        for name, own_width in widths.items():
            ffn[name] = variants[name] | {"hidden": max(1, round(own_width * width / first))}
        return counted(cell.config.with_value("ffn", ffn), cell.task)

    if len(widths) == len(variants):
        return scaled(first)
    return scaled(nearest_width(lambda width: amount(scaled(width)), target, first))


def nearest_width(amount: Callable[[int], float], target: float, guess: int) -> int:
    """argmin |amount(w) − target| over multiples of 8 where that comes within 1 %, else over all w; ties: the smaller.
    `amount` must not decrease with the width; if it is affine, as for every built-in FFN, few widths are counted."""
    amount = functools.cache(amount)
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
    high = low
    stride = step
    while amount(high) < target and high < WIDEST:
        low = high
        high += stride
        stride *= 2
    while amount(low) > target and low > step:
        high = low
        low = max(step, low - stride)
        stride *= 2
    while high - low > step:
        middle = (low + high) // 2 // step * step
        if amount(middle) <= target:
            low = middle
        else:
            high = middle
    # Rounded, because what division leaves of two equal distances must be a tie.
    return min(low, high, key=lambda size: (round(abs(amount(size) / target - 1), 12), size))


def lengthen(cell: Checked, amount: Amount, target: float) -> Checked:
    """A cell with the number of steps that comes nearest to a target, and a proportional warm-up."""

    def after(steps: int) -> float:
        return amount(cell._replace(config=cell.config.with_value("train.steps", steps)))

    before = cell.config.train.steps
    steps = nearest_multiple(after, target, 1, max(1, math.floor(target / after(before) * before)))
    warmup = math.floor(cell.config.optim.warmup * steps / before + 0.5)
    return cell._replace(config=cell.config.with_value("train.steps", steps).with_value("optim.warmup", warmup))
