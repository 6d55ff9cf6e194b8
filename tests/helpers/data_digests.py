"""What data come to, as hashes: `tests/data/test_every_process.py` computes them in two processes."""

import hashlib
from typing import Any

import numpy as np
from corpora import load, some_documents
from tasks import kinds, task

from ablate.data.corpus import SPLITS
from ablate.data.split import near_duplicates, split_documents

TEXTS = ("stdlib", "text", "tokens", "hf", "mlm")  # tasks of texts, which `tokenizer` and `split` are about


def digests() -> dict[str, Any]:
    """Hashes of batches, of held-out examples, of splits and of what training a tokenizer comes to."""
    return {"split": split(), "tokenizer": tokenizer(), "tasks": tasks()}


def split() -> list[Any]:
    """Clusters and sides of texts, of which every third is nearly a copy of the one before."""
    documents = [document.text.replace(b" ", b"\n") for document in some_documents(60)]
    documents[2::3] = [document + b"\nedited" for document in documents[1::3]]
    return [near_duplicates(documents), split_documents(documents, [len(document) for document in documents])]


def tokenizer() -> str:
    """Everything that training and encoding come to."""
    corpus = load(some_documents(), "bpe", 400)
    total = hashlib.sha256((corpus.fingerprint + corpus.state).encode())
    for name in SPLITS:
        total.update(np.ascontiguousarray(corpus.tokens[name]).tobytes())
    return total.hexdigest()


def tasks() -> dict[str, str]:
    """Of every task whose data are ours a hash of batches and held-out examples."""
    hashes = {}
    for name, kind in kinds():
        if name in (*TEXTS, "digits"):
            continue
        total = hashlib.sha256(task(name, kind).fingerprint.encode())
        for part in (task(name, kind).batch(3, 7, 8), task(name, kind).held_out("test", 500)):
            for tensor in (*part.inputs.values(), part.targets):
                total.update(tensor.numpy().tobytes())
        hashes[f"{name} {kind}"] = total.hexdigest()
    return hashes
