"""A task of no content: what a model is built for and counted with."""

from torch import Tensor

from ablate.data.task import Task
from ablate.model.shape import Shape


def some_shape(dim: int, heads: int = 2, dropout: float = 0.0, **changed: int) -> Shape:
    """The shape of a decoder of two layers."""
    sizes = {"head_dim": dim // heads, "layers": 2, "context": 12, "encoder_layers": 0, "decoder_layers": 2}
    return Shape(dim=dim, heads=heads, dropout=dropout, **sizes | changed)


class Blank(Task):
    """A task of a kind, in any size."""

    metrics = {"loss": "min"}  # noqa: RUF012

    def __init__(
        self,
        vocab: int = 13,
        context: int = 12,
        kind: str = "lm",
        outputs: int | None = None,
        features: int | None = None,
    ):
        self.vocab, self.kind, self.outputs, self.features = vocab, kind, outputs or vocab, features
        self.context = self.length = context
        self.positions = 2 * context if kind == "seq2seq" else context
        self.fingerprint = self.name = f"blank-{kind}-{vocab}-{context}"

    def blank(self) -> dict[str, Tensor]:
        """Inputs of one example."""
        inputs = super().blank()
        return inputs | {"source": inputs["tokens"]} if self.kind == "seq2seq" else inputs
