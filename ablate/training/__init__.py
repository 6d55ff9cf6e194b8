"""One run, from its configuration to its metrics: loop, optimiser, evaluation, devices."""
