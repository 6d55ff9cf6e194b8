"""Tasks: batches determined by (seed, step), held-out examples, and reference losses.

`task.Task` is the base class.  Text tasks derive from `language.LanguageModelling`, tasks with generated examples from
`sequence.Synthetic`, and those from a source to a target sequence from `sequence.Sequence`.
"""
