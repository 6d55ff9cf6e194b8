"""Alternatives to attention: sequence mixers whose cost grows linearly with the length.

Each has a state of fixed size per head, which tokens write to and queries read from.  `chunked` computes such
recurrences as products over chunks of positions; `parts` is shared by the mixers.
"""
