"""`data=tokens`: tokens that another program made, in files of nanoGPT, llm.c or OLMo."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.errors import one_line
from ablate.config.ranges import at_least
from ablate.data.corpus import Corpus, Shards, cached, folder_of, yardsticks
from ablate.data.documents import find_files, stamp
from ablate.data.language import LanguageModelling
from ablate.runs.files import digest, file_digest

HEADERS = {20240520: "uint16", 20240801: "uint32"}  # llm.c: the first of 256 int32; the third is the number of tokens
HEADER = 1024  # bytes
NUMPY = b"\x93NUMPY"
HELD_OUT = re.compile("(?<![a-z])(val|test)")  # how words begin in the names of held-out shards
KINDS = ("uint16", "uint32", "uint8", "int32", "int64")
MANY = 32  # ids, of which every second is not small by chance
NOTE = "held-out shards are taken as they are: copies of training text in them are not looked for"


class Tokens(LanguageModelling):
    """Shards of token ids: raw (nanoGPT's .bin, OLMo's .npy), with a header (llm.c), or NumPy's own."""

    def __init__(
        self, path: str, held_out: str | None, vocab_size: int, dtype: str | None, context: int, order: str = "random"
    ):
        at_least("data.vocab_size", vocab_size, 1)
        if dtype not in (None, *KINDS):
            raise ValueError(f"data.dtype={dtype} is not a choice; write one of {', '.join(KINDS)}, or null")
        super().__init__(TokenFiles(path, held_out, vocab_size, dtype), context, "token", None, order)

    def read(self, source: Any, tokenizer: str, vocab_size: int | None) -> Corpus:
        """See LanguageModelling."""
        corpus: Corpus = source.corpus()
        return corpus


@dataclasses.dataclass(frozen=True)
class TokenFiles:
    """Shards of a training and a held-out split; the latter's first half is for validation, unless names say which."""

    path: str
    held_out: str | None
    vocab_size: int
    dtype: str | None

    @property
    def title(self) -> str:
        """A name for the corpus."""
        return Path(self.path).stem.strip("*") or "tokens"

    @property
    def words(self) -> str:
        """The words of the command line that chose it, for errors."""
        return f"data.path={self.path}"

    def corpus(self) -> Corpus:
        """The corpus; reads all shards once, and then only their sizes and times.  Raises ValueError."""
        files = self.files()
        shards = {}
        stamps = []
        for split in files:
            shards[split] = [self.open(file) for file in files[split]]
            stamps += [[str(file.absolute()), *stamp(file)] for file in files[split]]
        tokens = {split: Shards(shards[split]) for split in shards}
        if files["val"] == files["test"]:
            half = len(tokens["test"]) // 2
            tokens["val"] = Shards(shards["test"], 0, half)
            tokens["test"] = Shards(shards["test"], half)
        folder = folder_of([dataclasses.asdict(self), stamps])
        corpus = cached(folder, lambda: self.read_all(files, shards, tokens))
        return dataclasses.replace(corpus, tokens=tokens)

    def files(self) -> dict[str, list[Path]]:
        """The shards of each split; `val` and `test` are the same if names do not say which is for what."""
        files = find_shards(self.path, "data.path")
        if self.held_out is None:
            held_out = [file for file in files if HELD_OUT.search(file.stem.lower())]
        else:
            held_out = find_shards(self.held_out, "data.held_out")
        resolved = {file.resolve() for file in held_out}
        train = [file for file in files if file.resolve() not in resolved]
        if not (train and held_out):
            lack = "to train on" if held_out else "with val or test in its name; write data.held_out=FILE or 'GLOB'"
            raise ValueError(f"{self.words} has no shard (.bin or .npy) {lack}")
        test = [file for file in held_out if "test" in HELD_OUT.findall(file.stem.lower())] or held_out
        val = [file for file in held_out if file not in test] or test
        return {"train": train, "val": val, "test": test}

    def open(self, file: Path) -> np.ndarray:
        """The ids in a shard, on disk.  Raises ValueError."""
        with open(file, "rb") as opened:
            head = opened.read(HEADER)
        magic = int.from_bytes(head[:4], "little")
        if head.startswith(NUMPY):
            return open_numpy(file)
        if len(head) < HEADER or magic not in HEADERS:
            usual = "uint16" if self.vocab_size <= 1 << 16 else "uint32"
            return open_raw(file, self.dtype or usual)
        ids = open_raw(file, HEADERS[magic], HEADER)
        count = int.from_bytes(head[8:12], "little")
        if len(ids) != count:
            raise ValueError(f"{file} is cut short: its header says {count:,} ids, and it holds {len(ids):,}")
        return ids

    def read_all(
        self, files: dict[str, list[Path]], shards: dict[str, list[np.ndarray]], tokens: dict[str, Shards]
    ) -> Corpus:
        """Read all shards: check the ids, and compute what is known of them.  Raises ValueError."""
        digests = []
        for split in files:
            for file, ids in zip(files[split], shards[split], strict=True):
                self.check(file, ids)
            digests.append([file_digest(file) for file in files[split]])
        border = len(tokens["val"]) if files["val"] == files["test"] else 0
        return Corpus(
            fingerprint=digest(json.dumps([digests, border, self.vocab_size]).encode())[:32],
            vocab=self.vocab_size,
            tokens=tokens,
            names={"train": [], "val": ["document 0"], "test": ["document 0"]},
            ends={split: np.array([len(tokens[split])]) for split in tokens},
            yardsticks=yardsticks(tokens["train"], tokens["test"], self.vocab_size),
            bytes_per_token={},
            tokenizer="token",
            state="",
            notes=[NOTE],
        )

    def check(self, file: Path, ids: np.ndarray) -> None:
        """Raise ValueError for ids that are not of the vocabulary, or that look like halves of wider ones."""
        least = int(ids.min())
        even = int(ids[::2].max())
        odd = int(ids[1::2].max(initial=0))
        small = min(even, odd)
        large = max(even, odd)
        if least < 0:
            problem = f"its ids go down to {least:,}"
        elif large >= self.vocab_size:
            problem = f"its ids go up to {large:,} as {ids.dtype}, beyond data.vocab_size={self.vocab_size}"
        elif len(ids) >= MANY and (small == 0 < large or small < 256 <= large):
            problem = f"every second id is at most {small}, as if ids were wider than {ids.dtype}"
        else:
            return
        raise ValueError(f"{file}: {problem}; write another data.vocab_size, or data.dtype={', '.join(KINDS)}")


def find_shards(path: str, key: str) -> list[Path]:
    """The shards of a path, the value of `key`."""
    return [file for file in find_files(path, key) if file.suffix in (".bin", ".npy")]


def open_numpy(file: Path) -> np.ndarray:
    """The ids of an array that NumPy saved, on disk.  Raises ValueError."""
    try:
        ids: np.ndarray = np.load(file, mmap_mode="r")
    except (ValueError, EOFError, SyntaxError) as error:  # its header can hold anything
        raise ValueError(f"{file} is cut short or no array of NumPy ({one_line(error)[:120]})") from None
    if ids.ndim != 1 or ids.dtype.name not in KINDS:
        raise ValueError(f"{file} holds {ids.dtype.name} {ids.shape}, not a row of {', '.join(KINDS)}")
    return ids


def open_raw(file: Path, kind: str, start: int = 0) -> np.ndarray:
    """The ids of a shard from a byte on, on disk.  Raises ValueError if its size is not that of whole ids."""
    size = file.stat().st_size - start
    if size <= 0 or size % np.dtype(kind).itemsize:
        raise ValueError(f"{file} is empty or cut short: its {size:,} bytes are not the {kind} of a shard")
    return np.memmap(file, kind, "r", offset=start)
