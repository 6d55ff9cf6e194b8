"""Large corpora: read twice in bounded memory by a process per core, into token shards with an index.

Each step leaves a file per piece, so that a killed preparation goes on at the next piece.  Documents are held out by a
hash of their content; a training document that shares more than `SHARE` of its shingles with a held-out one is dropped.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import mmap
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
from ablate.data.corpus import SPLITS, Corpus, cache_folder, load_corpus, making, unwritable, yardsticks
from ablate.data.documents import Document, Files, Given, Part
from ablate.data.rows import Rows
from ablate.data.split import BOILERPLATE, COMMON, SHARE, shingles
from ablate.data.tokenizer import SEPARATOR, checked_size, codec, learn, units
from ablate.formatting import duration
from ablate.results.atomic import digest, read_json, write_atomic, write_json

LARGE = 64 << 20  # bytes of a source from which it is prepared here; smaller ones are split by clusters
HELD_OUT = 10_000_000  # tokens of a held-out split, about
SAMPLE = 100_000_000  # bytes of training text that a vocabulary is learned from
COUNTED = 1 << 27  # training tokens that yardsticks are counted on
PER_TOKEN = {"byte": 1, "char": 1}  # bytes of text, for the size of held-out splits; 4 for other tokenizers
FORMAT = 2  # raise it when the tokens of the same documents change
EVERY = 10.0  # seconds between lines on the progress

Source = Files | Rows


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
        found = np.stack(rows).reshape(at.shape)
        for part in self.parts:  # pages that stay mapped count as this process's memory, in the end all of a file
            if isinstance(part, np.memmap):
                part._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return found

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
    recipe |= {"source": dataclasses.asdict(whole), "size": size, "held_out": HELD_OUT}
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
        with making(folder):
            if (index := current(folder, source.listed())) is None:
                index = _make(folder, whole, recipe)
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
            size, changed = stamp(name)
            if size != entry[0]:
                return None
            if changed != entry[1] or every:
                if digest_of(Path(name)) != entry[2]:
                    return None
                renewed, entry[1] = renewed or changed != entry[1], changed
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


def stamp(file: str | Path) -> list[int]:
    """The size and the time of a file."""
    status = os.stat(file)
    return [status.st_size, status.st_mtime_ns]


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
    """The shingles of held-out documents: sorted hashes, whose document each is, how many each document has, and the
    sorted hashes of boilerplate, which is in more than `COMMON` of them."""

    hashes: np.ndarray
    owners: np.ndarray
    sizes: np.ndarray
    boilerplate: np.ndarray

    def leaks(self, text: bytes) -> bool:
        """Whether a text and one of them share more than `SHARE` of the shingles of the one that has fewer, or more
        than `BOILERPLATE` of the text is boilerplate."""
        own = shingles(text)
        if len(_places(own, self.boilerplate)) > BOILERPLATE * len(own):
            return True
        found = _places(own, self.hashes)
        if not len(found):
            return False
        last = np.searchsorted(self.hashes, self.hashes[found], side="right")
        owners = np.concatenate([self.owners[a:b] for a, b in zip(found.tolist(), last.tolist(), strict=True)])
        which, count = np.unique(owners, return_counts=True)
        return bool((count > SHARE * np.minimum(self.sizes[which], len(own))).any())


def _places(hashes: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Where those of the hashes that are among sorted ones first occur there."""
    first = np.searchsorted(among, hashes)
    inside = first < len(among)
    found: np.ndarray = first[inside][among[first[inside]] == hashes[inside]]
    return found


def held_of(texts: Iterable[bytes]) -> Held:
    """The shingles of these documents."""
    sets = [shingles(text) for text in texts]
    sizes = np.array([len(each) for each in sets], int)
    hashes = np.concatenate([np.empty(0, np.uint64), *sets])
    del sets  # held-out text has tens of millions of them
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)[order]
    count = np.diff(np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1], True])) if len(hashes) else order
    rare = np.repeat(count <= COMMON, count)
    return Held(hashes[rare], owners[rare], sizes, np.unique(hashes[~rare]))


def _make(folder: Path, source: Source, recipe: dict[str, Any]) -> dict[str, Any]:
    """Prepare a corpus, or go on with a preparation that was killed; returns its index."""
    files = {str(file): stamp(file) for file in source.files()}
    pieces = source.pieces()
    share = min(0.05, HELD_OUT * PER_TOKEN.get(recipe["tokenizer"], 4) / source.size())
    job = recipe | {"files": files, "pieces": [[list(part) for part in piece] for piece in pieces], "share": share}
    work = folder.with_name(f"{folder.name}.making")
    if (index := current(work, source.files())) is None:  # otherwise killed after its last step
        if _written(work / "job.json") != job:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            write_json(work / "job.json", job)
        _in_workers(work, source, "scan", len(pieces))
        if _written(work / "held.json") is None:
            _hold_out(work, source, job)
        _in_workers(work, source, "encode", len(pieces))
        index = _index(work, job)
        if any(stamp(file) != known for file, known in files.items()):
            raise ValueError(f"{source.words} has changed while it was prepared; prepare it again")
        write_json(work / "index.json", index)
    for file in work.iterdir():  # what only the making needed
        if file.name not in (*index["files"], "index.json"):
            file.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)
    return index


def _written(file: Path) -> dict[str, Any] | None:
    """What a step wrote; None if it has not, or not whole."""
    try:
        return read_json(file)
    except (FileNotFoundError, Corrupt):
        return None


def place(text: bytes, share: float) -> str:
    """The split of a document, by a hash of its content; `share` of the documents are in val, and as many in test."""
    # Hashed twice, as for small corpora, so that with a share of .05 a document is in the same split there.
    at = int.from_bytes(hashlib.sha256(hashlib.sha256(text).digest()).digest()[:8], "big") / 2**64
    return "train" if at < 1 - 2 * share else "val" if at < 1 - share else "test"


def _scan(work: Path, job: dict[str, Any], source: Source, i: int) -> None:
    """Read a piece: write its held-out documents, and the letters that occur in it."""
    held: list[tuple[str, str, int]] = []
    texts, letters = [], set[str]()
    for document in _documents(source, job, i):
        text = units(document.name, document.text, job["tokenizer"])
        letters.update(text if job["tokenizer"] == "char" else ())
        if (split := place(document.text, job["share"])) != "train":
            held.append((split, document.name, len(document.text)))
            texts.append(document.text)
    write_atomic(work / f"scan-{i}.held", b"".join(texts))
    digests = {file: digest_of(Path(file)) for file in list(job["files"])[i :: len(job["pieces"])]}
    write_json(work / f"scan-{i}.json", {"held": held, "letters": "".join(sorted(letters)), "digests": digests})


def _documents(source: Source, job: dict[str, Any], i: int) -> Iterator[Document]:
    return (document for part in job["pieces"][i] for document in source.documents(Part(*part)))


def _hold_out(work: Path, source: Source, job: dict[str, Any]) -> None:
    """Collect and encode the held-out documents; learn the vocabulary from training documents."""
    found: dict[str, list[Document]] = {"val": [], "test": []}
    letters = {SEPARATOR}
    for i in range(len(job["pieces"])):
        scan, texts, at = read_json(work / f"scan-{i}.json"), (work / f"scan-{i}.held").read_bytes(), 0
        letters.update(scan["letters"])
        for split, name, length in scan["held"]:
            found[split].append(Document(name, texts[at : at + length]))
            at += length
    test = held_of(document.text for document in found["test"])
    found["val"] = [document for document in found["val"] if not test.leaks(document.text)]
    if not found["val"] or not found["test"]:
        why = "none is held out for validation or none for the test"
        raise ValueError(f"{source.words} has too few documents: {why}; cut them into more, as text files are")
    held = held_of(document.text for split in ("val", "test") for document in found[split])
    for name, array in held._asdict().items():
        np.save(work / f"held.{name}.npy", array)
    state = learn(job["tokenizer"], job["size"], _sample(source, job, held), ["".join(sorted(letters))])
    (work / "learned.txt").write_text(state, encoding="utf-8")
    encode = codec(job["tokenizer"], state).encode
    sizes = {}
    for split, documents in found.items():
        ids = [encode(_closed(document, job["tokenizer"])) for document in documents]
        np.concatenate(ids).tofile(work / f"{split}.bin")
        np.save(work / f"{split}.ends.npy", np.cumsum([len(each) for each in ids]))
        sizes[split] = sum(len(document.text) + 1 for document in documents)
    names = {split: [document.name for document in documents] for split, documents in found.items()}
    (work / "names.json").write_text(json.dumps(names), encoding="utf-8")
    write_json(work / "held.json", {"bytes": sizes})


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


def _encode(work: Path, job: dict[str, Any], source: Source, i: int) -> None:
    """Write the tokens of a piece's training documents."""
    held = Held(*(np.asarray(np.load(work / f"held.{name}.npy", mmap_mode="r")) for name in Held._fields))
    encode = codec(job["tokenizer"], (work / "learned.txt").read_text(encoding="utf-8")).encode
    ends, size, dropped, unknown, temporary = [0], 0, 0, 0, work / f".train-{i}.bin"
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
    temporary.rename(work / f"train-{i}.bin")
    np.save(work / f"train-{i}.ends.npy", np.array(ends[1:], np.int64))
    facts = {"tokens": ends[-1], "documents": len(ends) - 1, "bytes": size, "dropped": dropped, "unknown": unknown}
    write_json(work / f"encode-{i}.json", facts | {"digest": total.hexdigest()})


def _index(work: Path, job: dict[str, Any]) -> dict[str, Any]:
    """The index of all files, with the corpus's yardsticks."""
    count, state = len(job["pieces"]), (work / "learned.txt").read_text(encoding="utf-8")
    vocab, encode = codec(job["tokenizer"], state)
    dtype = encode(SEPARATOR.encode() if job["tokenizer"] == "byte" else SEPARATOR).dtype
    done = [read_json(work / f"encode-{i}.json") for i in range(count)]
    kept = [i for i in range(count) if done[i]["tokens"]]
    ends = [np.load(work / f"train-{i}.ends.npy") for i in range(count)]
    starts = np.cumsum([0, *(each["tokens"] for each in done)])
    np.save(work / "train.ends.npy", np.concatenate([end + start for end, start in zip(ends, starts, strict=False)]))
    shards = {"train": [f"train-{i}.bin" for i in kept], "val": ["val.bin"], "test": ["test.bin"]}
    arrays = {
        split: Shards(np.memmap(work / name, dtype, "r") for name in names if (work / name).stat().st_size)
        for split, names in shards.items()
    }
    sizes = read_json(work / "held.json")["bytes"] | {"train": sum(each["bytes"] for each in done)}
    lossy, totals = job["tokenizer"] == "word", {split: len(array) for split, array in arrays.items()}
    unknown = {split: float((arrays[split][:] == 0).mean()) for split in ("val", "test") if lossy and totals[split]}
    index: dict[str, Any] = {"tokenizer": job["tokenizer"], "vocab": vocab, "dtype": dtype.name, "shards": shards}
    index["yardsticks"] = yardsticks(counted(arrays["train"]), arrays["test"][:], vocab)
    index["bytes_per_token"] = {} if lossy else {split: sizes[split] / n for split, n in totals.items() if n}
    total = {name: sum(each[name] for each in done) for name in ("documents", "dropped", "unknown")}
    index["unknown"] = {"train": total["unknown"] / max(1, totals["train"])} | unknown if lossy else {}
    which = f"{total['dropped']:,} of {total['dropped'] + total['documents']:,} training documents are left out"
    index["notes"] = [f"{which}: they share over a fifth of their text with a held-out one"] * bool(total["dropped"])
    scans = [read_json(work / f"scan-{i}.json")["digests"] for i in range(count)]
    index["source"] = {file: [*job["files"][file], found] for scan in scans for file, found in scan.items()}
    names = [*(name for found in shards.values() for name in found), *(f"{split}.ends.npy" for split in SPLITS)]
    trained = {f"train-{i}.bin": done[i]["digest"] for i in kept}
    every = [*names, "names.json", "learned.txt"]
    index["files"] = {name: [*stamp(work / name), trained.get(name) or digest_of(work / name)] for name in every}
    content = [FORMAT, vocab, dtype.name, *(index["files"][name][2] for name in [*names, "learned.txt"])]
    index["fingerprint"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    return index


def counted(train: Shards) -> Shards:
    """The first tokens of each shard, `COUNTED` in all."""
    share = min(1.0, COUNTED / max(1, len(train)))
    return Shards(part[: math.ceil(share * len(part))] for part in train.parts)


TITLES = {"scan": "reading", "encode": "tokenising"}
STEPS: dict[str, Callable[[Path, dict[str, Any], Source, int], None]] = {"scan": _scan, "encode": _encode}


class Progress:
    """A line on what is done every `EVERY` seconds, with the time left."""

    def __init__(self, words: str, pieces: int, done: int = 0):
        self.words, self.pieces, self.before = words, pieces, done
        self.began = self.last = time.monotonic()

    def show(self, count: Callable[[], int]) -> None:
        """Say how many pieces are done, if it is time."""
        if time.monotonic() - self.last > EVERY:
            self.last, done = time.monotonic(), count()
            each = (self.last - self.began) / max(1, done - self.before)
            rest = f", {duration(each * (self.pieces - done))} left" if done > self.before else ""
            print(f"ablate: {self.words}, {done} of {self.pieces} pieces{rest}", file=sys.stderr, flush=True)


def cores() -> int:
    """The number of processes that prepare a corpus."""
    return len(os.sched_getaffinity(0))


def _in_workers(work: Path, source: Source, step: str, pieces: int) -> None:
    """Do a step for all pieces, in a process per core.  Raises ValueError with the first error of one."""
    left = [i for i in range(pieces) if _written(work / f"{step}-{i}.json") is None]
    count = min(cores(), len(left))
    progress = Progress(f"{source.title}: {TITLES[step]}", pieces, pieces - len(left))

    def done() -> int:
        return sum((work / f"{step}-{i}.json").exists() for i in range(pieces))

    for i in left if count == 1 else []:
        _work(work, source, step, [i])
        progress.show(done)
    command = [*program("ablate.data.prepare"), str(work), step]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    workers = [
        subprocess.Popen([*command, *map(str, left[n::count])], **streams) for n in range(count if count > 1 else 0)
    ]
    try:
        while (codes := [worker.poll() for worker in workers]).count(None) and not any(codes):
            time.sleep(0.05)
            progress.show(done)
        for worker in workers:
            if code := worker.poll():
                why = worker.stdout.read().strip() if worker.stdout else ""
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                raise ValueError(why or f"a process that prepared the corpus {how}; the same command goes on")
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _work(work: Path, source: Source, step: str, pieces: Iterable[int]) -> None:
    job = read_json(work / "job.json")
    for i in pieces:
        STEPS[step](work, job, source, i)


def main() -> None:
    """A worker: does the pieces that it was given, until its parent, which holds its standard input, is gone."""
    work = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    job = read_json(work / "job.json")
    source = {"Files": Files, "Rows": Rows}[job["kind"]](**job["source"])
    try:
        _work(work, source, sys.argv[2], map(int, sys.argv[3:]))
    except ValueError as error:
        sys.exit(print(error) or 3)
    except OSError as error:
        sys.exit(print(unwritable(work, error)) or 3)
