"""Exchange runs: each reference cell at 0.8, 1 and 1.25 times its steps, so that effects can be told in training steps.

They are a study of their own, trained after the study with the seeds that it has; with seeds=auto after the runs of
each look and before its results are read, so that whatever is decided can be decided in steps, too.  Nobody has seen a
comparison when they start, and they add no seed.  The runs at 1 times the steps are the study's own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator
from typing import Any

from ablate import format
from ablate.config.errors import Problem
from ablate.planning.cells import Draft, describe_cells
from ablate.planning.rounds.tuning import without_lengths
from ablate.results.records import Manifest

RATIOS = (0.8, 1.0, 1.25)  # at even distances in the logarithm
KEY = "train.steps"


def exchange_problems(draft: Draft) -> list[Problem]:
    """What is wrong with `exchange`."""
    if not draft.settings["exchange"]:
        return []
    swept = [key for name in draft.factors for key in name.split("+")]  # of a zipped factor all
    least = min(cell.config["train"]["steps"] for cell in draft.checked)
    found = []
    if not swept:
        found.append("nothing varies, so there is no difference to tell in steps; sweep a key, or leave it out")
    if KEY in swept:
        found.append(f"sets {KEY} by itself; leave one of them out")
    if draft.settings["match"] == "flops_total":
        found.append("match=flops_total gives cells other steps than their reference; write another match")
    if len({scaled(least, ratio) for ratio in RATIOS}) < len(RATIOS):
        found.append(f"{KEY}={least} is too few to be told from 0.8 or 1.25 times as many; write at least 3")
    return [Problem("exchange", message) for message in found]


def scaled(steps: int, ratio: float) -> int:
    """A multiple of a number of steps, rounded."""
    return math.floor(steps * ratio + 0.5)


def with_exchange(rounds: Generator[Draft, Manifest, None]) -> Generator[Draft, Manifest, None]:
    """The rounds of a study, each followed by exchange runs with its seeds; the last one comes again as the end."""
    draft = next(rounds)
    while True:
        whole = study_of(draft)
        draft = dataclasses.replace(draft, extra=draft.extra | {"exchange": f"{whole}-exchange"})
        told = [*draft.notes, announced(draft)]
        manifest = yield dataclasses.replace(draft, more=True, notes=told)
        yield exchange_study(draft, manifest)
        try:
            following = rounds.send(manifest)
        except StopIteration:
            yield dataclasses.replace(draft, more=False)
            return
        draft = following


def study_of(draft: Draft) -> str:
    """What the study will be called: a confirmation has a name of its own."""
    name, confirm = draft.settings["study"], draft.settings["confirm"]
    return f"{name}-confirm-{confirm}" if confirm else str(name)


def announced(draft: Draft) -> str:
    """What a study with exchange runs to come says of them."""
    steps = [str(scaled(own, ratio)) for own in sorted(set(reference_steps(draft))) for ratio in RATIOS if ratio != 1]
    cells = format.counted(len(reference_steps(draft)), "reference cell")
    return f"then exchange runs: {cells} at {' and '.join(steps)} steps, with the same seeds"


def reference_steps(draft: Draft) -> list[int]:
    """The steps of the reference cell of each stratum."""
    rows = zip(draft.rows, draft.checked, strict=True)
    return [cell.config["train"]["steps"] for row, cell in rows if row.reference]


def exchange_study(draft: Draft, manifest: Manifest) -> Draft:
    """The reference cells of all strata at each multiple of their steps, with the seeds that the study has got."""
    own = reference_steps(draft)
    rows = [row for row in draft.rows if row.reference]
    strata = {key: values for key, values in draft.factors.items() if key not in draft.reference}
    outside = [{key: row.levels[key] for key in strata} for row in rows]
    plain = [cell for row, cell in zip(draft.rows, draft.checked, strict=True) if row.reference]
    made = [(i, ratio, scaled(steps, ratio)) for i, steps in enumerate(own) for ratio in RATIOS]
    # Strata of other lengths have no number of steps in common.
    shown = [steps if len(set(own)) == 1 else f"x{ratio:g}" for _, ratio, steps in made]
    levels = [outside[i] | {KEY: level} for (i, _, _), level in zip(made, shown, strict=True)]
    labels = [f"{rows[i].label}, {steps} steps" for i, _, steps in made]
    checked = [plain[i]._replace(config=with_steps(plain[i].config, steps)) for i, _, steps in made]
    at = [made.index((i, 1.0, own[i])) for i, _, _ in made]
    names = [rows[i].name for i, _, _ in made]
    changed = {"study": f"{study_of(draft)}-exchange", "seeds": manifest.seeds, "confirm": None}
    return dataclasses.replace(
        draft,
        settings=draft.settings | changed | {"match": "none", "design": "grid", "zip": []},
        factors=strata | {KEY: list(dict.fromkeys(shown))},
        reference={KEY: shown[RATIOS.index(1.0)]},
        rows=describe_cells(checked, names, levels, labels, at, [None] * len(checked)),
        checked=checked,
        raw=[cell.config for cell in checked],
        at=at,
        extra={"exchange_of": manifest.study, "aliases": {}, "remarks": []},
        claims={},
        written={},
        notes=[f"exchange runs: {', '.join(dict.fromkeys(labels))}"],
        more=True,
        looks=[],
    )


def with_steps(config: dict[str, Any], steps: int) -> dict[str, Any]:
    """A configuration with another number of steps; the warm-up stays, or shrinks where it no longer ends in time."""
    before, warmup = config["train"]["steps"], config["optim"]["warmup"]
    if steps <= warmup < before:
        warmup = math.floor(warmup * steps / before + 0.5)
    changed = {"train": config["train"] | {"steps": steps}, "optim": config["optim"] | {"warmup": warmup}}
    return without_lengths(config) | changed
