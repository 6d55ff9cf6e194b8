"""Tasks: batches from (seed, step) alone, held-out windows, and yardsticks to read losses by.

`task` is the contract of all.  Tasks over text derive from `lm`, those over examples that a rule draws from
`synthetic`, from a source sequence to a target sequence from `sequence`.
"""
