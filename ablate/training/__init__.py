"""One run, from its configuration to its metrics: loop, optimiser, evaluation, devices.

`trainer` is the loop.  A step of it: `step`, with its `gradients` and the optimiser (`optim`), then the average of the
weights (`weight_averaging`); an evaluation: `evaluation`, on top of `scoring`.
Beside the loop: `clock`, `checkpoint`, `divergence`.
"""
