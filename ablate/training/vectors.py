"""Pretrained vectors for embeddings: trained once per text, settings and seed, and cached next to the corpora."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import nn

from ablate.config.components import resolve
from ablate.config.files import regular
from ablate.config.groups import default_settings
from ablate.config.schema import Config
from ablate.data.corpus import cache_folder, exclusive
from ablate.runs.files import write_atomic
from ablate.runs.key import code_of_part, library_versions, torch_version
from ablate.runs.tables import class_name

if TYPE_CHECKING:
    from ablate.model.embedding import Pretrained

FORMAT = 1  # raise it when the format of the cache changes
SHARED = "shared"  # replaces the seed if all seeds use the same vectors
UNUSED = ("frozen", "shared", "width", "_target_", "_partial_")  # settings that do not affect the vectors


class Vectors(NamedTuple):
    """Rows (vocab, width), NaN for ids without a vector, and the CPU seconds of their training."""

    rows: np.ndarray
    cpu_seconds: float


def begin_with_vectors(model: nn.Module, config: Config, task: Any, seed: int) -> float | None:
    """Load pretrained vectors into a model; returns the CPU seconds of their training, None if the model uses none."""
    tables = tables_of(model)
    if not tables:
        return None
    text = task.training_text()
    table = next(iter(tables.values()))  # all have the same settings
    file = vectors_file(table, config, digest_of(text), seed)
    vectors = train_or_load(file, table, text, vectors_seed(table, seed))
    for table in tables.values():
        table.begin_with(vectors.rows)
    return vectors.cpu_seconds


def tables_of(model: nn.Module) -> dict[str, Pretrained]:
    """The embeddings of a model that start from pretrained vectors, by the names of their weights."""
    modules: Any = model.named_modules()
    return {f"{name}.weight": module for name, module in modules if hasattr(module, "begin_with")}


def initial_seed(config: Config, seed: int) -> int:
    """The seed of a run's initial draws."""
    return seed if config.seed.init is None else config.seed.init


def is_pretrained(config: Config) -> bool:
    """Whether a configuration's embedding starts from pretrained vectors."""
    target = resolve("embedding", config.embedding["_target_"], config.user)
    return isinstance(target, type) and hasattr(target, "begin_with")  # a Pretrained, without importing it


def without_vectors(config: Config) -> Config:
    """The same configuration without pretrained vectors, which need training; its steps take as long."""
    if not is_pretrained(config):
        return config
    shape = {name: config.embedding[name] for name in ("width", "frozen") if name in config.embedding}
    return config.with_value("embedding", default_settings("embedding") | shape)


def vectors_seed(table: Pretrained, seed: int) -> int:
    """The 32-bit seed of training vectors; shared vectors have one for all seeds."""
    name = SHARED if table.shared else str(seed)
    digest = hashlib.sha256(f"vectors/{name}".encode()).digest()
    return int.from_bytes(digest[:4], "little")


def vectors_file(table: Pretrained, config: Config, text: str, seed: int) -> Path:
    """The cache file of vectors, named by a hash of the text, settings, seed, code and versions they depend on."""
    target = config.embedding["_target_"]
    depends: dict[str, Any] = {key: value for key, value in config.embedding.items() if key not in UNUSED}
    depends |= {
        "format": FORMAT,
        "shape": list(table.weight.shape),
        "seed": vectors_seed(table, seed),
        "text": text,
        "code": code_of_part(target, config.user),
        "torch": torch_version(),
        "numpy": np.__version__,
    }
    depends |= library_versions(class_name(target))
    name = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "vectors" / f"{name}.npz"


def digest_of(documents: Sequence[np.ndarray]) -> str:
    """A digest of documents of token ids."""
    digest = hashlib.sha256(json.dumps([[len(ids), str(ids.dtype)] for ids in documents]).encode())
    for ids in documents:
        digest.update(np.ascontiguousarray(ids).tobytes())
    return digest.hexdigest()


def train_or_load(file: Path, table: Pretrained, text: Sequence[np.ndarray], seed: int) -> Vectors:
    """The vectors of a cache file; trained under a lock if it is missing or damaged."""
    vectors = load_vectors(file)
    if vectors:
        return vectors
    file.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(file.with_suffix(".lock")):
        vectors = load_vectors(file)  # another process may have written it meanwhile
        if vectors:
            return vectors
        cpu_start = time.process_time()
        rows = table.vectors(text, seed)
        vectors = Vectors(rows, round(time.process_time() - cpu_start, 2))
        content = io.BytesIO()
        np.savez(content, rows=vectors.rows, cpu_seconds=vectors.cpu_seconds)
        write_atomic(file, content.getvalue())
        return vectors


def load_vectors(file: Path) -> Vectors | None:
    """The vectors of a cache file; None if it is missing or damaged."""
    try:
        with open(file, "rb", opener=regular) as opened, np.load(opened) as archive:
            return Vectors(archive["rows"], float(archive["cpu_seconds"]))
    except MemoryError:
        raise
    except Exception:  # numpy can raise any exception on damaged bytes
        return None
