"""Statistics beyond the effects over seeds: several tasks, speed, ladders."""

import pandas

from ablate import evidence
from ablate.runs.study import Study
from analysis.stats.multi_task import crossed, interactions, ranks


def tables(study: Study) -> dict[str, pandas.DataFrame]:
    """The tables that the study has data for, by name."""
    result: dict[str, pandas.DataFrame | None] = {}
    by_task = crossed(study)
    if by_task:
        result = {"tasks": interactions(by_task), "ranks": ranks(by_task)}
    result["speed"] = evidence.speed(study)
    if "ladder" not in study.figures:  # else it was judged by an earlier method
        result["ladder"] = evidence.ladder(study)
    return {name: table for name, table in result.items() if table is not None and len(table)}
