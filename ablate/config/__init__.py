"""What a user may write: groups, keys, overrides, study files, factors, designs, claims; composed, typed, checked.

`command` reads the words, with `study_file` and `overrides`; `factors` and `designs` say which combinations are cells;
`compose` makes a configuration of each, whose frame is `schema` and whose components are objects by `components`.  What
is wrong with any of it is a `Problem` (`errors`).
"""
