"""The components of a Transformer: one module per kind of component, with plain arguments and tensors as outputs.

`build` makes a model from a configuration.  In `transformer`, tokens (B, T) become embeddings (B, T, C), pass through
the blocks of `residual` and become logits (B, T, vocab).  A block joins `attention` (computed by `attend`), `ffn` and
`norm`; positions come from `position`.  The random numbers of `init` and `dropout` depend only on seeds and names.
"""
