"""`data=hf`: a text column of a Hugging Face dataset."""

from ablate.data.lm import LanguageModelling
from ablate.data.rows import Rows


class HuggingFace(LanguageModelling):
    """The rows of one split of a dataset as documents, which are split again into train, validation and test."""

    def __init__(
        self,
        name: str,
        config: str | None,
        split: str,
        column: str,
        context: int,
        tokenizer: str,
        vocab_size: int | None = None,
        order: str = "random",
    ):
        super().__init__(Rows(name, config, split, column), context, tokenizer, vocab_size, order)
