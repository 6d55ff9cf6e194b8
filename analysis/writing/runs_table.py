"""The table of all runs of a study, as it is exported."""

from __future__ import annotations

import pandas

from ablate import evidence
from ablate.results.study import Study

FIRST = ("cell", "label", "seed", "status")
SHAPE = ("batches", "params", "flops_per_token")
LAST = ("overfits", "seconds", "cpu_seconds", "vectors_seconds", "path", "error")
ITS_OWN = {"steps", "device", "torch", "ended", "commit", "dirty"}  # what a report says of runs, and no table needs


def runs_table(study: Study) -> pandas.DataFrame:
    """A row per run: cell, seed, status, factors, what was chosen for a matched cell, budget, metrics, where it is.

    Cells stand in the study's order, so that a reader who takes first levels for the reference takes the study's.
    """
    runs, factors = study.runs, list(study.manifest.factors)
    chosen = {cell.id: evidence.matched(study.manifest, cell) for cell in study.manifest.cells}
    added = pandas.DataFrame([chosen[cell] for cell in runs["cell"]], index=runs.index)
    metrics = [name for name in runs if name not in {*FIRST, *factors, *SHAPE, *LAST, *ITS_OWN}]
    table = runs.join(added)
    return table[[name for name in (*FIRST, *factors, *SHAPE, *added, *metrics, *LAST) if name in table]]
