"""`data=stdlib`: the source code of the Python standard library, real text that every machine has."""

import os
import sys
import sysconfig
from pathlib import Path

from ablate.data.documents import Document, Given
from ablate.data.lm import LanguageModelling

NOT_SOURCE = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings", "_bundled"}
GENERATED = ("_sysconfigdata", "topics.py")
LARGEST = 100_000  # bytes at which a file is cut: about 1 % of the corpus


class Stdlib(LanguageModelling):
    """The standard library of the running Python, without tests, generated files and code pages."""

    def __init__(self, context: int, tokenizer: str, vocab_size: int | None = None, order: str = "random"):
        super().__init__(stdlib_source(), context, tokenizer, vocab_size, order)


def stdlib_source() -> Given:
    """The corpus, with Python's version in its name, since versions differ in text."""
    return Given(f"stdlib-{sys.version_info.major}.{sys.version_info.minor}", stdlib_documents())


def stdlib_documents() -> list[Document]:
    """The library's modules in order of their paths, each cut at `LARGEST` bytes."""
    root = Path(sysconfig.get_path("stdlib"))
    documents = []
    paths: list[Path] = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in NOT_SOURCE]  # site-packages can hold a million files
        paths += (Path(folder, f) for f in files if f.endswith(".py") and not f.startswith(GENERATED))
    for path in sorted(paths):
        text = path.read_bytes()
        text = text if len(text) <= LARGEST else text[: text.rfind(b"\n", 0, LARGEST) + 1]
        if text.strip() and b"\0" not in text:
            documents.append(Document(path.relative_to(root).as_posix(), text))
    return documents
