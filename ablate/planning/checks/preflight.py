"""Checks of every cell before training: on a tiny copy, against the other cells, and against the memory."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ablate.config.depth import fewest, first_layers, mapped, variants_of
from ablate.config.errors import PlanError, Problem, one_line
from ablate.config.schema import Config
from ablate.model.build import bare_model, base_of
from ablate.model.init import role_of
from ablate.planning.checks import duplicate_cells, small_models
from ablate.planning.checks.duplicate_cells import Signature
from ablate.planning.checks.examine import examine, many_times
from ablate.planning.checks.memory import memory_problems
from ablate.planning.checks.small_models import LAYERS, StandIn, facts_of
from ablate.planning.checks.user_code import Failed, Record, cached, isolate_user_code
from ablate.planning.checks.validate import Checked
from ablate.results.records import Cell
from ablate.results.run_key import code_of

TIMES = 4  # times the base width: a value that goes by its root differs by a factor of two
UNLIKE = 0.2  # relative difference, in addition to the error of random values
AT_ONCE = 5  # seeds of `auto` before the first look


def try_out(rows: list[Cell], checked: list[Checked], settings: Config) -> list[str]:
    """Notes on cells that may train.  Raises PlanError for those that must not.  These look ahead, mix rows, read
    padding, have unused parts, are the same network as another cell, or are too large for the device."""
    allowed, seeds = settings.allow_duplicates, settings.seeds
    notes = duplicate_cells.refuse_equal(rows, checked, allowed)
    kept, positions = small_models.distinguishing(checked)
    with one_thread():
        records = []
        for cell in checked:  # small, then of the cell's own size; each in float64, then in float32
            sizes = small_models.small(cell, kept, positions), small_models.full(cell, positions)
            records.append(_tried(cell, [spec for one in sizes for spec in (one, one._replace(double=False))]))
        problems = [Problem(*row) for record in records for row in record["problems"]]
        problems += [problem for cell in checked for problem in first_value_problems(cell)]
        for row, record in zip(rows, records, strict=True):
            notes += [f"{row.label}: {note}" for note in record["notes"]]
        twins, meeting = _duplicates(rows, checked, records, kept, positions) if not problems else ([], [])
        if settings.tune.key in (None, "optim.lr"):  # tuning another key may still change their rates
            same = duplicate_cells.equal_in(checked, duplicate_cells.OF_RATES, duplicate_cells.rates)
            pairs = sorted({duplicate_cells.names(rows, pair) for pair in same})
            twins += [f"{pair} have the same learning rate at every step" for pair in pairs]
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


def _duplicates(
    rows: list[Cell], checked: list[Checked], records: list[Record], kept: set[str], positions: int
) -> tuple[list[str], list[str]]:
    """Pairs of cells that are the same network or data, in words, and notes on pairs that are meant to be the same."""
    least = max(fewest(cell.config, small_models.LAYERS) for cell in checked)

    def confirmed(i: int) -> Signature:
        cell = checked[i]
        found: Signature = _tried(cell, [small_models.full(cell, positions, least)])["signature"]
        copied, steps = small_models.small(cell, kept, positions), any(key.startswith("step.") for key in kept)
        shown = isolate_user_code(cell.config, partial(many_times, copied, steps))
        return [*found, *shown] if found and shown else None

    same, meeting = set(), set()
    why = "trained for two steps from equal seeds they agree but for rounding"
    for pair in duplicate_cells.same_networks(checked, [record["signature"] for record in records], confirmed):
        both = duplicate_cells.names(rows, pair)
        if width := duplicate_cells.base_width(checked, pair):
            one = f"are one network at model.dim={width}, the base width"
            meeting.add(f"{both} {one}: there both train to equal numbers")
        else:
            nodes = [(node, checked[i].task.context) for i in pair for node in variants_of(checked[i].config.attention)]
            wide = {(node["window"], context) for node, context in nodes if (node.get("window") or 0) >= context}
            more = [f"; attention.window={window} covers the context of {context}" for window, context in sorted(wide)]
            beyond = duplicate_cells.acting_beyond(checked, pair)
            same.add(f"{both} make the same network: {why}{''.join(more)}{beyond}")
    for pair in duplicate_cells.equal_in(checked, ["data"], duplicate_cells.contents):
        same.add(f"{duplicate_cells.names(rows, pair)} give the same batches and held-out examples")
    return sorted(same), sorted(meeting)


def _tried(cell: Checked, specs: list[small_models.Spec]) -> Record:
    """What the first copy that runs shows, from the cache if it is there; a note if none runs."""
    config = cell.config
    data = [config.data["_target_"], *sorted(config.data)]
    depends = [[[spec.config.as_json(), *spec[1:]] for spec in specs], data, code_of(config).content]
    try:
        return cached("copies", depends, lambda: isolate_user_code(config, partial(_first_that_runs, specs), anew=True))
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


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: more are slower on small products, and would change the order of sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def first_value_problems(cell: Checked) -> list[Problem]:
    """Problems of constants whose initial values depend on the width, for which the parametrization has no rule."""
    base = base_of(cell.config)
    if base is None or base.model.dim == cell.config.model.dim:
        return []
    base, facts = first_layers(base, fewest(base, LAYERS)), facts_of(cell.task)
    depends = [base.as_json(), facts, code_of(cell.config).content]
    try:
        found = cached("first values", depends, lambda: isolate_user_code(base, partial(_growing, base, facts)))
    except Failed:  # other checks report it
        return []
    message = "has no rule for {}, whose values at first go by the width; write parametrization=standard"
    return [Problem("parametrization", message.format(name)) for name in found["names"][:1]]


def _growing(base: Config, facts: dict[str, Any]) -> dict[str, Any]:
    """The constants whose initial mean square changes, by more than chance, if the model is `TIMES` as wide."""

    def wide(ffn: dict[str, Any]) -> dict[str, Any]:
        return ffn | {"hidden": TIMES * ffn["hidden"]} if ffn.get("hidden") else ffn

    widened = base.with_value("ffn", mapped(base.ffn, wide))
    for key in ("dim", "head_dim"):
        widened = widened.with_value(f"model.{key}", TIMES * getattr(base.model, key))
    models = [dict(bare_model(config, StandIn(facts)).named_parameters()) for config in (base, widened)]
    found = []
    for name in (name for name, one in models[0].items() if role_of(one) == "constant"):
        both = [model[name].detach() for model in models]
        low, high = sorted(float(x.square().mean().sqrt()) for x in both)
        drawn = float(both[0].std(correction=0)) > 0
        chance = 3 / (2 * min(x.numel() for x in both)) ** 0.5 if drawn else 0.0
        found += [name] * (high > (1 + UNLIKE + chance) * low)
    return {"names": found}
