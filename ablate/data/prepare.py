"""Texts of 64 MB and more: tokenised once by `datasets`, in a process per core, into memory-mapped shards with an
index.  Documents are held out by a hash of their content; near-copies of them are not looked for."""

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.errors import one_line
from ablate.config.extra import NotInstalled, extra, installed
from ablate.config.import_path import cores, program
from ablate.data import corpus as corpora
from ablate.data.corpus import (
    SPLITS,
    Corpus,
    facts_of,
    folder_of,
    load_corpus,
    locked,
    open_corpus,
    open_shards,
    sha256_of,
    unwritable,
    write_index,
)
from ablate.data.documents import Document, Files, Given
from ablate.data.rows import Rows
from ablate.data.split import place
from ablate.data.tokenizer import SEPARATOR, check_size, codec, learn, units
from ablate.runs.files import digest

LARGE = 64 << 20  # bytes of text from which it is prepared here; smaller ones are split by clusters
HELD_OUT = 10_000_000  # tokens of a held-out split, about
PER_TOKEN = {"byte": 1, "char": 1}  # bytes of text, for the size of held-out splits; 4 for other tokenizers
SAMPLE = 100_000_000  # bytes of training text that a vocabulary is learned from
SHARD = 128 << 20  # bytes of ids whose splits share a number
BATCH = 100  # documents that a process tokenises at a time
FORMAT = 3  # raise it when the tokens of the same documents change
NOTE = "near-copies of held-out documents are not searched for in the training text, since it has 64 MB or more"
GIVEN = "held-out documents are taken as they are: copies of training text in them are not looked for"

Source = Files | Rows


def corpus_of(source: Source | Given, tokenizer: str, vocab_size: int | None) -> Corpus:
    """The corpus of these documents, from the cache or newly made.  Of a large one only the index is read, if its files
    have the sizes and times that they had.  Raises ValueError."""
    size = check_size(tokenizer, vocab_size)
    if isinstance(source, Given):
        return load_corpus(source.documents, tokenizer, vocab_size)
    recipe = source.recipe() | {"format": FORMAT, "tokenizer": tokenizer, "size": size, "held_out": HELD_OUT}
    if tokenizer.endswith(".json"):
        recipe["learned"] = digest(learn(tokenizer, None, ()).encode())
    folder = folder_of(recipe)
    corpus = open_corpus(folder, contents=False)
    if corpus is None and source.size() < LARGE:
        return small_corpus(source, tokenizer, vocab_size)
    if corpus is None and corpora.unprepared is not None:
        corpora.unprepared.append(source.words)
        raise corpora.Unprepared
    if corpus is None:
        with locked(folder):
            corpus = open_corpus(folder, contents=False)
            if corpus is None:
                prepare_in_process(folder, source, tokenizer, size)
                corpus = open_corpus(folder, contents=False)
    assert corpus is not None
    return dataclasses.replace(corpus, folder=folder)


def small_corpus(source: Source, tokenizer: str, vocab_size: int | None) -> Corpus:
    """The corpus of documents that fit into memory."""
    documents: dict[str, list[Document]] = {}
    for split, part in source.parts():
        documents.setdefault(split, []).extend(source.documents(split, part))
    train = documents.pop("train", [])
    if not train:
        raise ValueError(f"{source.words} is empty; name what has text in it")
    if not documents:
        return load_corpus(train, tokenizer, vocab_size)
    corpus = load_corpus(train, tokenizer, vocab_size, documents)
    return dataclasses.replace(corpus, notes=[*corpus.notes, GIVEN])


def prepare_in_process(folder: Path, source: Source, tokenizer: str, size: int | None) -> None:
    """Prepare a corpus in a process of its own, which ends with this one.  Raises ValueError."""
    installed("datasets", f"{source.words}, a text of 64 MB or more,", "data")
    print(f"ablate: {source.title}: preparing the text, once, in {folder.parent}", file=sys.stderr, flush=True)
    order = [str(folder), type(source).__name__, dataclasses.asdict(source), tokenizer, size]
    process = subprocess.Popen(
        [*program("ablate.data.prepare"), json.dumps(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout
        message = process.stdout.read().strip()
        code = process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        raise ValueError(message or f"the process that prepared {source.words} ended with code {code}; try again")


def main() -> None:
    """The process that prepares a corpus; its parent holds its standard input."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    folder, kind, settings, tokenizer, size = json.loads(sys.argv[-1])
    source: Source = Files(**settings) if kind == "Files" else Rows(**settings)
    try:
        prepare(Path(folder), source, tokenizer, size)
    except Exception as error:
        print(explain(error, Path(folder)))
        sys.exit(3)


def end_with_parent() -> None:
    """Kill this process and those that it started when its parent is gone."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def explain(error: Exception, folder: Path) -> str:
    """The line for an error, which `datasets` may have wrapped in its own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return str(unwritable(folder, cause))
        if type(cause) in (ValueError, NotInstalled):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return f"the corpus cannot be prepared ({one_line(error)[:200]})"


def prepare(folder: Path, source: Source, tokenizer: str, size: int | None) -> None:
    """Prepare a corpus from the beginning, and put it into the cache whole."""
    datasets = extra("datasets", source.words)
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    work = folder.with_suffix(".making")
    shutil.rmtree(work, ignore_errors=True)  # what a killed process has left
    temporary = work / "datasets"
    temporary.mkdir(parents=True)
    share = min(0.05, HELD_OUT * PER_TOKEN.get(tokenizer, 4) / source.size())
    parts = source.parts()
    texts = datasets.Dataset.from_generator(
        read_parts,
        features=datasets.Features({name: datasets.Value(kind) for name, kind in COLUMNS.items()}),
        cache_dir=str(temporary),
        gen_kwargs={"parts": parts, "source": source, "share": share},
        num_proc=min(cores(), len(parts)),
    )
    state = learn(tokenizer, size, training_sample(texts, tokenizer), alphabet_of(texts, tokenizer))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # from here on there is a process per core
    coded = texts.map(
        encode_batch,
        batched=True,
        batch_size=BATCH,
        writer_batch_size=BATCH,
        remove_columns=["text"],
        features=datasets.Features({name: datasets.Value(kind) for name, kind in CODED.items()}),
        fn_kwargs={"tokenizer": tokenizer, "state": state},
        num_proc=min(cores(), len(texts)),
        cache_file_name=str(temporary / "coded.arrow"),
    )
    write_corpus(work, coded, tokenizer, state, len(source.splits) > 1)
    shutil.rmtree(temporary)
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)


COLUMNS = {"name": "string", "split": "string", "text": "binary"}
CODED = {"name": "string", "split": "string", "ids": "binary", "bytes": "int64"}


def read_parts(parts: list[Any], source: Source, share: float) -> Iterator[dict[str, Any]]:
    """The documents of some parts of a source, with their splits."""
    given = len(source.splits) > 1
    for split, part in parts:
        for document in source.documents(split, part, cut=True):
            if not given:
                split = place(hashlib.sha256(document.text).digest(), share)
            yield {"name": document.name, "split": split, "text": document.text}


def training_sample(texts: Any, tokenizer: str) -> Iterator[str]:
    """Every n-th training document, about `SAMPLE` bytes in all."""
    step = 1 + texts.data.nbytes // SAMPLE
    for name, split, text in rows_of(texts.select(range(0, len(texts), step)), COLUMNS):
        if split == "train":
            yield units(name, text, tokenizer, SEPARATOR)


def alphabet_of(texts: Any, tokenizer: str) -> Iterator[str]:
    """All texts, for the alphabet of a tokenizer by characters."""
    if tokenizer == "char":
        for name, _, text in rows_of(texts, COLUMNS):
            yield units(name, text, tokenizer)


def rows_of(dataset: Any, columns: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """The values of each row in some columns, read a batch at a time."""
    for batch in dataset.iter(BATCH):
        yield from zip(*(batch[column] for column in columns), strict=True)


encoder_of = functools.lru_cache(1)(codec)


def encode_batch(rows: dict[str, list[Any]], tokenizer: str, state: str) -> dict[str, list[Any]]:
    """The ids of some documents, as bytes."""
    encoder = encoder_of(tokenizer, state)
    ids = []
    for name, text in zip(rows["name"], rows["text"], strict=True):
        ids.append(encoder.encode(units(name, text, tokenizer, SEPARATOR)).tobytes())
    return {"ids": ids, "bytes": [len(text) + 1 for text in rows["text"]]}


def write_corpus(work: Path, coded: Any, tokenizer: str, state: str, given: bool) -> None:
    """Write the shards of each split and the index.  Raises ValueError if a split has no document."""
    encoder = codec(tokenizer, state)
    dtype = encoder.encode(units("", b"", tokenizer, SEPARATOR)).dtype
    names: dict[str, list[str]] = {split: [] for split in SPLITS}
    lengths: dict[str, list[int]] = {split: [] for split in SPLITS}
    sizes = dict.fromkeys(SPLITS, 0)
    shards: dict[str, list[str]] = {split: [] for split in SPLITS}
    count = 1 + coded.data.nbytes // SHARD
    for number in range(count):
        ids: dict[str, list[bytes]] = {split: [] for split in SPLITS}
        for name, split, document, size in rows_of(coded.shard(count, number, contiguous=True), CODED):
            if split != "train":  # losses are kept per held-out document
                names[split].append(name)
            lengths[split].append(len(document) // dtype.itemsize)
            sizes[split] += size
            ids[split].append(document)
        for split in SPLITS:
            if ids[split]:
                shards[split].append(f"{split}-{number}.npy")
                np.save(work / shards[split][-1], np.frombuffer(b"".join(ids[split]), dtype))
    if not all(shards.values()):
        lacking = [split for split in SPLITS if not shards[split]]
        raise ValueError(
            f"the text has too few documents: none for {lacking[0]}; cut them into more, as text files are"
        )
    tokens = {split: open_shards(work, shards[split]) for split in SPLITS}
    digests = [[sha256_of(work / name) for name in shards[split]] for split in SPLITS]
    content = [FORMAT, encoder.vocab, dtype.name, digests]
    corpus = Corpus(
        fingerprint=digest(json.dumps(content).encode())[:32],
        names=names,
        ends={split: np.cumsum(lengths[split]) for split in SPLITS},
        state=state,
        by_document=True,
        notes=[GIVEN if given else NOTE],
        **facts_of(tokenizer, encoder.vocab, tokens, sizes),
    )
    write_index(work, corpus, shards)
