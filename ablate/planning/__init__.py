"""From a command line to a checked plan: cells, seeds, runs, and what is done already.

`plan` has the stages in their order; `checks` is what must be right before anything trains, `rounds` what a command
trains beside its study (`tuning`, references for other numbers of steps, further seeds), `runs` what a round still has
to do.
"""
