"""What attends to a source in an encoder-decoder's decoder: what `attention` is, or a choice of its own."""

from collections.abc import Callable

from torch import nn


def same(attention: Callable[[], nn.Module]) -> nn.Module:
    """Another of what attends to the sequence itself (Vaswani 2017, arXiv 1706.03762)."""
    return attention()
