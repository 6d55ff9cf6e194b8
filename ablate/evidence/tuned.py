"""Effects at each tuned value that all cells were tried at, and the condition that tuning adds to verdicts."""

import math
import operator
from typing import Any

from ablate import formatting
from ablate.evidence.contrasts import contrasts
from ablate.results.naming import key_name
from ablate.results.records import Cell, Manifest, Tuning


def given(manifest: Manifest) -> str:
    """The condition of every verdict if tuning was not repeated for each seed; else "".

    Intervals cover the scored seeds only.  They ignore that other tuning seeds could have chosen other values, and more
    scored seeds only narrow them around the difference between these choices.
    """
    tuning = manifest.tuning
    each = "learning rate" if tuning and tuning.key == "optim.lr" else tuning.key if tuning else ""
    return f"each at its own {each}" if tuning and not tuning.per_seed else ""


def tuning_seeds(tuning: Tuning) -> int:
    """The total number of tuning seeds, over all repetitions if tuning is repeated for each scored seed."""
    shares = max((len(cell.values) for cell in tuning.cells.values()), default=0)
    return int(tuning.seeds * max(1, shares))


def tuned(manifest: Manifest, cell: Cell) -> dict[str, Any]:
    """What tuning chose for a cell; empty if the study was not tuned."""
    tuning = manifest.tuning
    if not tuning:
        return {}
    found = tuning.cells[cell.id]
    return {"tuned": tuning.key, "tuned_value": found.value, "tuned_at_edge": found.edge}


def common(manifest: Manifest) -> dict[str, list[float]]:
    """For each main effect and interaction, the difference at each tuned value, with all cells at the same value.

    It is Σ w · mean over tuning seeds of the validation metric; NaN where a run of one of the cells diverged.  Effects
    over several tasks are left out.
    """
    tuning, found = manifest.tuning, dict[str, list[float]]()
    if not tuning:
        return found
    task = {cell.id: cell.task for cell in manifest.cells}
    for contrast in contrasts(manifest):
        if contrast.kind != "cell" and len({task[cell] for cell in contrast.weights}) == 1:
            scores = zip(*(tuning.cells[cell].scores for cell in contrast.weights), strict=True)
            known = ([math.nan if score is None else score for score in column] for column in scores)
            found[contrast.label] = [math.fsum(map(operator.mul, contrast.weights.values(), each)) for each in known]
    return found


def common_rows(manifest: Manifest) -> tuple[str, list[list[str]]]:
    """A heading, and a row of texts per effect: its name, then the difference at each value, in rising order."""
    tuning = manifest.tuning
    if not tuning:
        return "", []
    values: list[Any] = tuning.values
    order = list(range(len(values)))
    if all(isinstance(value, int | float) for value in values):
        order.sort(key=lambda i: values[i])
    differences = common(manifest)
    every = [abs(value) for row in differences.values() for value in row]
    places = formatting.decimals([max((value for value in every if math.isfinite(value)), default=math.nan) / 10])
    rows = []
    for label, row in differences.items():
        shown = [formatting.number(row[i], places, signed=True) if math.isfinite(row[i]) else "diverged" for i in order]
        rows.append([label, *(f"{formatting.setting(values[i])} {text}" for i, text in zip(order, shown, strict=True))])
    seeds = formatting.counted(tuning_seeds(tuning), "tuning seed")
    return f"at each common {key_name(manifest, tuning.key)}, validation split, {seeds}, exploratory", rows
