"""Checks of every cell before training: on a tiny copy, against the other cells, and against the memory."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from ablate.config.components import resolve
from ablate.config.depth import fewest, variants_of
from ablate.config.errors import PlanError, Problem, one_line
from ablate.config.schema import BUILT, VARIED, Config
from ablate.formatting import flat, show
from ablate.model.products import one_thread
from ablate.planning.checks import small_models
from ablate.planning.checks.examine import examine, many_times
from ablate.planning.checks.memory import memory_problems
from ablate.planning.checks.user_code import Failed, Record, cached, isolate_user_code
from ablate.planning.checks.validate import Checked
from ablate.planning.reporting import reported
from ablate.runs.key import code_of, numbers
from ablate.runs.records import Cell

ROUNDING = 1e-10  # relative; more than another order of sums in float64 changes, and far below float32's precision
AT_ONCE = 5  # seeds of `auto` before the first look

Pair = tuple[int, int]
Signature = list[list[float]] | None  # size and projections of each output of a copy


def try_out(rows: list[Cell], checked: list[Checked], settings: Config) -> list[str]:
    """Notes on cells that may train.  Raises PlanError for those that must not.  These look ahead, mix rows, read
    padding, have unused parts, are the same network as another cell, or are too large for the device."""
    allowed, seeds = settings.allow_duplicates, settings.seeds
    notes = refuse_equal(rows, checked, allowed)
    kept, positions = small_models.distinguishing(checked)
    with one_thread():
        records = []
        for cell in reported(checked, "trying"):  # small, then of the cell's own size; each in float64, then in float32
            sizes = small_models.small(cell, kept, positions), small_models.full(cell, positions)
            records.append(_tried(cell, [spec for one in sizes for spec in (one, one._replace(double=False))]))
        problems = [Problem(*row) for record in records for row in record["problems"]]
        for row, record in zip(rows, records, strict=True):
            notes += [f"{row.label}: {note}" for note in record["notes"]]
        pairs = same_networks(checked, records, kept, positions)
        twins, meeting = _duplicates(rows, checked, pairs) if not problems else ([], [])
    at_once = len(seeds) if isinstance(seeds, list) else seeds if isinstance(seeds, int) else AT_ONCE
    large, tight = memory_problems(rows, checked, len(rows) * at_once)
    problems, notes = problems + large, notes + meeting + tight
    if allowed:
        notes += [f"{twin}; allow_duplicates=true trains both" for twin in twins]
    else:
        problems += [Problem("", f"{twin}; leave one out, or write allow_duplicates=true") for twin in twins]
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))
    return list(dict.fromkeys(notes))


def _duplicates(rows: list[Cell], checked: list[Checked], pairs: Iterable[Pair]) -> tuple[list[str], list[str]]:
    """Pairs of cells that are the same network, in words, and notes on pairs that are meant to be the same."""
    same, meeting = set(), set()
    why = "trained for two steps from equal seeds they agree but for rounding"
    for pair in pairs:
        both, configs = names(rows, pair), [checked[i].config for i in pair]
        width, rules = configs[0].model.dim, [config.parametrization for config in configs]
        alone = _without(configs[0], ("parametrization",)) == _without(configs[1], ("parametrization",))
        # They differ at another width of the sweep.
        if alone and any(cell.config.parametrization in rules and cell.config.model.dim != width for cell in checked):
            one = f"are one network at model.dim={width}, the base width"
            meeting.add(f"{both} {one}: there both train to equal numbers")
            continue
        nodes = [(node, checked[i].task.context) for i in pair for node in variants_of(checked[i].config.attention)]
        wide = {(node["window"], context) for node, context in nodes if (node.get("window") or 0) >= context}
        more = [f"; attention.window={window} covers the context of {context}" for window, context in sorted(wide)]
        first, second = (_named_settings(config, "beyond_context") for config in configs)
        how = f"to compare it write eval.lengths=[{2 * checked[pair[0]].task.context}]"
        beyond = [f"{group}.{key}" for group, key, value in first if [group, key, value] not in second]
        more += [f"; {key} acts beyond the training context alone; {how}" for key in beyond[:1]]
        same.add(f"{both} make the same network: {why}{''.join(more)}")
    return sorted(same), sorted(meeting)


def _tried(cell: Checked, specs: list[small_models.Spec]) -> Record:
    """What the first copy that runs shows, from the cache if it is there; a note if none runs."""
    config = cell.config
    data = [config.data["_target_"], *sorted(config.data)]
    depends = [[[spec.config.as_json(), *spec[1:]] for spec in specs], data, code_of(config, cell.user_code).content]
    try:
        return cached("copies", depends, lambda: isolate_user_code(config, partial(_first_that_runs, specs)))
    except Failed as error:
        return {"problems": [], "notes": [f"it could not be tried out on a small copy ({error})"], "signature": None}


def _first_that_runs(specs: list[small_models.Spec]) -> Record:
    why = ""
    for i, spec in enumerate(specs):
        try:
            found = examine(spec)
        except Exception as error:  # user code can fail in any way
            why = why or one_line(error)
            continue
        signature = found["signature"] and [[i, spec.rows, spec.length], *found["signature"]]
        return found | {"signature": signature}
    return {"problems": [], "notes": [f"it could not be tried out on a small copy ({why})"], "signature": None}


def refuse_equal(rows: list[Cell], checked: list[Checked], allowed: bool) -> list[str]:
    """Raise PlanError for cells with equal settings, or with equal ids.  Returns notes on allowed ones that differ only
    in a component that their model has no place for."""
    seen: dict[str, int] = {}
    named: dict[str, int] = {}
    problems, notes = [], []
    for i, (row, cell) in enumerate(zip(rows, checked, strict=True)):
        used = {key: value for key, value in numbers(cell.config).items() if key not in cell.budget.unused}
        first = seen.setdefault(json.dumps([used, row.task], sort_keys=True), i)
        if first == i:
            if (other := named.setdefault(row.id, i)) != i:
                classes = f"{row.label} and {rows[other].label} are classes of one name"
                problems.append(Problem("", f"{classes}; write a variant, a YAML of its own, for each"))
            continue
        why = "".join(f", which has no place for a {group}" for group in cell.budget.unused)
        message = f"{row.label} is the same configuration as {rows[first].label}{why}"
        if allowed and numbers(cell.config) != numbers(checked[first].config):
            notes.append(f"{message}; allow_duplicates=true trains both")
        else:
            levels = {key: {str(level), str(rows[first].levels[key])} for key, level in row.levels.items()}
            open_keys = [key for key, both in levels.items() if "auto" in both and len(both) == 2]
            how = "leave one of them out"
            if open_keys:  # `auto` stands for one of the other values
                decided = f"{open_keys[0]}=auto is decided by ablate, compiling for the whole study"
                how = f"{decided}; write the values to compare, or leave it out"
            problems.append(Problem("", f"{message}; {how}"))
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))
    return notes


def same_networks(checked: list[Checked], records: list[Record], kept: set[str], positions: int) -> Iterator[Pair]:
    """Pairs of cells that differ in components or the model's keys only and whose copies agree up to rounding."""
    least = max(fewest(cell.config, small_models.SHALLOW) for cell in checked)

    def confirmed(i: int) -> Signature:  # at its own sizes, since cells may differ in those only
        cell = checked[i]
        found: Signature = _tried(cell, [small_models.full(cell, positions, least)])["signature"]
        copied, steps = small_models.small(cell, kept, positions), any(key.startswith("step.") for key in kept)
        shown = isolate_user_code(cell.config, partial(many_times, copied, steps))
        return [*found, *shown] if found and shown else None

    seen: dict[str, list[int]] = {}
    for i, cell in enumerate(checked):
        late = _named_settings(cell.config, "late")
        if any(cell.task.span(length) > cell.task.context for length in cell.config.eval.lengths):
            late += _named_settings(cell.config, "beyond_context")
        rest = [_without(cell.config, (*BUILT, "model")), cell.task.fingerprint, late]
        others = seen.setdefault(json.dumps(rest, sort_keys=True), [])
        first = next((j for j in others if alike(records[j]["signature"], records[i]["signature"])), None)
        if first is None:
            others.append(i)
            continue
        used = [_without(checked[j].config, checked[j].budget.unused) for j in (first, i)]
        # Cells that use the same settings have been reported, or are allowed.
        if used[0] != used[1] and alike(confirmed(first), confirmed(i)):
            yield first, i


def alike(first: Signature, second: Signature) -> bool:
    """Whether two copies agree up to rounding."""
    if first is None or second is None or len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(abs(x - y) <= ROUNDING * abs(one[0]) for one, other in pairs for x, y in zip(one, other, strict=True))


def _named_settings(config: Config, where: str) -> list[Any]:
    """Settings that a component's class names in `late` (no effect in the first steps) or in `beyond_context`."""
    return list(isolate_user_code(config, partial(_settings_in, config, where)))


def _settings_in(config: Config, where: str) -> list[Any]:
    parts = [(group, node) for group in VARIED for node in variants_of(getattr(config, group))]
    targets = [(group, node, resolve(group, node["_target_"], config.user)) for group, node in parts]
    return [[group, key, node.get(key)] for group, node, found in targets for key in getattr(found, where, ())]


def _without(config: Config, keys: Iterable[str]) -> dict[str, Any]:
    """The settings that a run's numbers depend on by dotted name, without some keys or groups."""
    left_out = tuple(f"{key}." for key in keys)
    return {key: value for key, value in flat(numbers(config)).items() if not f"{key}.".startswith(left_out)}


def names(rows: list[Cell], pair: Pair) -> str:
    """Two cells by the keys in which they differ."""
    levels = [rows[i].levels for i in pair]
    keys = [key for key in levels[0] if levels[0][key] != levels[1][key]]
    each = (" + ".join(f"{key}={show(own[key])}" for key in keys) for own in levels)
    return " and ".join(text or rows[i].label for i, text in zip(pair, each, strict=True))
