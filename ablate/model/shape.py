"""The sizes from which a model and its components are built."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that a component's constructor may take: as `shape`, or the first six by name.

    dim, heads, head_dim            width of the residual stream, number of attention heads, width of each head
    layers                          blocks per stack
    dropout                         dropout probability of features and attention weights
    context                         positions of the longest sequence at the training length
    encoder_layers, decoder_layers  blocks of these stacks, 0 if the model has no such stack
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
    """The sizes of a whole model: a Shape, the sizes of its task, and options of embedding, head and layers.

    vocab             number of input ids
    outputs           logits per position, or per example with pooling
    features          numbers per position if inputs are not ids, else None
    pool              one output per example, by the mean over positions
    tie_embeddings    embedding and head share a matrix (Press 2016)
    scale_embeddings  embeddings are multiplied by √dim (Vaswani 2017)
    norm_embeddings   a norm on the embeddings (BERT, BLOOM)
    share_layers      all layers share the parameters of one block (ALBERT, Lan 2019)
    embedding_dim     width of embeddings, which a matrix maps to `dim`; None: `dim` (ALBERT)
    share_embeddings  an encoder-decoder uses one embedding for source and target
    head_bias         the map to logits has a bias (GPT-J)
    soft_cap          c: logits are c · tanh(logits / c) (Gemma 2, arXiv 2408.00118)
    later_tokens      number of tokens after the next one that each position also predicts in training
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
        """Width of an embedding."""
        return self.dim if self.embedding_dim is None else self.embedding_dim

    @property
    def embedding_scale(self) -> float:
        """Factor of the embeddings."""
        return self.table_dim**0.5 if self.scale_embeddings else 1.0
