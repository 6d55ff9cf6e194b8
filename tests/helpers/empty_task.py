"""A task of no content: what a model is built for and counted with."""

from __future__ import annotations

from torch import Tensor

from ablate.data.task import Task


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
