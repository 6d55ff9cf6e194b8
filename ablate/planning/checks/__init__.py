"""What is wrong with the cells of a study, found before the first step of any.

validate         one cell by its configuration: keys, components, task, device
examine          one cell by a tiny copy of it: what it looks ahead at, parts without any effect
duplicate_cells  two cells that are one network, or one set of data
memory           what a cell needs, and what its device has

`validate` comes first; `preflight` carries out the others.  What is wrong with a study's own keys, `seeds` or `margin`,
says `ablate.config.key_checks`.
"""
