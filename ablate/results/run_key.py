"""What a run is: the hash of everything that can change its numbers."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy
import torch

from ablate.config.schema import STUDY_KEYS
from ablate.results.code_hash import definitions, targets_of

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


def without_user(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration as files keep it: whoever reads one says anew which packages of their own may run."""
    return {key: value for key, value in config.items() if key != "user"}


def batches(config: dict[str, Any], fingerprint: str) -> str:
    """Hash of what decides the batches of a seed: cells with equal values see the same ones, and their seeds pair."""
    context = config["data"].get("context")
    other = ["placebo"] * (config["seed"]["placebo"] == "data")
    return _digest([fingerprint, context, config["train"]["batch_size"], config["seed"]["data"], *other])[:16]


def run_key(config: dict[str, Any], seed: int, fingerprint: str) -> str:
    """`s<seed>-<hash>`: the name of a run's folder."""
    found = provenance(config, seed, fingerprint)
    del found["source"]
    return f"s{seed}-{_digest([seed, found])[:16]}"


def provenance(config: dict[str, Any], seed: int, fingerprint: str) -> dict[str, Any]:
    """All that a run's numbers come from: its settings (a hash), versions, data, and code by definitions.

    `study` is the one that the run belongs to alone, under reuse=none; `source` says where the data were, and is no
    part of the key.
    """
    resolved = numbers(config)
    halves = {half: seed if config["seed"][half] is None else config["seed"][half] for half in ("init", "data")}
    resolved["seed"] = halves | {"placebo": config["seed"]["placebo"]}
    return {
        "numbers": _digest(resolved),
        "versions": {"torch": torch.__version__, "numpy": numpy.__version__, "threads": 1},
        "data": fingerprint,
        "source": config["data"],
        "study": config["study"] if config["reuse"] == "none" else None,
        "code": code_of(config),
    }


def code_of(config: dict[str, Any]) -> dict[str, str]:
    """Digests of the definitions that a cell's runs pass through; what is not its own part counts for nothing."""
    return definitions(targets_of(numbers(config)), config.get("user", ()))  # files name no packages


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
