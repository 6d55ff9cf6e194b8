"""What the runs of tuning say beside the effects: the differences at each value, the same for all configurations."""

import math
from typing import Any

from ablate import formatting
from ablate.evidence.contrasts import contrasts
from ablate.formatting import counted
from ablate.runs.naming import key_name
from ablate.runs.records import Manifest


def common(manifest: Manifest) -> dict[str, list[float]]:
    """For each main effect and interaction, the difference at each tuned value, with all cells at the same value.

    It is Σ w · mean over tuning seeds of the validation metric; NaN where a run of one of the cells diverged.  Effects
    over several tasks are left out.
    """
    tuning = manifest.tuning
    if not tuning:
        return {}
    tasks = {cell.id: cell.task for cell in manifest.cells}
    differences: dict[str, list[float]] = {}
    for contrast in contrasts(manifest):
        if contrast.kind == "cell" or len({tasks[cell] for cell in contrast.weights}) > 1:
            continue
        at_values = []
        for i in range(len(tuning.values)):
            terms = []
            for cell, weight in contrast.weights.items():
                score = tuning.cells[cell].scores[i]
                terms.append(math.nan if score is None else weight * score)
            at_values.append(math.fsum(terms))
        differences[contrast.label] = at_values
    return differences


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
    finite = [abs(value) for row in differences.values() for value in row if math.isfinite(value)]
    places = formatting.decimals([max(finite, default=math.nan) / 10])
    rows = []
    for label, row in differences.items():
        texts = [label]
        for i in order:
            difference = formatting.number(row[i], places, signed=True) if math.isfinite(row[i]) else "diverged"
            texts.append(f"{formatting.setting(values[i])} {difference}")
        rows.append(texts)
    seeds = counted(tuning.seeds, "tuning seed")
    heading = f"at each common {key_name(manifest, tuning.key)}, validation split, {seeds}, estimates only"
    return heading, rows
