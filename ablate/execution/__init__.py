"""Planned runs carried out on this machine or through a launcher: pool, workers, jobs, signals."""
