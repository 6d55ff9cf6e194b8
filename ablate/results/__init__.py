"""What a run is (its key) and what lies on disk: runs, manifests, studies, tables, leases, atomic writes; no torch."""

from ablate.results.manifest import newest_study, read_manifest
from ablate.results.run import Run
from ablate.results.study import Study, load_study

__all__ = ["Run", "Study", "load_study", "newest_study", "read_manifest"]
