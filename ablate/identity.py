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
MEASURES = ("accumulate.py", "metrics.py", "endpoint.py", "decode.py", "recalibrate.py", "diagnose.py")
LOOP = ("train.py", "optim.py", "build.py", "model", "data", *MEASURES)  # what every run's numbers pass through
CARRIED = ("parallel", "checkpoint_seconds")  # of `train`: how runs are carried out, not what they compute


def numbers(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that a run's numbers depend on; data counts by content, not by path."""
    kept = {key: value for key, value in config.items() if key not in STUDY_KEYS}
    kept["train"] = {key: value for key, value in config["train"].items() if key not in CARRIED}
    kept["eval"] = {key: value for key, value in config["eval"].items() if key != "lengths"}  # of kept weights
    kept["data"] = {key: value for key, value in config["data"].items() if key not in ("path", "name")}
    if config["ffn"].get("hidden") is not None:  # a width that is given leaves the rule for it without effect
        kept["ffn"] = {key: value for key, value in config["ffn"].items() if key not in ("mult", "multiple_of")}
    if config["optim"]["schedule"] == "constant":
        kept["optim"] = {key: value for key, value in config["optim"].items() if key != "floor"}
    return kept


def batches(config: dict[str, Any], fingerprint: str) -> str:
    """Hash of what decides the batches of a seed: cells with equal values see the same ones, and their seeds pair."""
    context = config["data"].get("context")
    return _digest([fingerprint, context, config["train"]["batch_size"], config["seed"]["data"]])[:16]


def run_key(config: dict[str, Any], seed: int, fingerprint: str) -> str:
    """`s<seed>-<hash>`: the name of a run's folder."""
    resolved = numbers(config)
    halves = {half: seed if config["seed"][half] is None else config["seed"][half] for half in ("init", "data")}
    resolved["seed"] = halves | {"placebo": config["seed"]["placebo"]}
    versions = {"torch": torch.__version__, "numpy": numpy.__version__, "threads": 1}
    code = code_hash(tuple(sorted(package for package in config["user"] if uses(config, package))))
    return f"s{seed}-{_digest([resolved, versions, fingerprint, seed, code])[:16]}"


def cell_name(choices: dict[str, str]) -> str:
    """All components in fixed order, by variant, joined by dashes."""
    return "-".join(choices[group] for group in COMPONENTS)


def uses(config: dict[str, Any], package: str) -> bool:
    """Whether any part of a cell comes from a package; what does not is the same run without it."""
    nodes = [node for key, node in config.items() if isinstance(node, dict) and key not in STUDY_KEYS]
    return any(str(node.get("_target_", "")).startswith(package + ".") for node in nodes)


@functools.cache
def code_hash(user: tuple[str, ...]) -> str:
    """Hash of the source files that a run passes through: the loop's, and all of the user's own packages."""
    files = [path for name in LOOP for path in _sources(PACKAGE / name)]
    for package in user:
        spec = importlib.util.find_spec(package)
        folders = spec.submodule_search_locations if spec else None
        files += [path for folder in folders or () for path in _sources(Path(folder))]
        files += [Path(spec.origin)] if spec and spec.origin and not folders else []
    return _digest([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])


def _sources(path: Path) -> Iterable[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
