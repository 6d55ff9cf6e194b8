"""What the runs of tuning say beside the effects: the differences at each value, the same for all configurations."""

import math

from ablate.evidence.contrasts import contrasts
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
