"""Large corpora: read twice in bounded memory by a process per core, into token shards with an index.

Each step leaves a file per piece, so that a killed preparation goes on at the next piece.  Documents are held out by a
hash of their content; a training document that shares more than `SHARE` of its shingles with a held-out one is dropped.
"""

import dataclasses
import hashlib
import json
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
from ablate.config.import_path import cores, program
from ablate.data.corpus import Corpus, Shards, cached, current, entry, facts, folder_of, load_corpus, stamp, unwritable
from ablate.data.documents import Document, Files, Given, Part
from ablate.data.rows import Rows
from ablate.data.split import BOILERPLATE, COMMON, SHARE, place, shingles
from ablate.data.tokenizer import SEPARATOR, checked_size, codec, learn, units
from ablate.formatting import duration
from ablate.results.atomic import digest, read_json, write_atomic, write_json

LARGE = 64 << 20  # bytes of a source from which it is prepared here; smaller ones are split by clusters
HELD_OUT = 10_000_000  # tokens of a held-out split, about
SAMPLE = 100_000_000  # bytes of training text that a vocabulary is learned from
PER_TOKEN = {"byte": 1, "char": 1}  # bytes of text, for the size of held-out splits; 4 for other tokenizers
FORMAT = 2  # raise it when the tokens of the same documents change
EVERY = 10.0  # seconds between lines on the progress

Source = Files | Rows


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
    folder = folder_of(recipe)
    files = source.listed()
    index = current(folder, files)
    if index is None and source.size() < LARGE:
        parts = [part for piece in source.pieces() for part in piece]
        documents = [document for part in parts for document in source.documents(part, cut=False)]
        if not documents:
            raise ValueError(f"{source.words} is empty; name what has text in it")
        return load_corpus(documents, tokenizer, vocab_size)
    shards = lambda index: _shards(folder, index["dtype"], index["shards"])  # noqa: E731
    return cached(folder, lambda: _make(folder, whole, recipe), shards, files, index)


def _shards(folder: Path, dtype: str, names: dict[str, list[str]]) -> dict[str, Shards]:
    return {split: Shards(np.memmap(folder / name, dtype, "r") for name in found) for split, found in names.items()}


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
        _in_workers(work, source, "scan", job)
        if _written(work / "held.json") is None:
            _hold_out(work, source, job)
        _in_workers(work, source, "encode", job)
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


def _scan(work: Path, job: dict[str, Any], source: Source, i: int) -> None:
    """Read a piece: write its held-out documents, and the letters that occur in it."""
    held: list[tuple[str, str, int]] = []
    texts, letters = [], set[str]()
    for document in _documents(source, job, i):
        text = units(*document, job["tokenizer"])
        letters.update(text if job["tokenizer"] == "char" else ())
        if (split := _split_of(document, job)) != "train":
            held.append((split, document.name, len(document.text)))
            texts.append(document.text)
    write_atomic(work / f"scan-{i}.held", b"".join(texts))
    files = {file: entry(Path(file)) for file in list(job["files"])[i :: len(job["pieces"])]}
    write_json(work / f"scan-{i}.json", {"held": held, "letters": "".join(sorted(letters)), "source": files})


def _documents(source: Source, job: dict[str, Any], i: int) -> Iterator[Document]:
    return (document for part in job["pieces"][i] for document in source.documents(Part(*part)))


def _split_of(document: Document, job: dict[str, Any]) -> str:
    return place(hashlib.sha256(document.text).digest(), job["share"])


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
    (work / "learned.txt").write_bytes(state.encode())
    vocab, encode = codec(job["tokenizer"], state)
    splits = {split: _write(work / f"{split}.bin", found[split], job["tokenizer"], encode) for split in found}
    names = {split: [document.name for document in documents] for split, documents in found.items()}
    (work / "names.json").write_text(json.dumps({"train": []} | names))
    dtype = encode(units("", b"", job["tokenizer"], SEPARATOR)).dtype.name
    write_json(work / "held.json", {"vocab": vocab, "dtype": dtype, "splits": splits})


def _training(source: Source, job: dict[str, Any], i: int, held: Held, dropped: list[str]) -> Iterator[Document]:
    """The training documents of a piece; the names of those that leak are added to `dropped`."""
    for document in _documents(source, job, i):
        if _split_of(document, job) == "train":
            if held.leaks(document.text):
                dropped.append(document.name)
            else:
                yield document


def _sample(source: Source, job: dict[str, Any], held: Held) -> Iterator[str]:
    """Training text from every piece, `SAMPLE` bytes in all."""
    for i in range(len(job["pieces"])):
        left = SAMPLE / len(job["pieces"])
        for document in _training(source, job, i, held, []):
            yield units(*document, job["tokenizer"], SEPARATOR)
            if (left := left - len(document.text)) <= 0:
                break


def _encode(work: Path, job: dict[str, Any], source: Source, i: int) -> None:
    """Write the tokens of a piece's training documents."""
    held = Held(*(np.asarray(np.load(work / f"held.{name}.npy", mmap_mode="r")) for name in Held._fields))
    encode, dropped = codec(job["tokenizer"], (work / "learned.txt").read_bytes().decode()).encode, list[str]()
    written = _write(work / f"train-{i}.bin", _training(source, job, i, held, dropped), job["tokenizer"], encode)
    write_json(work / f"encode-{i}.json", written | {"dropped": len(dropped)})


def _write(
    file: Path, documents: Iterable[Document], tokenizer: str, encode: Callable[[Any], np.ndarray]
) -> dict[str, Any]:
    """Write the tokens of documents, and beside them the number of each document's."""
    lengths, size = list[int](), 0
    with open(file, "wb") as opened:
        for document in documents:
            ids = encode(units(*document, tokenizer, SEPARATOR))
            opened.write(ids.tobytes())
            lengths.append(len(ids))
            size += len(document.text) + 1
        opened.flush()
        os.fsync(opened.fileno())
    np.save(file.with_suffix(".npy"), np.array(lengths, np.int64))
    return {"documents": len(lengths), "bytes": size, "entry": entry(file)}


def _index(work: Path, job: dict[str, Any]) -> dict[str, Any]:
    """The index of all files, with what it says of the corpus."""
    held = read_json(work / "held.json")
    scans, done = ([read_json(work / f"{step}-{i}.json") for i in range(len(job["pieces"]))] for step in STEPS)
    kept, dropped = (sum(each[name] for each in done) for name in ("documents", "dropped"))
    note = f"{dropped:,} of {dropped + kept:,} training documents are left out: they share over a fifth of their text"
    train = {f"train-{i}.bin": each for i, each in enumerate(done) if each["documents"]}
    splits = {"train": train} | {split: {f"{split}.bin": each} for split, each in held["splits"].items()}
    for split, found in splits.items():
        lengths = [np.load((work / name).with_suffix(".npy")) for name in found]
        np.save(work / f"{split}.ends.npy", np.cumsum(np.concatenate([np.empty(0, np.int64), *lengths])))
    files = {name: each["entry"] for found in splits.values() for name, each in found.items()}
    files |= {name: entry(work / name) for name in (*(f"{split}.ends.npy" for split in splits), "learned.txt")}
    content = [FORMAT, held["vocab"], held["dtype"], *(found for _, _, found in files.values())]
    files["names.json"] = entry(work / "names.json")
    shards = {split: list(found) for split, found in splits.items()}
    sizes = {split: sum(each["bytes"] for each in found.values()) for split, found in splits.items()}
    corpus = facts(job["tokenizer"], held["vocab"], _shards(work, held["dtype"], shards), sizes)
    corpus |= {"by_document": True, "notes": [f"{note} with a held-out one"] * bool(dropped)}
    corpus["fingerprint"] = digest(json.dumps(content).encode())[:32]
    source = {file: found for scan in scans for file, found in scan["source"].items()}
    return {"source": source, "files": files, "dtype": held["dtype"], "shards": shards, "corpus": corpus}


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


def _in_workers(work: Path, source: Source, step: str, job: dict[str, Any]) -> None:
    """Do a step for all pieces, in a process per core.  Raises ValueError with the first error of one."""
    pieces = len(job["pieces"])
    left = [i for i in range(pieces) if _written(work / f"{step}-{i}.json") is None]
    count = min(cores(), len(left))
    progress = Progress(f"{source.title}: {TITLES[step]}", pieces, pieces - len(left))

    def done() -> int:
        return sum((work / f"{step}-{i}.json").exists() for i in range(pieces))

    for i in left if count == 1 else []:
        STEPS[step](work, job, source, i)
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


def main() -> None:
    """A worker: does the pieces that it was given, until its parent, which holds its standard input, is gone."""
    work = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    job = read_json(work / "job.json")
    source = {"Files": Files, "Rows": Rows}[job["kind"]](**job["source"])
    try:
        for i in map(int, sys.argv[3:]):
            STEPS[sys.argv[2]](work, job, source, i)
    except (ValueError, OSError) as error:
        sys.exit(print(unwritable(work, error) if isinstance(error, OSError) else error) or 3)
