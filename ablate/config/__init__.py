"""Everything a user can write: groups, keys, overrides, study files, factors, designs and claims.

`command` and `overrides` parse the command line and study files; `factors` and `designs` choose the cells; `compose`
makes a configuration of each, typed by `schema`; `components` binds components to their constructors.  Each mistake
is a `Problem` (`errors`).
"""
