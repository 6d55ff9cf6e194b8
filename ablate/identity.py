"""What a run is: the hash of everything that can change its numbers."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import torch

from ablate.schema import COMPONENTS, STUDY_KEYS

PACKAGE = Path(__file__).parent
LOOP = ("train.py", "evaluate.py", "optim.py", "build.py", "model", "data")  # what every run's numbers pass through
CARRIED = ("parallel", "checkpoint_seconds")  # of `train`: how runs are carried out, not what they compute


def numbers(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that a run's numbers depend on; data counts by content, not by path."""
    kept = {key: value for key, value in config.items() if key not in STUDY_KEYS}
    kept["train"] = {key: value for key, value in config["train"].items() if key not in CARRIED}
    kept["data"] = {key: value for key, value in config["data"].items() if key != "path"}
    return kept


def batches(config: dict[str, Any], fingerprint: str) -> str:
    """Hash of what decides the batches of a seed: cells with equal values see the same ones, and their seeds pair."""
    return _digest([fingerprint, config["data"]["context"], config["train"]["batch_size"], config["seed"]["data"]])[:16]


def run_key(config: dict[str, Any], seed: int, fingerprint: str) -> str:
    """`s<seed>-<hash>`: the name of a run's folder."""
    resolved = numbers(config)
    resolved["seed"] = {half: seed if fixed is None else fixed for half, fixed in config["seed"].items()}
    versions = {"torch": torch.__version__, "numpy": numpy.__version__, "threads": 1}
    code = code_hash(tuple(sorted(config["user"])), tuple(sorted(targets(config))))
    return f"s{seed}-{_digest([resolved, versions, fingerprint, seed, code])[:16]}"


def cell_name(choices: dict[str, str]) -> str:
    """All components in fixed order, by variant, joined by dashes."""
    return "-".join(choices[group] for group in COMPONENTS)


def targets(config: dict[str, Any]) -> set[str]:
    """Every `_target_` of a configuration."""
    return {node["_target_"] for node in config.values() if isinstance(node, dict) and "_target_" in node}


@functools.cache
def code_hash(user: tuple[str, ...], used: tuple[str, ...]) -> str:
    """Hash of the source files that a run passes through: the loop's, and those of a user's own targets."""
    files = [path for name in LOOP for path in _sources(PACKAGE / name)]
    for target in used:
        if target.split(".")[0] in {package.split(".")[0] for package in user}:
            spec = importlib.util.find_spec(target.rpartition(".")[0])
            if spec and spec.origin:
                files.append(Path(spec.origin))
    return _digest([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])


def _sources(path: Path) -> Iterable[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
