"""Every task on disk, as its YAML has it, in every kind that it can be."""

import functools
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ablate.config.components import bind, resolve
from ablate.config.groups import groups
from ablate.data.task import Task

CONTEXT = 64
FILES = groups()["data"]
CHEAP = {"dates": {"years": [1996, 1999]}}  # a tenth of its days, of which writing each in Babel takes long
TEXT = {
    "text": "path",
    "hf": "name",
    "mlm": "path",
    "tokens": "path",
}  # what has no value in the YAML, or one that takes long


def read(name: str) -> dict[str, Any]:
    """A task's YAML."""
    return yaml.safe_load(FILES[name].read_text())


def kinds() -> list[tuple[str, str]]:
    """Every task with every kind that it can be."""
    return [(name, kind) for name in FILES for kind in resolve("data", read(name)["_target_"]).kinds]


def build(name: str, kind: str, **more: Any) -> Task:
    """A task of its YAML's settings, but for those given."""
    node = read(name) | CHEAP.get(name, {}) | {"context": CONTEXT}
    if name in TEXT:
        node[TEXT[name]] = str({"hf": some_dataset, "tokens": some_shards}.get(name, some_text)())
        node |= {"vocab_size": 256} if name == "tokens" else {}
    return bind("data", node | more, {"kind": kind})()


@functools.cache
def task(name: str, kind: str) -> Task:
    """A task that tests share; nothing about it changes."""
    return build(name, kind)


@functools.cache
def some_text() -> Path:
    """A text of words without order."""
    file = Path(os.environ["ABLATE_CACHE"]) / f"words-{os.getpid()}.txt"
    pick = random.Random(0)
    lines = (" ".join(pick.choices(["ant", "bee", "cat", "dog", "élan"], k=9)) for _ in range(1500))
    file.write_text("\n".join(lines))
    return file


@functools.cache
def some_shards() -> Path:
    """The same as tokens in nanoGPT's files."""
    folder, text = Path(os.environ["ABLATE_CACHE"]) / f"shards-{os.getpid()}", some_text().read_bytes()
    folder.mkdir()
    for name, part in (("train", text[: len(text) * 9 // 10]), ("val", text[len(text) * 9 // 10 :])):
        np.frombuffer(part, np.uint8).astype(np.uint16).tofile(folder / f"{name}.bin")
    return folder


@functools.cache
def some_dataset() -> Path:
    """The same as a saved dataset."""
    import datasets

    folder = Path(os.environ["ABLATE_CACHE"]) / f"words-{os.getpid()}"
    datasets.Dataset.from_dict({"text": [some_text().read_text()]}).save_to_disk(str(folder))
    return folder
