"""Checks of a study's cells before anything trains, called by `inspect`; `planning/cells.py` decides where it runs.

validate    a cell by its configuration: keys, components, task, device
examine     a small copy of a cell with user code: looking ahead, mixing rows, reading padding, hidden state
duplicates  cells that are the same configuration or the same network
memory      the memory that a cell needs
child       the process in which user code runs

`ablate.config.key_checks` checks a study's own keys, such as `seeds`.
"""
