"""Planned runs carried out on this machine or through a launcher: pool, workers, jobs, signals.

launcher -> jobs -> pool -> fork_server -> worker -> ablate.training.trainer.  Hydra's launchers hand over jobs, each a
unit of runs; a pool has a process for each CPU core or GPU; a worker holds one run at a time and writes its result.
"""
