"""`data=text`: text files of the user."""

import glob
import os
from pathlib import Path

from ablate.data.corpus import Document
from ablate.data.lm import LanguageModelling

CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))  # control characters, rare in text


class Text(LanguageModelling):
    """The documents of a file, of all files in a folder, or of those that match a glob pattern."""

    def __init__(self, path: str, context: int, tokenizer: str, vocab_size: int | None = None):
        documents = read_documents(path)
        super().__init__(text_name(path), documents, context, tokenizer, vocab_size, f"data.path={path}")


def text_name(path: str) -> str:
    """A name for the documents of a path."""
    return Path(path).stem.strip("*") or "text"


def read_documents(path: str) -> list[Document]:
    """One document per non-empty file.  Raises ValueError, with advice, if there is no readable text."""
    if not path:
        raise ValueError("data.path is empty; write data.path=FILE, FOLDER or 'GLOB'")
    root = Path(path).expanduser()
    try:
        files = find_files(root)
    except OSError as error:
        raise ValueError(f"data.path={str(root)[:200]} cannot be read ({error.strerror})") from None
    base = root if root.is_dir() else Path(os.path.commonpath([file.parent for file in files]))
    documents = [Document(file.relative_to(base).as_posix(), read_text(file)) for file in files]
    documents = [document for document in documents if document.text.strip()]
    if not documents:
        raise ValueError(f"data.path={path} is empty; name a file, folder or pattern with text in it")
    return documents


def find_files(root: Path) -> list[Path]:
    """The files of a path, sorted, without hidden files in folders."""
    if root.is_file():
        return [root]
    if root.is_dir():
        below = (file for file in sorted(root.rglob("*")) if file.is_file())
        return [file for file in below if not any(part.startswith(".") for part in file.relative_to(root).parts)]
    files = sorted(Path(match) for match in glob.glob(str(root), recursive=True))
    if not any(file.is_file() for file in files):
        raise ValueError(f"data.path={root} does not exist; write data.path=FILE, FOLDER or 'GLOB'")
    return [file for file in files if file.is_file()]


def read_text(file: Path) -> bytes:
    """Read a file.  Raises ValueError if it cannot be read or is binary."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ValueError(f"data.path: {file} cannot be read ({error.strerror})") from None
    if b"\0" in text or len(text.translate(None, CONTROL)) < 0.9 * len(text):
        raise ValueError(f"data.path: {file} is binary, not text; name text files, in a folder with a 'GLOB'")
    return text
