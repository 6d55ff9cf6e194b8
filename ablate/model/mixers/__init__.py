"""What can stand in attention's place: mixers of tokens whose cost grows with the length, not with its square.

Each keeps a state of fixed size for every head, which tokens write to and queries read.  `chunked` computes such
recurrences as products over chunks of positions; `parts` is what the mixers share.
"""
