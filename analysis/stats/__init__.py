"""Statistics beyond the effects over seeds: several tasks, speed, ladders."""

import numpy as np
import pandas

from ablate import evidence
from ablate.runs.study import Study
from analysis.stats.multi_task import aggregate, crossed, interactions, ranks


def tables(study: Study, rng: np.random.Generator) -> dict[str, pandas.DataFrame]:
    """The tables that the study has data for; `rng` is for the bootstrap of the aggregate over tasks."""
    by_task = crossed(study)
    found: dict[str, pandas.DataFrame | None] = {}
    if by_task:
        found = {"tasks": interactions(by_task), "ranks": ranks(by_task), "aggregate": aggregate(by_task, rng)}
    found |= {"speed": evidence.speed(study)}
    if "ladder" not in study.figures:  # else it was judged by an earlier method
        found |= {"ladder": evidence.ladder(study)}
    return {name: table for name, table in found.items() if table is not None and len(table)}
