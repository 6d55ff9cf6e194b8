"""`data=tokens`: tokens that another program made, in files of nanoGPT, llm.c or OLMo."""

import dataclasses
import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.errors import one_line
from ablate.config.import_path import cores
from ablate.config.ranges import at_least, within
from ablate.data.corpus import Corpus, Shards, cached, facts, folder_of, stamp, write_corpus
from ablate.data.documents import find_files
from ablate.data.lm import LanguageModelling
from ablate.data.prepare import Progress
from ablate.formatting import listed
from ablate.results.atomic import digest

HEADERS = {20240520: "uint16", 20240801: "uint32"}  # llm.c: the first of 256 int32; the third is the number of tokens
HEADER = 1024  # bytes
NUMPY = b"\x93NUMPY"
HELD_OUT = re.compile("(?<![a-z])(val|test)")  # how words begin in the names of held-out shards
KINDS = ("uint16", "uint32")
BLOCK = 1 << 22  # bytes of a shard that are read at a time
SCORED = 10_000_000  # test tokens that yardsticks are computed on


class Tokens(LanguageModelling):
    """Shards of token ids: raw (nanoGPT's .bin, OLMo's .npy), with a header (llm.c), or NumPy's own."""

    def __init__(
        self,
        path: str,
        held_out: str | None,
        vocab_size: int,
        end: int | None,
        dtype: str | None,
        context: int,
        order: str = "random",
    ):
        at_least("data.vocab_size", vocab_size, 1)
        if end is not None:
            within("data.end", end, 0, vocab_size, "[)")
        if dtype not in (None, *KINDS):
            raise ValueError(f"data.dtype={dtype} is not a choice; write {' or '.join(KINDS)}, or null")
        super().__init__(TokenFiles(path, held_out, vocab_size, end, dtype), context, "token", None, order)

    def read(self, source: Any, tokenizer: str, vocab_size: int | None) -> Corpus:
        """See LanguageModelling."""
        found: Corpus = source.corpus()
        return found


@dataclasses.dataclass(frozen=True)
class TokenFiles:
    """Shards of a training and a held-out split; the latter's first half is for validation, unless names say which."""

    path: str
    held_out: str | None
    vocab_size: int
    end: int | None  # the id that ends a document
    dtype: str | None

    @property
    def title(self) -> str:
        """A name for the corpus."""
        return Path(self.path).stem.strip("*") or "tokens"

    @property
    def words(self) -> str:
        """The words of the command line that chose it, for errors."""
        return f"data.path={self.path}"

    def listed(self) -> list[Path]:
        """All shards."""
        return [file for found in self._splits().values() for file in found]

    def corpus(self) -> Corpus:
        """The corpus; reads all shards once, and then only their sizes and times.  Raises ValueError."""
        files = self._splits()
        arrays = {file: self._array(file) for found in files.values() for file in found}
        if len(kinds := sorted({array.dtype.name for array in arrays.values()})) > 1:
            raise ValueError(f"{self.words} has shards of {listed(kinds)}; name shards of one kind")
        folder = folder_of([dataclasses.asdict(self), [str(file.absolute()) for file in arrays]])
        make = lambda: self._index(folder, files, arrays)  # noqa: E731
        return cached(folder, make, lambda index: _halved(files, arrays, index["half"]), arrays)

    def _splits(self) -> dict[str, list[Path]]:
        """The shards of each split; a held-out split without files of its own has a half of the other's."""
        found = _shards(self.path, "data.path")
        if self.held_out is None:
            held = [file for file in found if HELD_OUT.search(file.stem.lower())]
        else:
            held = _shards(self.held_out, "data.held_out")
        ours = {file.resolve() for file in held}
        train = [file for file in found if file.resolve() not in ours]
        if not train:
            raise ValueError(f"{self.words} has no shard (.bin or .npy) to train on")
        if not held:
            why = f"{self.words} has no shard with val or test in its name"
            why = why if self.held_out is None else f"data.held_out={self.held_out} has no shard (.bin or .npy)"
            raise ValueError(f"{why}; write data.held_out=FILE or 'GLOB'")
        test = [file for file in held if "test" in HELD_OUT.findall(file.stem.lower())] or held
        return {"train": train, "val": [file for file in held if file not in test] or test, "test": test}

    def _array(self, file: Path) -> np.ndarray:
        """The ids in a shard, on disk."""
        with open(file, "rb") as opened:
            head = opened.read(12)
        words, size = np.frombuffer(head.ljust(12, b"\0"), np.int32), file.stat().st_size
        if head.startswith(NUMPY):
            try:
                array: np.ndarray = np.load(file, mmap_mode="r")
            except (ValueError, EOFError, SyntaxError) as error:  # its header can hold anything
                raise ValueError(f"{file} is cut short or no array of NumPy ({one_line(error)[:120]})") from None
            if array.ndim != 1 or array.dtype.name not in KINDS:
                raise ValueError(f"{file} holds {array.dtype.name} {array.shape}, not a row of {' or '.join(KINDS)}")
            kind, said = array.dtype.name, True
        else:
            kind, start = self.dtype or ("uint16" if self.vocab_size <= 1 << 16 else "uint32"), 0
            if said := int(words[0]) in HEADERS and size >= HEADER:
                kind, start = HEADERS[int(words[0])], HEADER
            count, rest = divmod(size - start, np.dtype(kind).itemsize)
            if rest or not count or (said and count != words[2]):
                raise ValueError(f"{file} is empty or cut short: its {size:,} bytes are not the {kind} of a shard")
            array = np.memmap(file, kind, "r", offset=start)
        if said and self.dtype not in (None, kind):
            raise ValueError(f"data.dtype={self.dtype}, and {file} says that it holds {kind}; leave it null")
        return array

    def _index(self, folder: Path, files: dict[str, list[Path]], arrays: dict[Path, np.ndarray]) -> dict[str, Any]:
        """Read all shards: check the ids, and write the index."""
        source, progress = dict[str, list[Any]](), Progress(f"{self.title}: reading", len(arrays))
        with ThreadPoolExecutor(cores()) as pool:
            for file, (most, entry) in zip(arrays, pool.map(_read, arrays, arrays.values()), strict=True):
                if most >= self.vocab_size:
                    pool.shutdown(cancel_futures=True)
                    why = f"its ids go up to {most:,}, beyond data.vocab_size={self.vocab_size}"
                    raise ValueError(f"{file}: {why}; it is of another vocabulary, or data.dtype is another")
                source[os.path.abspath(file)] = entry
                progress.show(lambda: len(source))
        half = sum(len(arrays[file]) for file in files["test"]) // 2
        if files["val"] == files["test"]:  # cut at the end of a document, if there is one inside
            inner = self._ends(Shards(arrays[file] for file in files["test"]))[:-1]
            half = int(inner[np.abs(inner - half).argmin()]) if len(inner) else half
        splits = _halved(files, arrays, half)
        ends = {split: self._ends(splits[split]) for split in ("val", "test")}
        if self.end is not None and len(ends["test"]) < 2:
            raise ValueError(f"data.end={self.end} ends no document within the test split; leave it null")
        names = {split: [f"document {i}" for i in range(len(found))] for split, found in ends.items()}
        ends["train"] = np.array([len(splits["train"])])
        content = [[source[os.path.abspath(file)][2] for file in found] for found in files.values()]
        corpus = facts("token", self.vocab_size, splits | {"test": Shards([splits["test"][:SCORED]])}, {})
        corpus["fingerprint"] = digest(json.dumps([content, half, self.vocab_size]).encode())[:32]
        corpus["by_document"] = self.end is not None
        corpus["notes"] = ["held-out shards are taken as they are: copies of training text in them are not looked for"]
        written = {f"{split}.ends": found for split, found in ends.items()}
        index = {"source": source, "half": half, "corpus": corpus}
        return write_corpus(folder, written, {"train": []} | names, "", index)

    def _ends(self, shards: Shards) -> np.ndarray:
        """One past the last token of each document of a held-out split, which also ends the last."""
        if self.end is None:
            return np.array([len(shards)])
        starts = zip(shards.starts, shards.parts, strict=False)
        return np.unique(
            np.concatenate([start + 1 + np.flatnonzero(part == self.end) for start, part in starts] + [[len(shards)]])
        )


def _shards(path: str, key: str) -> list[Path]:
    return [file for file in find_files(Path(path).expanduser(), key) if file.suffix in (".bin", ".npy")]


def _read(file: Path, array: np.ndarray) -> tuple[int, list[Any]]:
    """The largest id in a shard; its size, time and digest."""
    most, entry = 0, stamp(file)
    with open(file, "rb") as opened:  # not through the memory map, whose pages count as this process's memory
        total = hashlib.sha256(opened.read(array.offset))  # type: ignore[attr-defined]
        while block := opened.read(BLOCK):
            total.update(block)
            most = max(most, int(np.frombuffer(block, array.dtype).max()))
    return most, [*entry, total.hexdigest()]


def _halved(files: dict[str, list[Path]], arrays: dict[Path, np.ndarray], half: int) -> dict[str, Shards]:
    """The tokens of each split."""
    found = {split: Shards(arrays[file] for file in those) for split, those in files.items()}
    if files["val"] == files["test"]:
        whole = found["test"]
        found |= {"val": whole.part(0, half), "test": whole.part(half, len(whole))}
    return found
