"""The sizes from which a model and its components are built."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that a component's constructor may take: as `shape`, or the first six by name."""

    dim: int  # width of the residual stream
    heads: int  # number of attention heads
    head_dim: int  # width of each head
    layers: int  # blocks per stack
    dropout: float  # dropout probability of features and attention weights
    context: int  # positions of the longest sequence at the training length
    encoder_layers: int  # blocks of this stack, 0 if the model has none
    decoder_layers: int  # likewise


@dataclass(frozen=True, kw_only=True)
class ModelShape(Shape):
    """The sizes of a whole model: a Shape, the sizes of its task, and options of embedding, head and layers."""

    vocab: int  # number of input ids
    outputs: int  # logits per position, or per example with pooling
    features: int | None  # numbers per position if inputs are not ids
    pool: bool  # one output per example, by the mean over positions
    tie_embeddings: bool  # embedding and head share a matrix (Press 2016)
    scale_embeddings: bool  # embeddings are multiplied by √dim (Vaswani 2017)
    norm_embeddings: bool  # a norm on the embeddings (BERT, BLOOM)
    share_layers: bool  # all layers share the parameters of one block (ALBERT, Lan 2019)
    embedding_dim: int | None = None  # width of embeddings, which a matrix maps to `dim`; None: `dim` (ALBERT)
    share_embeddings: bool = True  # an encoder-decoder uses one embedding for source and target
    soft_cap: float | None = None  # c: logits are c · tanh(logits / c) (Gemma 2, arXiv 2408.00118)
    later_tokens: int = 0  # number of tokens after the next one that each position also predicts in training

    @property
    def table_dim(self) -> int:
        """Width of an embedding."""
        return self.dim if self.embedding_dim is None else self.embedding_dim

    @property
    def embedding_scale(self) -> float:
        """Factor of the embeddings."""
        return self.table_dim**0.5 if self.scale_embeddings else 1.0
