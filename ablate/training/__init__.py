"""One run, from its configuration to its metrics: loop, optimiser, evaluation, devices.

`trainer` is the loop.  A step of it: the gradient (`grad_accumulation`), the optimiser's step (`optim`), the average of
the weights (`weight_averaging`); an evaluation: `evaluation`, on top of `scoring`.
"""
