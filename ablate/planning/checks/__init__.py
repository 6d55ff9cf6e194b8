"""Checks of a study's cells before anything trains.

validate   a cell by its configuration: keys, components, task, device
examine    a cell by a tiny copy of it: looking ahead, parameters without any effect
memory     the memory that a cell needs
preflight  runs all after `validate`, and finds cells that are the same network or have the same data

`ablate.config.key_checks` checks a study's own keys, such as `seeds`.
"""
