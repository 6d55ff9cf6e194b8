"""Trains planned runs on this machine or through a launcher: orders, a pool of workers, signals.

launcher → pool → worker → train_run → ablate.training.trainer.  A run is described by one record, its order.  The pool
has a process per CPU core or GPU, a worker, which trains one run at a time and writes its result.  Jobs of other
launchers pass the same order to `launcher`.  A run on several devices has a process for each: `distributed`.
"""
