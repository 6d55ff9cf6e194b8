"""Planned runs trained on this machine or through a launcher: orders, pool, workers, signals.

local -> pool -> worker -> train_run -> ablate.training.trainer.  A run crosses as one record, its order; a pool has a
process for each CPU core or GPU; a worker trains one run at a time and writes its result.  Launchers of other engines
hand the same order over to `local` where their jobs run.
"""
