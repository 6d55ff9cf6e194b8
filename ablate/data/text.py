"""`data=text`: text files, lines of JSON and Parquet files of the user."""

from ablate.data.documents import Files
from ablate.data.lm import LanguageModelling


class Text(LanguageModelling):
    """The documents of a file, of all files in a folder, or of those that match a glob pattern."""

    def __init__(
        self,
        path: str,
        context: int,
        tokenizer: str,
        vocab_size: int | None = None,
        column: str = "text",
        order: str = "random",
    ):
        super().__init__(Files(path, column), context, tokenizer, vocab_size, order)
