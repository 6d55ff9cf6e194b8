"""The corpus of a source of documents: split, tokenised once, and kept in the cache.

Below 64 MB this is done in memory, and near-copies of a document are in one split.  Larger texts are tokenised by
`datasets`, in a process per core; their documents are held out by a hash of their content.
"""

import contextlib
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.errors import one_line
from ablate.config.extra import NotInstalled, extra
from ablate.config.import_path import cores, program
from ablate.data import corpus as corpora
from ablate.data.corpus import (
    SPLITS,
    Corpus,
    cached,
    folder_of,
    locked,
    open_corpus,
    replaced,
    unwritable,
    write_index,
    yardsticks,
)
from ablate.data.documents import Document, Files
from ablate.data.rows import Rows
from ablate.data.split import place, split_documents
from ablate.data.tokenizer import SEPARATOR, check_size, codec, learn, units
from ablate.runs.files import digest, file_digest

LARGE = 64 << 20  # bytes of text
HELD_OUT = 10_000_000  # tokens of a held-out split of a large text, about
PER_TOKEN = {"byte": 1, "char": 1}  # bytes of text, for the size of held-out splits; 4 for other tokenizers
SAMPLE = 100_000_000  # bytes of training text that a vocabulary is learned from
BATCH = 100  # documents that a process tokenises at a time
FORMAT = 4  # raise it when the tokens of the same documents change
LARGE_FORMAT = 3  # the same for large texts
NOTE = "near-copies of held-out documents are not searched for in the training text, since it has 64 MB or more"
GIVEN = "held-out documents are taken as they are: copies of training text in them are not looked for"

Source = Files | Rows


def corpus_of(source: Source, tokenizer: str, vocab_size: int | None) -> Corpus:
    """The corpus of a source, from the cache or newly made.  Raises ValueError, and Unprepared for a large text."""
    size = check_size(tokenizer, vocab_size)
    learned = learn(tokenizer, None, ()) if tokenizer.endswith(".json") else tokenizer
    folder = folder_of([FORMAT, LARGE_FORMAT, source.recipe(), learned, size])
    corpus = open_corpus(folder)
    if corpus is not None:
        return corpus
    if source.size() < LARGE:
        return cached(folder, lambda: make_corpus(source, tokenizer, size, learned))
    if not corpora.may_prepare:
        raise corpora.Unprepared
    with locked(folder):
        if open_corpus(folder) is None:
            prepare_in_process(folder, source, tokenizer, size)
    corpus = open_corpus(folder)
    assert corpus
    return corpus


def make_corpus(source: Source, tokenizer: str, size: int | None, learned: str) -> Corpus:
    """Split and tokenise documents in memory."""
    documents: dict[str, list[Document]] = {split: [] for split in source.splits}
    for split, part in source.parts():
        documents[split].extend(source.documents(split, part))
    if not documents["train"]:
        raise ValueError(f"{source.words} is empty; name what has text in it")
    fingerprint = fingerprint_of(documents, f"{FORMAT} {learned} {size}")
    end = SEPARATOR if any(len(group) > 1 for group in documents.values()) else ""
    texts = {split: [units(*document, tokenizer, end) for document in documents[split]] for split in documents}
    if len(documents) == 1:
        all_documents = documents["train"]
        all_texts = texts["train"]
        parts = split_documents([document.text for document in all_documents], [len(text) for text in all_texts])
        for split in SPLITS:
            documents[split] = [all_documents[i] for i, _, _ in parts[split]]
            texts[split] = [all_texts[i][start:stop] for i, start, stop in parts[split]]
    state = learn(tokenizer, size, texts["train"], [*texts["val"], *texts["test"]])
    encoder = codec(tokenizer, state)
    tokens = {}
    ends = {}
    sizes = {}
    for split in SPLITS:
        ids = [encoder.encode(text) for text in texts[split]]
        tokens[split] = np.concatenate([np.empty(0, encoder.dtype), *ids])
        ends[split] = np.cumsum([len(part) for part in ids], dtype=int)
        sizes[split] = sum(len(text if isinstance(text, bytes) else text.encode()) for text in texts[split])
    if tokenizer == "bpe":
        # Another release of the library may merge differently, so the merges are part of the data's fingerprint.
        fingerprint = digest(f"{fingerprint} {json.loads(state)['model']['merges']}".encode())[:32]
    names = {split: [document.name for document in documents[split]] for split in SPLITS}
    note = GIVEN if len(source.splits) > 1 else ""
    return new_corpus(fingerprint, tokenizer, state, tokens, names, ends, sizes, note)


def new_corpus(
    fingerprint: str,
    tokenizer: str,
    state: str,
    tokens: dict[str, Any],
    names: dict[str, list[str]],
    ends: dict[str, np.ndarray],
    sizes: dict[str, int],
    note: str,
) -> Corpus:
    """The corpus of these tokens, with what follows from them; `sizes` are the bytes of each split's text."""
    vocab = codec(tokenizer, state).vocab
    notes = [note] if note else []
    bytes_per_token = {split: sizes[split] / max(1, len(tokens[split])) for split in SPLITS}
    if tokenizer == "word":  # words do not encode the whole text, so there are no bits per byte
        bytes_per_token = {}
        share = (tokens["test"][:HELD_OUT] == 0).mean()
        notes.append(f"{100 * share:.2g} % of test words are not among the {vocab:,} of the vocabulary: they are <unk>")
    return Corpus(
        fingerprint=fingerprint,
        vocab=vocab,
        tokens=tokens,
        names=names,
        ends=ends,
        yardsticks=yardsticks(tokens["train"], tokens["test"], vocab),
        bytes_per_token=bytes_per_token,
        tokenizer=tokenizer,
        state=state,
        notes=notes,
    )


def fingerprint_of(documents: dict[str, list[Document]], settings: str) -> str:
    """A digest of the names and texts of documents, and of how they are tokenised."""
    content = hashlib.sha256(f"{settings} {len(documents['train'])}".encode())
    for split, group in documents.items():
        if split != "train":
            content.update(f"\n{split} {len(group)}".encode())
        for document in group:
            content.update(f"\n{document.name} {len(document.text)}\n".encode() + document.text)
    return content.hexdigest()[:32]


def prepare_in_process(folder: Path, source: Source, tokenizer: str, size: int | None) -> None:
    """Prepare a corpus in a process of its own.  Raises ValueError."""
    print(f"ablate: {source.title}: preparing the text, once, in {folder.parent}", file=sys.stderr, flush=True)
    order = json.dumps([str(folder), type(source).__name__, dataclasses.asdict(source), tokenizer, size])
    command = [*program("ablate.data.prepare"), order]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout
        message = process.stdout.read().strip()
    if process.returncode:
        raise ValueError(message or f"the process that prepared {source.words} was killed; try again")


def main() -> None:
    """The process that prepares a corpus; it ends when its standard input does, which its parent holds."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    folder, kind, settings, tokenizer, size = json.loads(sys.argv[-1])
    source = Files(**settings) if kind == "Files" else Rows(**settings)
    try:
        prepare(Path(folder), source, tokenizer, size)
    except Exception as error:
        print(explain(error, Path(folder)))
        sys.exit(3)


def end_with_parent() -> None:
    """Kill this process and those that it started when its parent is gone."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def explain(error: BaseException, folder: Path) -> str:
    """The line for an error, which `datasets` may have wrapped in its own."""
    if isinstance(error, OSError):
        return str(unwritable(folder, error))
    if type(error) in (ValueError, NotInstalled):
        return str(error)
    cause = error.__cause__ or error.__context__
    return explain(cause, folder) if cause else f"the corpus cannot be prepared ({one_line(error)[:200]})"


def prepare(folder: Path, source: Source, tokenizer: str, size: int | None) -> None:
    """Prepare a corpus from the beginning, and put it into the cache whole."""
    datasets = extra("datasets", f"{source.words}, a text of 64 MB or more,")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    share = min(0.05, HELD_OUT * PER_TOKEN.get(tokenizer, 4) / source.size())
    parts = source.parts()
    with replaced(folder, folder.with_suffix(".making")) as work:
        temporary = work / "datasets"
        columns = {"name": "string", "split": "string", "text": "binary"}
        texts = datasets.Dataset.from_generator(
            read_parts,
            features=datasets.Features({name: datasets.Value(kind) for name, kind in columns.items()}),
            cache_dir=str(temporary),
            gen_kwargs={"parts": parts, "source": source, "share": share},
            num_proc=min(cores(), len(parts)),
        )
        state = learn(tokenizer, size, training_sample(texts, tokenizer))
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # from here on there is a process per core
        coded = texts.map(
            encode_batch,
            batched=True,
            batch_size=BATCH,
            writer_batch_size=BATCH,
            remove_columns=["text"],
            fn_kwargs={"tokenizer": tokenizer, "state": state},
            num_proc=min(cores(), len(texts)),
        )
        write_corpus(work, coded, tokenizer, state, GIVEN if len(source.splits) > 1 else NOTE)
        shutil.rmtree(temporary)


def read_parts(parts: list[Any], source: Source, share: float) -> Iterator[dict[str, Any]]:
    """The documents of some parts of a source, with their splits."""
    for split, part in parts:
        for document in source.documents(split, part, cut=True):
            if len(source.splits) == 1:
                split = place(hashlib.sha256(document.text).digest(), share)
            yield {"name": document.name, "split": split, "text": document.text}


def training_sample(texts: Any, tokenizer: str) -> Iterator[str]:
    """What a tokenizer learns from: every n-th training document, about `SAMPLE` bytes in all; for an alphabet, all."""
    step = 1 if tokenizer == "char" else 1 + texts.data.nbytes // SAMPLE
    for rows in texts.select(range(0, len(texts), step)).iter(BATCH):
        for name, split, text in zip(rows["name"], rows["split"], rows["text"], strict=True):
            if split == "train" or tokenizer == "char":
                yield units(name, text, tokenizer, SEPARATOR)


encoder_of = functools.lru_cache(1)(codec)


def encode_batch(rows: dict[str, list[Any]], tokenizer: str, state: str) -> dict[str, list[Any]]:
    """The ids of some documents, as bytes."""
    encoder = encoder_of(tokenizer, state)
    ids = []
    for name, text in zip(rows["name"], rows["text"], strict=True):
        ids.append(encoder.encode(units(name, text, tokenizer, SEPARATOR)).tobytes())
    return {"ids": ids, "bytes": [len(text) + 1 for text in rows["text"]]}


def write_corpus(work: Path, coded: Any, tokenizer: str, state: str, note: str) -> None:
    """Write the ids of each split and the index.  Raises ValueError if a split has no document."""
    encoder = codec(tokenizer, state)
    names: dict[str, list[str]] = {split: [] for split in SPLITS}
    lengths: dict[str, list[int]] = {split: [] for split in SPLITS}
    sizes = dict.fromkeys(SPLITS, 0)
    files = {split: work / f"{split}.bin" for split in SPLITS}
    with contextlib.ExitStack() as stack:
        streams = {split: stack.enter_context(open(files[split], "wb")) for split in SPLITS}
        for rows in coded.iter(BATCH):
            for name, split, ids, size in zip(rows["name"], rows["split"], rows["ids"], rows["bytes"], strict=True):
                streams[split].write(ids)
                lengths[split].append(len(ids) // encoder.dtype.itemsize)
                sizes[split] += size
                if split != "train":  # losses are kept per held-out document
                    names[split].append(name)
    for split in SPLITS:
        if not lengths[split]:
            raise ValueError(f"the text has too few documents: none for {split}; cut them into more")
    tokens = {split: np.memmap(files[split], encoder.dtype, "r") for split in SPLITS}
    digests = [file_digest(files[split]) for split in SPLITS]
    ends = {split: np.cumsum(lengths[split]) for split in SPLITS}
    content = json.dumps([LARGE_FORMAT, encoder.vocab, encoder.dtype.name, digests])
    fingerprint = digest(content.encode())[:32]
    write_index(work, new_corpus(fingerprint, tokenizer, state, tokens, names, ends, sizes, note))
