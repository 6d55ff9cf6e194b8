"""The vectors that embeddings begin with: trained once for each text, setting and seed, and kept beside the corpora."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ablate.config.components import resolve
from ablate.config.files import read_regular
from ablate.config.groups import default_settings
from ablate.config.schema import Config
from ablate.data.corpus import DAMAGED, alone, cache_folder
from ablate.model.placebo import perturbed
from ablate.results.atomic import sealed_archive, unsealed_archive, write_atomic
from ablate.results.code_hash import code_of_part
from ablate.results.tables import own_name
from ablate.results.versions import library_versions, torch_version

if TYPE_CHECKING:
    from ablate.model.vectors.pretrained import Pretrained

FORMAT = 1  # raised when what is kept of vectors changes
SHARED = "shared"  # in place of a seed, where all seeds have one set
ANEW = ("init", "embedding")  # placebos whose vectors come from another stream
UNUSED = ("frozen", "shared", "width", "_target_", "_partial_")  # settings that training vectors does not use


class Vectors(NamedTuple):
    """Rows (vocab, width), NaN where an id has none, and the CPU-seconds that training them took."""

    rows: np.ndarray
    cpu_seconds: float


def begin_with_vectors(model: nn.Module, config: Config, task: Any, seed: int) -> float | None:
    """Put the vectors of a seed of initial draws into a model: the CPU-seconds that they took, None where none belong
    there.
    """
    tables = tables_of(model)
    if not tables:
        return None
    text, first = task.training_text(), next(iter(tables.values()))
    found = vectors_in(place(first, config, digest_of(text), seed), first, text, stream(first, config, seed))
    for name, table in tables.items():
        chaos = config.seed.placebo == "chaos"
        table.begin_with(perturbed(torch.from_numpy(found.rows), name, seed).numpy() if chaos else found.rows)
    return found.cpu_seconds


def tables_of(model: nn.Module) -> dict[str, Pretrained]:
    """The embeddings of a model that begin with vectors, by the names of their matrices."""
    named: Any = model.named_modules()
    return {f"{name}.weight": part for name, part in named if hasattr(part, "begin_with")}


def initial_seed(config: Config, seed: int) -> int:
    """The seed of a run's initial draws."""
    return seed if config.seed.init is None else config.seed.init


def is_pretrained(config: Config) -> bool:
    """Whether the embedding of a configuration begins with vectors."""
    target = resolve("embedding", config.embedding["_target_"], config.user)
    return isinstance(target, type) and hasattr(target, "begin_with")  # a Pretrained, which runs without need not reach


def without_vectors(config: Config) -> Config:
    """A configuration whose steps take as long, without vectors that would have to be trained first."""
    if not is_pretrained(config):
        return config
    kept = {name: config.embedding[name] for name in ("width", "frozen") if name in config.embedding}
    return config.with_value("embedding", default_settings("embedding") | kept)


def stream(table: Pretrained, config: Config, seed: int) -> int:
    """The seed, of 32 bits, that vectors are trained with: part of the initial draws, which a placebo draws anew; one
    for all seeds, and placebos, where their set is shared.
    """
    own = SHARED if table.shared else f"{'placebo/' * (config.seed.placebo in ANEW)}{seed}"
    digest = hashlib.sha256(f"vectors/{own}".encode()).digest()
    return int.from_bytes(digest[:4], "little")


def place(table: Pretrained, config: Config, text: str, seed: int) -> Path:
    """Where vectors are kept: by the text's digest, and all settings, the seed, the code and the versions that they
    depend on.
    """
    node = config.embedding
    settings: dict[str, Any] = {key: value for key, value in node.items() if key not in UNUSED}
    settings |= {"format": FORMAT, "shape": list(table.weight.shape), "seed": stream(table, config, seed)}
    settings |= {"text": text, "code": code_of_part(node["_target_"], config.user)}
    settings |= {"torch": torch_version(), "numpy": np.__version__} | library_versions(own_name(node["_target_"]))
    name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "vectors" / f"{name}.npz"


def digest_of(text: Sequence[np.ndarray]) -> str:
    """A digest of documents of ids."""
    found = hashlib.sha256(json.dumps([[len(part), str(part.dtype)] for part in text]).encode())
    for part in text:
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def vectors_in(file: Path, table: Pretrained, text: Sequence[np.ndarray], seed: int) -> Vectors:
    """The vectors of a file of the cache; trained, by one process alone, where it is not there or damaged."""
    if found := kept(file):
        return found
    file.parent.mkdir(parents=True, exist_ok=True)
    with alone(file.with_suffix(".lock")):
        if found := kept(file):  # whoever was alone before may have made it
            return found
        begun = time.process_time()
        rows = table.vectors(text, seed)
        made = Vectors(rows, round(time.process_time() - begun, 2))
        buffer = io.BytesIO()
        np.savez(buffer, rows=made.rows, cpu_seconds=made.cpu_seconds)
        write_atomic(file, sealed_archive(buffer.getvalue()))
        return made


def kept(file: Path) -> Vectors | None:
    """The vectors of a file; None where there is none, or what there is is damaged."""
    with contextlib.suppress(*DAMAGED), np.load(io.BytesIO(unsealed_archive(read_regular(file)))) as archive:
        return Vectors(archive["rows"], float(archive["cpu_seconds"]))
    return None
