"""The components of a Transformer: one module per component, plain arguments in, tensors out.

`build` binds a configuration's components to their shape.  In `transformer` tokens (B, T) become embeddings (B, T, C),
pass the blocks of `residual`, each a wiring of `attention` (whose product is `attend`), `ffn` and `norm`, and become
logits (B, T, vocab); positions come from `position`.  What `init` and `dropout` draw goes by keys and names alone.
"""
