"""Vectors of words, trained on the training split before the model whose embedding begins with them.

An embedding of them is a table as any other: `pretrained` says how it begins, each other module how vectors come about.
"""
