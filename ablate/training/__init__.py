"""Training one run, from its configuration to its metrics.

`trainer` holds the loop.  Each step calls `step`, which uses `gradients` and the optimiser (`optim`), and then updates
the average of the weights (`weight_averaging`).  `evaluation` measures the model with `scoring`.
The loop also uses `clock`, `checkpoint` and `divergence`.
"""
