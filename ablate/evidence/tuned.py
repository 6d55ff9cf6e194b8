"""What the runs of tuning say beside the effects: the differences at each value, the same for all configurations."""

import math
from typing import Any

import pandas

from ablate import formatting
from ablate.evidence.contrasts import contrasts
from ablate.evidence.estimates import in_each_seed
from ablate.formatting import counted
from ablate.runs.naming import key_name
from ablate.runs.records import Manifest


def common_rows(manifest: Manifest) -> tuple[str, list[list[str]]]:
    """A heading, and for each main effect and interaction its name and its difference at each value, in rising order.

    The difference is Σ w · mean over tuning seeds of the validation metric, with all cells at the same value, unless a
    run of one of them diverged.  Effects over several tasks are left out.
    """
    tuning = manifest.tuning
    if not tuning:
        return "", []
    values: list[Any] = tuning.values
    order = list(range(len(values)))
    if all(isinstance(value, int | float) for value in values):
        order.sort(key=lambda i: values[i])
    scores = pandas.DataFrame({name: cell.scores for name, cell in tuning.cells.items()}, dtype=float)
    tasks = {cell.id: cell.task for cell in manifest.cells}
    differences = pandas.DataFrame()
    for contrast in contrasts(manifest):
        if contrast.kind != "cell" and len({tasks[cell] for cell in contrast.weights}) == 1:
            differences[contrast.label] = in_each_seed(scores, contrast.weights)
    places = formatting.decimals([differences.abs().max().max() / 10])
    rows = []
    for label in differences:
        texts = [label]
        for i in order:
            difference = differences.loc[i, label]
            text = "diverged" if math.isnan(difference) else formatting.number(difference, places, signed=True)
            texts.append(f"{formatting.setting(values[i])} {text}")
        rows.append(texts)
    seeds = counted(tuning.seeds, "tuning seed")
    return f"at each common {key_name(manifest, tuning.key)}, validation split, {seeds}, estimates only", rows
