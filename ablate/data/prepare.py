"""Large corpora: read twice in bounded memory by a process per core, into token shards with an index.

Each step leaves a file per piece, so that a killed preparation goes on at the next piece.  Documents are held out by a
hash of their content; a training document that shares more than `SHARE` of its shingles with a held-out one is dropped.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ablate.config.errors import Corrupt
from ablate.config.import_path import program
from ablate.data.corpus import SPLITS, Corpus, cache_folder, exclusive, load_corpus, yardsticks
from ablate.data.documents import Document, Files, Given, Part, Source
from ablate.data.rows import Rows
from ablate.data.split import COMMON, SHARE, shingles
from ablate.data.tokenizer import SEPARATOR, checked_size, codec, learn, units
from ablate.formatting import duration
from ablate.formatting.streams import say
from ablate.results.atomic import digest, read_json, write_atomic, write_json

LARGE = 64 << 20  # bytes of a source from which it is prepared here; smaller ones are split by clusters
HELD_OUT = 10_000_000  # tokens of a held-out split, about
SAMPLE = 100_000_000  # bytes of training text that a vocabulary is learned from
COUNTED = 1 << 27  # training tokens that yardsticks are counted on
PER_TOKEN = {"byte": 1, "char": 1}  # bytes of text, for the size of held-out splits; 4 for other tokenizers
FORMAT = 1  # raise it when the tokens of the same documents change
UNABLE = "{} cannot be prepared in {} ({}); what is done is kept, and the same command goes on from there"
EVERY = 10.0  # seconds between lines on the progress


class Shards:
    """Arrays of token ids that are read as one (N,)."""

    def __init__(self, parts: Iterable[np.ndarray]):
        self.parts = list(parts)
        self.starts = np.cumsum([0, *map(len, self.parts)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, at: Any) -> np.ndarray:
        """The ids at places: a slice, or an array (..., T) whose last axis counts up by one."""
        if isinstance(at, slice):
            return self.span(*at.indices(len(self))[:2])
        rows = [self.span(int(row[0]), int(row[0]) + len(row)) for row in at.reshape(-1, at.shape[-1])]
        return np.stack(rows).reshape(at.shape)

    def part(self, start: int, stop: int) -> "Shards":
        """The ids from `start` to before `stop`, without reading them."""
        first, last = np.searchsorted(self.starts[:-1], [start, max(start, stop - 1)], side="right") - 1
        return Shards(
            self.parts[i][max(0, start - self.starts[i]) : stop - self.starts[i]] for i in range(first, last + 1)
        )

    def span(self, start: int, stop: int) -> np.ndarray:
        """The ids from `start` to before `stop`."""
        found = self.part(start, stop).parts
        return found[0] if len(found) == 1 else np.concatenate(found)


def corpus_of(source: Source | Given, tokenizer: str, vocab_size: int | None) -> Corpus:
    """The corpus of these documents, from the cache or newly made.  A large one is prepared in shards; if sizes and
    times of its files are those of its index, nothing else is read.  Raises ValueError."""
    size = checked_size(tokenizer, vocab_size)
    if isinstance(source, Given):
        return load_corpus(source.found, tokenizer, vocab_size)
    whole = source.absolute()
    recipe: dict[str, Any] = {"format": FORMAT, "kind": type(whole).__name__, "tokenizer": tokenizer}
    recipe |= {"source": dataclasses.asdict(whole), "size": size, "held_out": HELD_OUT}  # type: ignore[call-overload]
    if tokenizer.endswith(".json"):
        recipe["learned"] = digest(learn(tokenizer, None, ()).encode())
    folder = cache_folder() / f"corpus-{digest(json.dumps(recipe, sort_keys=True).encode())[:32]}"
    if (index := current(folder, source.listed())) is None:
        if source.size() < LARGE:
            parts = [part for piece in source.pieces() for part in piece]
            documents = [document for part in parts for document in source.documents(part, cut=False)]
            if not documents:
                raise ValueError(f"{source.words} is empty; name what has text in it")
            return load_corpus(documents, tokenizer, vocab_size)
        with exclusive(folder.with_suffix(".lock")):
            if (index := current(folder, source.listed())) is None:
                try:
                    index = _make(folder, whole, recipe)
                except OSError as error:  # a full disk
                    raise ValueError(UNABLE.format(source.words, folder.parent, error.strerror)) from None
    return _opened(folder, index)


def current(folder: Path, files: Iterable[Path] | None, every: bool = False) -> dict[str, Any] | None:
    """The index of a prepared corpus, None if there is none or its files or the source's have changed.  Where only
    times differ, or with `every`, contents decide, and the index is renewed.  `files` is None if they are unknown."""
    try:
        index = read_json(folder / "index.json")
        renewed = False
        expected = {str(file): entry for file, entry in index["source"].items()}
        if files is not None and expected.keys() != {os.path.abspath(file) for file in files}:
            return None
        for name, entry in [*expected.items(), *((folder / name, entry) for name, entry in index["files"].items())]:
            status = os.stat(name)
            if status.st_size != entry[0]:
                return None
            if status.st_mtime_ns != entry[1] or every:
                if digest_of(Path(name)) != entry[2]:
                    return None
                renewed, entry[1] = renewed or status.st_mtime_ns != entry[1], status.st_mtime_ns
    except (FileNotFoundError, Corrupt, LookupError, TypeError):
        return None
    if renewed:
        with contextlib.suppress(OSError):  # a cache that may only be read
            write_json(folder / "index.json", index)
    return index


def digest_of(file: Path) -> str:
    """The SHA-256 of a file."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def facts_of(file: Path, digest: str | None = None) -> list[Any]:
    """The size, the time and the digest of a file, as an index has them."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns, digest or digest_of(file)]


def _opened(folder: Path, index: dict[str, Any]) -> Corpus:
    kind = np.dtype(index["dtype"])
    arrays = {
        split: Shards(np.memmap(folder / name, kind, "r") for name in names) for split, names in index["shards"].items()
    }
    return Corpus(
        fingerprint=index["fingerprint"],
        vocab=index["vocab"],
        tokens=arrays,
        names={"train": []} | json.loads((folder / "names.json").read_text(encoding="utf-8")),
        ends={split: np.load(folder / f"{split}.ends.npy", mmap_mode="r") for split in SPLITS},
        by_document=True,
        yardsticks=index["yardsticks"],
        bytes_per_token=index["bytes_per_token"],
        tokenizer=index["tokenizer"],
        state=(folder / "learned.txt").read_text(encoding="utf-8"),
        unknown=index["unknown"],
        notes=index["notes"],
        folder=folder,
    )


class Held(NamedTuple):
    """The shingles of held-out documents: sorted hashes, whose document each is, and how many each document has."""

    hashes: np.ndarray
    owners: np.ndarray
    sizes: np.ndarray

    def leaks(self, text: bytes) -> bool:
        """Whether a text and one of them share more than `SHARE` of the shingles of the one that has fewer."""
        own = shingles(text)
        first = np.searchsorted(self.hashes, own)
        inside = first < len(self.hashes)
        found = first[inside][self.hashes[first[inside]] == own[inside]]
        if not len(found):
            return False
        last = np.searchsorted(self.hashes, self.hashes[found], side="right")
        owners = np.concatenate([self.owners[a:b] for a, b in zip(found.tolist(), last.tolist(), strict=True)])
        which, count = np.unique(owners, return_counts=True)
        return bool((count > SHARE * np.minimum(self.sizes[which], len(own))).any())


def held_of(texts: Iterable[bytes]) -> Held:
    """The shingles of these documents, without those of more than `COMMON` documents."""
    sets = [shingles(text) for text in texts]
    hashes = np.concatenate([np.empty(0, np.uint64), *sets])
    owners = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    count = np.unique(hashes, return_counts=True)[1]
    rare = np.repeat(count <= COMMON, count)
    return Held(hashes[rare], owners[rare], np.array([len(each) for each in sets]))


def _make(folder: Path, source: Source, recipe: dict[str, Any]) -> dict[str, Any]:
    """Prepare a corpus, or go on with a preparation that was killed; returns its index."""
    files = {str(file): [status.st_size, status.st_mtime_ns] for file in source.files() if (status := file.stat())}
    pieces = source.pieces()
    share = min(0.05, HELD_OUT * PER_TOKEN.get(recipe["tokenizer"], 4) / source.size())
    job = recipe | {"files": files, "pieces": [[list(part) for part in piece] for piece in pieces], "share": share}
    making = folder.with_name(f"{folder.name}.making")
    try:
        if read_json(making / "job.json") != job:
            raise Corrupt("of another preparation")
    except (FileNotFoundError, Corrupt):
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        write_json(making / "job.json", job)
    _in_workers(making, source, "scan", len(pieces))
    if not (making / "held.json").exists():
        _hold_out(making, source, job)
    _in_workers(making, source, "encode", len(pieces))
    index = _index(making, job)
    write_json(making / "index.json", index)
    shutil.rmtree(folder, ignore_errors=True)
    making.rename(folder)
    return index


def place(text: bytes, share: float) -> str:
    """The split of a document, by a hash of its content; `share` of the documents are in val, and as many in test."""
    # Hashed twice, as for small corpora, so that with a share of .05 a document is in the same split there.
    at = int.from_bytes(hashlib.sha256(hashlib.sha256(text).digest()).digest()[:8], "big") / 2**64
    return "train" if at < 1 - 2 * share else "val" if at < 1 - share else "test"


def _scan(making: Path, job: dict[str, Any], source: Source, i: int) -> None:
    """Read a piece: write its held-out documents, and the letters that occur in it."""
    held: list[tuple[str, str, int]] = []
    texts, letters = [], set[str]()
    for document in _documents(source, job, i):
        text = units(document.name, document.text, job["tokenizer"])
        letters.update(text if job["tokenizer"] == "char" else ())
        if (split := place(document.text, job["share"])) != "train":
            held.append((split, document.name, len(document.text)))
            texts.append(document.text)
    write_atomic(making / f"scan-{i}.held", b"".join(texts))
    digests = {file: digest_of(Path(file)) for file in list(job["files"])[i :: len(job["pieces"])]}
    write_json(making / f"scan-{i}.json", {"held": held, "letters": "".join(sorted(letters)), "digests": digests})


def _documents(source: Source, job: dict[str, Any], i: int) -> Iterator[Document]:
    return (document for part in job["pieces"][i] for document in source.documents(Part(*part)))


def _hold_out(making: Path, source: Source, job: dict[str, Any]) -> None:
    """Collect and encode the held-out documents; learn the vocabulary from training documents."""
    found: dict[str, list[Document]] = {"val": [], "test": []}
    letters = {SEPARATOR}
    for i in range(len(job["pieces"])):
        scan, texts, at = read_json(making / f"scan-{i}.json"), (making / f"scan-{i}.held").read_bytes(), 0
        letters.update(scan["letters"])
        for split, name, length in scan["held"]:
            found[split].append(Document(name, texts[at : at + length]))
            at += length
    if not found["val"] or not found["test"]:
        raise ValueError(f"{source.words} has too few documents: none is held out for validation or none for the test")
    test = held_of(document.text for document in found["test"])
    found["val"] = [document for document in found["val"] if not test.leaks(document.text)]
    held = held_of(document.text for split in ("val", "test") for document in found[split])
    for name, array in held._asdict().items():
        np.save(making / f"held.{name}.npy", array)
    state = learn(job["tokenizer"], job["size"], _sample(source, job, held), ["".join(sorted(letters))])
    (making / "learned.txt").write_text(state, encoding="utf-8")
    encode = codec(job["tokenizer"], state).encode
    sizes = {}
    for split, documents in found.items():
        ids = [encode(_closed(document, job["tokenizer"])) for document in documents]
        np.concatenate(ids).tofile(making / f"{split}.bin")
        np.save(making / f"{split}.ends.npy", np.cumsum([len(each) for each in ids]))
        sizes[split] = sum(len(document.text) + 1 for document in documents)
    names = {split: [document.name for document in documents] for split, documents in found.items()}
    (making / "names.json").write_text(json.dumps(names), encoding="utf-8")
    write_json(making / "held.json", {"bytes": sizes})


def _sample(source: Source, job: dict[str, Any], held: Held) -> Iterator[str]:
    """Training text from every piece, `SAMPLE` bytes in all."""
    for i in range(len(job["pieces"])):
        left = SAMPLE / len(job["pieces"])
        for document in _documents(source, job, i):
            if left <= 0:
                break
            if place(document.text, job["share"]) == "train" and not held.leaks(document.text):
                left -= len(document.text)
                yield _closed(document, job["tokenizer"])


def _closed(document: Document, tokenizer: str) -> Any:
    text = units(document.name, document.text, tokenizer)
    return text + (SEPARATOR.encode() if tokenizer == "byte" else SEPARATOR)


def _encode(making: Path, job: dict[str, Any], source: Source, i: int) -> None:
    """Write the tokens of a piece's training documents."""
    held = Held(*(np.load(making / f"held.{name}.npy", mmap_mode="r") for name in Held._fields))
    encode = codec(job["tokenizer"], (making / "learned.txt").read_text(encoding="utf-8")).encode
    ends, size, dropped, unknown, temporary = [0], 0, 0, 0, making / f".train-{i}.bin"
    total = hashlib.sha256()
    with open(temporary, "wb") as file:
        for document in _documents(source, job, i):
            if place(document.text, job["share"]) != "train":
                continue
            if held.leaks(document.text):
                dropped += 1
                continue
            ids = encode(_closed(document, job["tokenizer"]))
            total.update(ids.tobytes())
            file.write(ids.tobytes())
            ends.append(ends[-1] + len(ids))
            size += len(document.text) + 1
            unknown += int((ids == 0).sum()) if job["tokenizer"] == "word" else 0
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(making / f"train-{i}.bin")
    np.save(making / f"train-{i}.ends.npy", np.array(ends[1:], np.int64))
    facts = {"tokens": ends[-1], "documents": len(ends) - 1, "bytes": size, "dropped": dropped, "unknown": unknown}
    write_json(making / f"encode-{i}.json", facts | {"digest": total.hexdigest()})


def _index(making: Path, job: dict[str, Any]) -> dict[str, Any]:
    """The index of all files, with the corpus's yardsticks; what only the making needed is removed."""
    count, state = len(job["pieces"]), (making / "learned.txt").read_text(encoding="utf-8")
    vocab, encode = codec(job["tokenizer"], state)
    dtype = encode(SEPARATOR.encode() if job["tokenizer"] == "byte" else SEPARATOR).dtype
    done = [read_json(making / f"encode-{i}.json") for i in range(count)]
    kept = [i for i in range(count) if done[i]["tokens"]]
    ends = [np.load(making / f"train-{i}.ends.npy") for i in range(count)]
    starts = np.cumsum([0, *(each["tokens"] for each in done)])
    np.save(making / "train.ends.npy", np.concatenate([end + start for end, start in zip(ends, starts, strict=False)]))
    shards = {"train": [f"train-{i}.bin" for i in kept], "val": ["val.bin"], "test": ["test.bin"]}
    arrays = {
        split: Shards(np.memmap(making / name, dtype, "r") for name in names if (making / name).stat().st_size)
        for split, names in shards.items()
    }
    sizes = read_json(making / "held.json")["bytes"] | {"train": sum(each["bytes"] for each in done)}
    lossy, totals = job["tokenizer"] == "word", {split: len(array) for split, array in arrays.items()}
    unknown = {split: float((arrays[split][:] == 0).mean()) for split in ("val", "test") if lossy and totals[split]}
    index: dict[str, Any] = {"tokenizer": job["tokenizer"], "vocab": vocab, "dtype": dtype.name, "shards": shards}
    index["yardsticks"] = yardsticks(counted(arrays["train"]), arrays["test"][:], vocab)
    index["bytes_per_token"] = {} if lossy else {split: sizes[split] / n for split, n in totals.items() if n}
    total = {name: sum(each[name] for each in done) for name in ("documents", "dropped", "unknown")}
    index["unknown"] = {"train": total["unknown"] / max(1, totals["train"])} | unknown if lossy else {}
    which = f"{total['dropped']:,} of {total['dropped'] + total['documents']:,} training documents are left out"
    index["notes"] = [f"{which}: they share over a fifth of their text with a held-out one"] * bool(total["dropped"])
    scans = [read_json(making / f"scan-{i}.json")["digests"] for i in range(count)]
    index["source"] = {file: [*job["files"][file], found] for scan in scans for file, found in scan.items()}
    names = [*(name for found in shards.values() for name in found), *(f"{split}.ends.npy" for split in SPLITS)]
    trained = {f"train-{i}.bin": done[i]["digest"] for i in kept}
    every = [*names, "names.json", "learned.txt"]
    index["files"] = {name: facts_of(making / name, trained.get(name)) for name in every}
    content = [FORMAT, vocab, dtype.name, *(index["files"][name][2] for name in [*names, "learned.txt"])]
    index["fingerprint"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    for file in making.iterdir():
        if file.name not in index["files"]:
            file.unlink()
    return index


def counted(train: Shards) -> Shards:
    """The first tokens of each shard, `COUNTED` in all."""
    share = min(1.0, COUNTED / max(1, len(train)))
    return Shards(part[: math.ceil(share * len(part))] for part in train.parts)


TITLES = {"scan": "reading", "encode": "tokenising"}
STEPS: dict[str, Callable[[Path, dict[str, Any], Source, int], None]] = {"scan": _scan, "encode": _encode}


def cores() -> int:
    """The number of processes that prepare a corpus."""
    return len(os.sched_getaffinity(0))


def _in_workers(making: Path, source: Source, step: str, pieces: int) -> None:
    """Do a step for all pieces, in a process per core.  Raises ValueError with the first error of one."""
    left = [i for i in range(pieces) if not (making / f"{step}-{i}.json").exists()]
    count = min(cores(), len(left))
    if count == 1:
        _work(making, source, step, left)
    command = [*program("ablate.data.prepare"), str(making), step]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    workers = [
        subprocess.Popen([*command, *map(str, left[n::count])], **streams) for n in range(count if count > 1 else 0)
    ]
    began = last = time.monotonic()
    try:
        while any(worker.poll() is None for worker in workers) and not any(worker.poll() for worker in workers):
            time.sleep(0.05)
            if time.monotonic() - last > EVERY:
                last = time.monotonic()
                done = sum((making / f"{step}-{i}.json").exists() for i in left)
                rest = f", {duration((last - began) * (len(left) - done) / done)} left" if done else ""
                say(f"{source.title}: {TITLES[step]}, {pieces - len(left) + done} of {pieces} pieces{rest}")
        for worker in workers:
            if code := worker.wait():
                why = worker.stdout.read().strip() if worker.stdout else ""
                raise ValueError(why or f"a process that prepared the corpus ended with code {code}")
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _work(making: Path, source: Source, step: str, pieces: Iterable[int]) -> None:
    job = read_json(making / "job.json")
    for i in pieces:
        STEPS[step](making, job, source, i)


def main() -> None:
    """A worker: does the pieces that it was given, until its parent, which holds its standard input, is gone."""
    making = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    job = read_json(making / "job.json")
    source = {"Files": Files, "Rows": Rows}[job["kind"]](**job["source"])
    try:
        _work(making, source, sys.argv[2], map(int, sys.argv[3:]))
    except ValueError as error:
        sys.exit(print(error) or 3)
    except OSError as error:
        sys.exit(print(UNABLE.format(source.words, making.parent, error.strerror)) or 3)
