"""Statistics beyond the effects over seeds: documents as clusters, several tasks, tasks that are solved or not.

tables(results, study, effects, rng)   by name, each a table of numbers, of those that the study has anything for
sheets(tables)                         the same as people read them
"""

from analysis.stats.documents import documents
from analysis.stats.shown import sheets
from analysis.stats.solved import solved
from analysis.stats.tables import tables
from analysis.stats.tasks import aggregate, interactions, ranks

__all__ = ["aggregate", "documents", "interactions", "ranks", "sheets", "solved", "tables"]
