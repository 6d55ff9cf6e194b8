"""The plain numbers that a model and its components are built from."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What every component may ask its constructor for: `shape`, or one of the first six of these by its own name.

    dim, heads, head_dim            features of the residual stream, heads of attention, features of each head
    layers                          blocks of each stack
    dropout                         share of features, and of attention, that training sets to zero
    context                         positions of the longest sequence at the training length
    encoder_layers, decoder_layers  blocks of these two stacks, 0 where the model has no such stack
    """

    dim: int
    heads: int
    head_dim: int
    layers: int
    dropout: float
    context: int
    encoder_layers: int
    decoder_layers: int


@dataclass(frozen=True, kw_only=True)
class ModelShape(Shape):
    """The numbers of a whole model: a Shape, the sizes of its task, and how embedding, head and layers are made.

    vocab             ids that inputs can have
    outputs           logits of each position, or of each example where it pools
    features          numbers per position where inputs are no ids, else None
    pool              one output per example, by the mean over positions
    tie_embeddings    the embedding is the head, too (Press 2016)
    scale_embeddings  embeddings are multiplied by √dim (Vaswani 2017)
    norm_embeddings   a norm on the embeddings (BERT, BLOOM)
    share_layers      one block's parameters for every layer (ALBERT, Lan 2019)
    embedding_dim     features of an embedding, which a matrix widens to `dim`; None: as many (ALBERT)
    share_embeddings  an encoder-decoder has one embedding for source and target
    head_bias         the map to logits has a bias (GPT-J)
    soft_cap          c: logits are c · tanh(logits / c) (Gemma 2, arXiv 2408.00118)
    later_tokens      tokens after the next one that training has each position predict, too
    """

    vocab: int
    outputs: int
    features: int | None
    pool: bool
    tie_embeddings: bool
    scale_embeddings: bool
    norm_embeddings: bool
    share_layers: bool
    embedding_dim: int | None = None
    share_embeddings: bool = True
    head_bias: bool = False
    soft_cap: float | None = None
    later_tokens: int = 0

    @property
    def table_dim(self) -> int:
        """Features of an embedding."""
        return self.dim if self.embedding_dim is None else self.embedding_dim

    @property
    def embedding_scale(self) -> float:
        """What embeddings are multiplied by."""
        return self.table_dim**0.5 if self.scale_embeddings else 1.0
