"""`data=tokens`: tokens that another program made, in files of nanoGPT, llm.c or OLMo."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ablate.data.corpus import BLOCK, SPLITS, Corpus, cache_folder, yardsticks
from ablate.data.documents import find_files
from ablate.data.lm import LanguageModelling
from ablate.data.prepare import Shards, counted, current, facts_of
from ablate.formatting import listed
from ablate.results.atomic import write_json

HEADERS = {20240520: "uint16", 20240801: "uint32"}  # llm.c: the first of 256 int32; the third is the number of tokens
HEADER = 1024  # bytes
NUMPY = b"\x93NUMPY"
HELD_OUT = ("val", "test")  # words in the names of held-out shards
KINDS = ("uint16", "uint32")


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
        if self.dtype not in (None, *KINDS):
            raise ValueError(f"data.dtype={self.dtype} is not a choice; write {' or '.join(KINDS)}, or null")
        files = self._splits()
        arrays = {file: self._array(file) for found in files.values() for file in found}
        if len(kinds := sorted({array.dtype.name for array in arrays.values()})) > 1:
            raise ValueError(f"{self.words} has shards of {listed(kinds)}; name shards of one kind")
        recipe = json.dumps([dataclasses.asdict(self), [str(file.absolute()) for file in arrays]])
        folder = cache_folder() / f"corpus-{hashlib.sha256(recipe.encode()).hexdigest()[:32]}"
        index = current(folder, arrays) or self._index(folder, files, arrays)
        splits = _splits(files, arrays, index["half"])
        ends = {split: np.load(folder / f"{split}.ends.npy", mmap_mode="r") for split in SPLITS}
        names = {split: [f"document {i}" for i in range(len(ends[split]))] for split in ("val", "test")}
        unseen = "held-out shards are taken as they are: copies of training text in them are not looked for"
        facts = {name: index[name] for name in ("fingerprint", "yardsticks")}
        return Corpus(
            **facts,
            vocab=self.vocab_size,
            tokens=splits,
            names={"train": []} | names,
            ends=ends,
            by_document=self.end is not None,
            bytes_per_token={},
            tokenizer="token",
            state="",
            unknown={},
            notes=[unseen],
            folder=folder,
        )

    def _splits(self) -> dict[str, list[Path]]:
        """The shards of each split; a held-out split without files of its own has a half of the other's."""
        found = [file for file in find_files(Path(self.path).expanduser()) if file.suffix in (".bin", ".npy")]
        if self.held_out is None:
            held = [file for file in found if any(word in file.stem.lower() for word in HELD_OUT)]
        else:
            held = find_files(Path(self.held_out).expanduser())
        train = [file for file in found if file not in held]
        if not train:
            raise ValueError(f"{self.words} has no shard (.bin or .npy) to train on")
        if not held:
            raise ValueError(
                f"{self.words} has no shard with val or test in its name; write data.held_out=FILE or 'GLOB'"
            )
        test = [file for file in held if "test" in file.stem.lower()] or held
        return {"train": train, "val": [file for file in held if file not in test] or test, "test": test}

    def _array(self, file: Path) -> np.ndarray:
        """The ids in a shard, on disk."""
        with open(file, "rb") as opened:
            head = opened.read(12)
        if head.startswith(NUMPY):
            array = np.load(file, mmap_mode="r")
            if array.ndim != 1 or array.dtype.name not in KINDS:
                raise ValueError(f"{file} holds {array.dtype.name} {array.shape}, not a row of {' or '.join(KINDS)}")
            return array
        words, size = np.frombuffer(head.ljust(12, b"\0"), np.int32), file.stat().st_size
        kind, start = self.dtype or ("uint16" if self.vocab_size <= 1 << 16 else "uint32"), 0
        if header := int(words[0]) in HEADERS and size >= HEADER:
            kind, start = HEADERS[int(words[0])], HEADER
        count, rest = divmod(size - start, np.dtype(kind).itemsize)
        if rest or (header and count != words[2]):
            raise ValueError(f"{file} is cut short: its {size:,} bytes are not the {kind} that it should hold")
        return np.memmap(file, kind, "r", offset=start)

    def _index(self, folder: Path, files: dict[str, list[Path]], arrays: dict[Path, np.ndarray]) -> dict[str, Any]:
        """Read all shards: check the ids, and write the index."""
        for file, array in arrays.items():
            most = max((int(array[i : i + BLOCK].max()) for i in range(0, len(array), BLOCK)), default=0)
            if most >= self.vocab_size:
                why = f"its ids go up to {most:,}, beyond data.vocab_size={self.vocab_size}"
                raise ValueError(f"{file}: {why}; it is of another vocabulary, or data.dtype is another")
        held = Shards(arrays[file] for file in files["test"])
        half = len(held) // 2
        if self.end is not None and files["val"] == files["test"]:  # the end of a document, at best
            half = int(next(iter(np.flatnonzero(held[half:] == self.end)), -1)) + 1 + half
        folder.mkdir(parents=True, exist_ok=True)
        index: dict[str, Any] = {"half": half, "files": {}, "source": {}}
        splits = _splits(files, arrays, half)
        for split, shards in splits.items():
            known: Any = [] if self.end is None or split == "train" else np.flatnonzero(shards[:] == self.end) + 1
            name, ends = f"{split}.ends.npy", np.unique(np.append(np.asarray(known, int), len(shards)))
            np.save(folder / name, ends)
        index["yardsticks"] = yardsticks(counted(splits["train"]), splits["test"][:], self.vocab_size)
        for file in arrays:
            index["source"][os.path.abspath(file)] = facts_of(file)
        index["files"] = {f"{split}.ends.npy": facts_of(folder / f"{split}.ends.npy") for split in SPLITS}
        content = [[index["source"][os.path.abspath(file)][2] for file in found] for found in files.values()]
        index["fingerprint"] = hashlib.sha256(json.dumps([content, half, self.vocab_size]).encode()).hexdigest()[:32]
        write_json(folder / "index.json", index)
        return index


def _splits(files: dict[str, list[Path]], arrays: dict[Path, np.ndarray], half: int) -> dict[str, Shards]:
    found = {split: Shards(arrays[file] for file in those) for split, those in files.items()}
    if files["val"] == files["test"]:
        whole = found["test"]
        found |= {"val": whole.part(0, half), "test": whole.part(half, len(whole))}
    return found
