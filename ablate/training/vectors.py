"""Pretrained vectors for embeddings: trained once per text, settings and seed, and cached next to the corpora."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import nn

from ablate.config.components import resolve
from ablate.config.groups import default_settings
from ablate.config.schema import Config
from ablate.data.corpus import DAMAGED, cache_folder, exclusive
from ablate.results.atomic import open_archive, write_atomic
from ablate.results.code_hash import code_of_part
from ablate.results.run_key import library_versions, torch_version
from ablate.results.tables import class_name

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
    text, first = task.training_text(), next(iter(tables.values()))
    found = vectors_in(place(first, config, digest_of(text), seed), first, text, stream(first, seed))
    for table in tables.values():
        table.begin_with(found.rows)
    return found.cpu_seconds


def tables_of(model: nn.Module) -> dict[str, Pretrained]:
    """The embeddings of a model that start from pretrained vectors, by the names of their weights."""
    named: Any = model.named_modules()
    return {f"{name}.weight": part for name, part in named if hasattr(part, "begin_with")}


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
    kept = {name: config.embedding[name] for name in ("width", "frozen") if name in config.embedding}
    return config.with_value("embedding", default_settings("embedding") | kept)


def stream(table: Pretrained, seed: int) -> int:
    """The 32-bit seed of training vectors; shared vectors have one for all seeds."""
    whose = SHARED if table.shared else str(seed)
    digest = hashlib.sha256(f"vectors/{whose}".encode()).digest()
    return int.from_bytes(digest[:4], "little")


def place(table: Pretrained, config: Config, text: str, seed: int) -> Path:
    """The cache file of vectors, named by a hash of the text, settings, seed, code and versions they depend on."""
    node = config.embedding
    settings: dict[str, Any] = {key: value for key, value in node.items() if key not in UNUSED}
    settings |= {"format": FORMAT, "shape": list(table.weight.shape), "seed": stream(table, seed)}
    settings |= {"text": text, "code": code_of_part(node["_target_"], config.user)}
    settings |= {"torch": torch_version(), "numpy": np.__version__} | library_versions(class_name(node["_target_"]))
    name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "vectors" / f"{name}.npz"


def digest_of(text: Sequence[np.ndarray]) -> str:
    """A digest of documents of token ids."""
    found = hashlib.sha256(json.dumps([[len(part), str(part.dtype)] for part in text]).encode())
    for part in text:
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def vectors_in(file: Path, table: Pretrained, text: Sequence[np.ndarray], seed: int) -> Vectors:
    """The vectors of a cache file; trained under a lock if it is missing or damaged."""
    if found := kept(file):
        return found
    file.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(file.with_suffix(".lock")):
        if found := kept(file):  # another process may have written it meanwhile
            return found
        begun = time.process_time()
        rows = table.vectors(text, seed)
        made = Vectors(rows, round(time.process_time() - begun, 2))
        write_atomic(file, partial(np.savez, rows=made.rows, cpu_seconds=made.cpu_seconds))
        return made


def kept(file: Path) -> Vectors | None:
    """The vectors of a cache file; None if it is missing or damaged."""
    with contextlib.suppress(*DAMAGED), open_archive(file) as opened, np.load(opened) as archive:
        return Vectors(archive["rows"], float(archive["cpu_seconds"]))
    return None
