"""Results on disk: run keys, runs, manifests, studies, tables, locks, atomic writes.  Needs no torch."""

from ablate.runs.folder import Run
from ablate.runs.manifest import newest_study, read_manifest
from ablate.runs.study import Study, load_study

__all__ = ["Run", "Study", "load_study", "newest_study", "read_manifest"]
