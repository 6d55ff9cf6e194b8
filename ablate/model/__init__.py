"""The components of a Transformer: one module per component, plain arguments in, tensors out."""
