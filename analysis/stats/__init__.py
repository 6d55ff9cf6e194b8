"""Statistics beyond the effects over seeds: documents as clusters, several tasks, tasks that are solved, speed."""

import numpy as np
import pandas

from ablate import evidence
from ablate.results.study import Study
from analysis.stats.documents import documents
from analysis.stats.multi_task import aggregate, interactions, ranks
from analysis.stats.solve_times import solved

__all__ = ["aggregate", "documents", "interactions", "ranks", "solved", "tables"]


def tables(study: Study, effects: pandas.DataFrame, rng: np.random.Generator) -> dict[str, pandas.DataFrame]:
    """The tables that the study has data for; `rng` is for the bootstrap of the aggregate over tasks."""
    found = {
        "documents": documents(study, effects),
        "tasks": interactions(study),
        "ranks": ranks(study),
        "aggregate": aggregate(study, rng),
        "solved": solved(study),
        "speed": evidence.speed(study),
    }
    return {name: table for name, table in found.items() if table is not None and len(table)}
