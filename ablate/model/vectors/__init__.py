"""Pretrained word vectors, trained on the training split before the model whose embedding starts from them.

`pretrained` is the base class of such embeddings; each other module has one method of training.
"""
