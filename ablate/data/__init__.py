"""Tasks: batches determined by (seed, step), held-out examples, and reference losses.

`task` is the base class.  Text tasks derive from `lm`, tasks with generated examples from `sequence.Synthetic`, and those from a
source sequence to a target sequence from `sequence.Sequence`.
"""
