"""Pretrained word vectors, trained on the training split before the model whose embedding starts from them."""
