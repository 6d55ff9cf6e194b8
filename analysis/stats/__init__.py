"""Statistics beyond the effects over seeds: documents as clusters, several tasks, tasks that are solved or not.

tables(results, study, effects, rng)   by name, each a table of numbers, of those that the study has anything for
"""

from analysis.stats.documents import documents
from analysis.stats.multi_task import aggregate, interactions, ranks
from analysis.stats.solve_times import solved
from analysis.stats.tables import tables

__all__ = ["aggregate", "documents", "interactions", "ranks", "solved", "tables"]
