"""The Transformer: embeddings, a stack of blocks, a head."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ablate.model.dropout import Dropout
from ablate.model.init import embedding, tag
from ablate.model.position import Position
from ablate.model.residual import Block


class Decoder(nn.Module):
    """Causal language model: logits of the next token at every position (Radford 2018).

    tokens (B, T) -> logits (B, T, vocab).  `share_layers` uses one block's parameters for every layer (ALBERT, Lan
    2019), `tie_embeddings` the embedding as the head (Press 2016), `scale_embeddings` multiplies embeddings by √dim.
    """

    kinds = ("lm",)

    def __init__(
        self,
        vocab: int,
        layers: int,
        dim: int,
        dropout: float,
        tie_embeddings: bool,
        scale_embeddings: bool,
        share_layers: bool,
        block: Callable[[], Block],
        norm: Callable[[], nn.Module],
        position: Callable[[], Position],
    ):
        super().__init__()
        self.scale = dim**0.5 if scale_embeddings else 1.0
        self.embed = embedding(vocab, dim, "embedding")
        self.position = position()
        self.dropout = Dropout(dropout)
        blocks = [block() for _ in range(layers)]
        for other in blocks[1:] if share_layers else []:
            share_parameters(blocks[0], other)
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = norm() if blocks[0].final_norm else None
        self.head = tag(nn.Linear(dim, vocab, bias=False), "head")
        if tie_embeddings:
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T) -> (B, T, vocab)
        x = self.embed(tokens)
        x = self.dropout(self.position.embed(x if self.scale == 1 else x * self.scale))
        for block in self.blocks:
            x = block(x, self.position, True, mask)
        return self.head(x if self.final_norm is None else self.final_norm(x, mask=mask))


def share_parameters(source: nn.Module, target: nn.Module) -> None:
    """Make a block use another's parameters; buffers and dropout sites stay its own."""
    for name, module in target.named_modules():
        module._parameters.update(source.get_submodule(name)._parameters)
