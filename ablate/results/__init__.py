"""What a run is (its key) and what lies on disk: runs, manifests, studies, tables, leases, atomic writes; no torch."""
