"""The Transformer in three forms over the same blocks: decoder, encoder, encoder-decoder."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from ablate.config.errors import BadComponent
from ablate.model.dropout import Dropout
from ablate.model.init import tag, with_role
from ablate.model.norm import running_norms
from ablate.model.position import OverLayers, Places
from ablate.model.residual import Block, Stream, connect_values
from ablate.model.shape import ModelShape


class Parts(NamedTuple):
    """The parts of a model, as functions that make a new one for each place."""

    block: Callable[[int], Block]  # of its layer, counted from 0 within the stack
    cross_block: Callable[[int], Block]  # likewise; it also attends to a memory
    norm: Callable[[], nn.Module]  # of the residual stream's width
    position: Callable[[], nn.Module]  # of an embedding's width
    embed_norm: Callable[[], nn.Module]  # likewise
    embedding: Callable[[], nn.Module]


class Stack(nn.Module):
    """Position encoding, blocks, and a final norm if the residual style needs one: (B, T, C) -> (B, T, C).  With
    factorised embeddings, positions and norm come before the matrix that widens them (ALBERT, 1909.11942)."""

    def __init__(self, shape: ModelShape, parts: Parts):
        super().__init__()
        self.position = parts.position()
        self.embed_norm = parts.embed_norm() if shape.norm_embeddings else None
        self.dropout = Dropout(shape.dropout)
        self.widen = None if shape.embedding_dim is None else tag(nn.Linear(shape.embedding_dim, shape.dim), "in")
        blocks = [parts.block(layer) for layer in range(shape.layers)]
        later = [parts.block(shape.layers - 1) for _ in range(shape.later_tokens)]
        connect_values([*blocks, *later])
        if shape.share_layers:
            for block in blocks[1:]:
                share_parameters(blocks[0], block)
        self.blocks = nn.ModuleList(blocks)
        self.later = nn.ModuleList(later)
        self.keeps_hidden = False
        self.hidden_states: list[Tensor] = []  # the stream after each block, for an objective
        if not any(getattr(block.attention, "window", None) for block in blocks):
            for part in self.position.modules():
                if getattr(part, "local_base", None):
                    part.note = "its local_base has no effect: no layer has a window"
        self.final_norm = parts.norm() if wants_final_norm(blocks) else None
        if self.later and self.final_norm is not None and running_norms(self.final_norm):
            problem = "heads of later tokens share the final norm, whose running statistics would mix"
            raise BadComponent("objective", problem)

    def run(
        self,
        x: Tensor,  # (B, T, C), or (B, T, E) where a matrix widens embeddings
        causal: bool,
        mask: Tensor | None,  # (B, T)
        memory: Tensor | None = None,  # (B, S, C)
        memory_mask: Tensor | None = None,  # (B, S)
    ) -> Tensor:  # (B, T, C)
        """Map embeddings to the input of the head or of another stack."""
        x = self.position.embed(x)
        if self.embed_norm is not None:
            x = self.embed_norm(x, mask=mask)
        x = self.dropout(x)
        if self.widen is not None:
            x = self.widen(x)
        places = self.places(x, causal)
        context = (causal, mask, memory, memory_mask)
        stream = self.blocks[0].enter(x)
        states: list[Tensor] = []
        for block, block_places in zip(self.blocks[:-1], places[:-1], strict=True):
            stream = block(stream, block_places, *context)
            if self.keeps_hidden and self.training:
                states.append(block.leave(stream))
        if self.later and self.training:
            ends = [block(stream, places[-1], *context) for block in self.later]
            self.later_states = [self.output(block, end, mask) for block, end in zip(self.later, ends, strict=True)]
        last = self.blocks[-1]
        stream = last(stream, places[-1], *context)
        if self.keeps_hidden and self.training:
            self.hidden_states = [*states, last.leave(stream)]
        return self.output(last, stream, mask)

    def places(self, x: Tensor, causal: bool) -> list[Places]:
        """The position information for each layer's attention over the stream (B, T, C)."""
        if isinstance(self.position, OverLayers):
            return self.position.places_of_layers(x, causal)
        return [self.position.places(x, causal)] * len(self.blocks)

    def output(self, block: Block, stream: Stream, mask: Tensor | None) -> Tensor:  # (B, T, C)
        """The output of a last block, normalised if the stack ends in a norm."""
        x = block.leave(stream)
        return x if self.final_norm is None else self.final_norm(x, mask=mask)


class Decoder(Stack):
    """Causal language model: logits of the next token (Radford 2018).  tokens (B, T) -> logits (B, T, vocab)."""

    kinds = ("lm",)
    stacks = ("decoder",)

    def __init__(self, shape: ModelShape, parts: Parts):
        super().__init__(shape, parts)
        self.scale = shape.embedding_scale
        self.soft_cap = shape.soft_cap
        self.embed = parts.embedding()
        self.head = head(shape, shape.vocab, self.embed if shape.tie_embeddings else None)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T) -> (B, T, vocab)
        logits = self.logits(self.run(self.embed(tokens) * self.scale, True, mask))
        if self.later and self.training:
            self.later_logits = [self.logits(state) for state in self.later_states]
            self.later_states = []
        return logits

    def logits(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, vocab)
        """Logits from the stack's output."""
        return capped(self.head(x), self.soft_cap)


class Encoder(Stack):
    """Every position attends to all others: ids (B, T) or numbers (B, T, features) -> logits (B, T, outputs).

    A masked language model (BERT, Devlin 2018, arXiv 1810.04805).  With `pool` it classifies by the mean over positions
    -> (B, outputs).  `embed` is a table if inputs are ids, a linear map if they are numbers.
    """

    kinds: tuple[str, ...] = ("mlm", "classification")
    stacks = ("encoder",)

    def __init__(self, shape: ModelShape, parts: Parts):
        super().__init__(shape, parts)
        ids = shape.features is None
        if shape.tie_embeddings and (shape.pool or not ids or shape.outputs != shape.vocab):
            problem = "true needs targets that are also input tokens; write model.tie_embeddings=false"
            raise BadComponent("model.tie_embeddings", problem)
        if shape.pool and any(getattr(module, "centres_positions", False) for module in self.modules()):
            problem = "sets the mean over positions, which a classifier uses, to 0; choose another"
            raise BadComponent("norm", problem)
        refuse_one_way("position", self.position.modules(), ONE_WAY)
        refuse_one_way("attention", self.modules(), ONE_WAY)
        self.scale = shape.embedding_scale
        self.pool = shape.pool
        self.soft_cap = shape.soft_cap
        self.embed = parts.embedding() if ids else tag(nn.Linear(shape.features, shape.table_dim), "in")
        self.head = head(shape, shape.outputs, self.embed if shape.tie_embeddings else None)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T[, features]) -> see the class
        x = self.run(self.embed(tokens) * self.scale, False, mask)
        if self.pool:
            x = mean_over_positions(x, mask)
        return capped(self.head(x), self.soft_cap)


class BERT(Encoder):
    """Encoder with the head norm(gelu(W x + b)) · Eᵀ + c, where E is the embedding (Devlin 2018, arXiv 1810.04805)."""

    kinds = ("mlm",)

    def __init__(self, shape: ModelShape, parts: Parts):
        super().__init__(shape, parts)
        tied = self.embed if shape.tie_embeddings else None
        self.head = BERTHead(shape, parts.embed_norm(), tied)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T) -> (B, T, outputs)
        x = self.run(self.embed(tokens) * self.scale, False, mask)
        return capped(self.head(x, mask), self.soft_cap)


class BERTHead(nn.Module):
    """norm(gelu(W x + b)), with the width of an embedding, and biased logits: (B, T, C) -> (B, T, outputs)."""

    def __init__(self, shape: ModelShape, norm: nn.Module, tied: nn.Module | None):
        super().__init__()
        self.transform = tag(nn.Linear(shape.dim, shape.table_dim), "in")
        self.norm = norm
        self.out = logits_of(shape.table_dim, shape.outputs, tied)
        self.bias = with_role(torch.zeros(shape.outputs), "bias", fan_in=shape.table_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, outputs)
        return self.out(self.norm(gelu(self.transform(x)), mask=mask)) + self.bias


class EncoderDecoder(nn.Module):
    """Sequence to sequence: logits of the next target token, given the source and the target so far (Vaswani 2017).

    source (B, S), tokens (B, T) -> logits (B, T, vocab).  The decoder attends to the encoder's output in every block.
    Both stacks have `layers` layers and share one embedding, unless `share_embeddings` is false.
    """

    kinds = ("seq2seq",)
    stacks = ("encoder", "decoder")

    def __init__(self, shape: ModelShape, parts: Parts):
        super().__init__()
        self.scale = shape.embedding_scale
        self.soft_cap = shape.soft_cap
        self.embed = parts.embedding()
        self.source_embed = None if shape.share_embeddings else parts.embedding()
        self.encoder = Stack(shape, parts)
        self.decoder = Stack(shape, parts._replace(block=parts.cross_block))
        refuse_one_way("position", self.encoder.position.modules(), ONE_WAY)
        cross_attentions = [block.cross_attention for block in self.decoder.blocks]
        refuse_one_way("attention", cross_attentions, "cannot attend to a source; add cross_attention=mha")
        self.head = head(shape, shape.vocab, self.embed if shape.tie_embeddings else None)

    def forward(
        self, source: Tensor, tokens: Tensor, source_mask: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:  # (B, S), (B, T) -> (B, T, vocab)
        return self.decode(self.encode(source, source_mask), tokens, source_mask, mask)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """The memory for the decoder: (B, S) -> (B, S, C)."""
        table = self.embed if self.source_embed is None else self.source_embed
        return self.encoder.run(table(source) * self.scale, False, source_mask)

    def decode(
        self, memory: Tensor, tokens: Tensor, source_mask: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Logits (B, T, vocab) of the token that follows each position."""
        x = self.decoder.run(self.embed(tokens) * self.scale, True, mask, memory, source_mask)
        return capped(self.head(x), self.soft_cap)


def share_parameters(source: nn.Module, target: nn.Module) -> None:
    """Make a block use another's parameters; its buffers and dropout sites stay its own."""
    for name, module in target.named_modules():
        module._parameters.update(source.get_submodule(name)._parameters)


def wants_final_norm(blocks: list[Block]) -> bool:
    """Whether a stack ends in a norm.  Raises BadComponent if its blocks differ in this or in their streams."""
    agree = "let layers differ in styles that agree"
    wanted = {block.final_norm: type(block).__name__ for block in blocks}
    if len(wanted) > 1:
        problem = f"{wanted[True]} needs a norm after the last block, {wanted[False]} must have none"
        raise BadComponent("residual", f"{problem}; {agree}")
    streams = {block.streams: type(block).__name__ for block in blocks}
    if len(streams) > 1:
        counts = " and ".join(f"{name} has {count}" for count, name in streams.items())
        raise BadComponent("residual", f"numbers of residual streams differ: {counts}; {agree}")
    return blocks[0].final_norm


def head(shape: ModelShape, outputs: int, tied: nn.Module | None) -> nn.Module:
    """The map to logits, optionally tied to an embedding; to a factorised one through another linear map."""
    if tied is None or shape.embedding_dim is None:
        return logits_of(shape.dim, outputs, tied)
    narrow = tag(nn.Linear(shape.dim, shape.embedding_dim), "in")
    return nn.Sequential(narrow, logits_of(shape.embedding_dim, outputs, tied))


def logits_of(dim: int, outputs: int, tied: nn.Module | None) -> nn.Linear:
    """A linear map to logits, optionally with the weight of `tied`."""
    layer = tag(nn.Linear(dim, outputs, bias=False), "head")
    if tied is not None:
        layer.weight = tied.weight
    return layer


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """cap · tanh(logits / cap), of any shape (Gemma 2, arXiv 2408.00118)."""
    return logits if cap is None else cap * torch.tanh(logits / cap)


def mean_over_positions(x: Tensor, mask: Tensor | None) -> Tensor:  # (B, T, C) -> (B, C)
    """The mean over real positions."""
    if mask is None:
        return x.mean(-2)
    real = mask[..., None].to(x.dtype)
    return (x * real).sum(-2) / real.sum(-2).clamp(min=1)


ONE_WAY = "reads from left to right, but an encoder needs all positions; choose another"


def refuse_one_way(key: str, parts: Iterable[nn.Module], problem: str) -> None:
    """Raise BadComponent if a part is causal only."""
    for part in parts:
        if getattr(part, "causal_only", False):
            raise BadComponent(key, f"{type(part).__name__} {problem}")
