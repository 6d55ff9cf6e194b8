"""Results on disk: run keys, runs, manifests, studies, tables, leases, atomic writes.  Needs no torch."""

from ablate.results.manifest import newest_study, read_manifest
from ablate.results.run import Run
from ablate.results.study import Study, load_study

__all__ = ["Run", "Study", "load_study", "newest_study", "read_manifest"]
