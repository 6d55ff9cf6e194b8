"""Cross-attention of an encoder-decoder's decoder: the same as `attention`, or a separate choice."""

from collections.abc import Callable

from torch import nn


def same(attention: Callable[[], nn.Module]) -> nn.Module:
    """A second module of the layer's own attention (Vaswani 2017, arXiv 1706.03762)."""
    return attention()
