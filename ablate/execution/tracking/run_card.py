"""What a tracking service receives of a run besides its metrics: names, factor levels, settings, origin, duration."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.schema import NAMED, STUDY_KEYS, VARIED
from ablate.results.records import Cell, Manifest, PlannedRun
from ablate.results.result import Result

BUDGET = ("params", "flops_per_token", "params_vs_reference", "shared_draws")
ORIGIN = ("device", "host", "versions", "git")  # of a result, where it has them
TAG = 64  # characters; W&B refuses longer ones

Row = dict[str, Any]


class Card(NamedTuple):
    """What a tracking service receives of a run besides its metrics; `results` is where it may keep files.

    `seconds` is how long the run took, None while it goes on.
    """

    results: Path
    id: str
    group: str
    job_type: str
    name: str
    tags: list[str]
    config: Row
    seconds: float | None


def card_of(results: Path, manifest: Manifest, cell: Cell, planned: PlannedRun, result: Result | None) -> Card:
    """The card of a planned run of a cell; `result` is what it ended with."""
    status = result.status if result else "done"
    tags = [f"{factor}={level}"[:TAG] for factor, level in cell.levels.items()]
    return Card(
        results=results,
        id=hashlib.sha256(f"{manifest.study}/{planned.path}".encode()).hexdigest()[:16],
        group=manifest.study,
        job_type=cell.label,
        name=f"{cell.label}/s{planned.seed}",
        tags=tags + [status] * (status != "done"),
        config=settings(cell) | {"seed": planned.seed, "study": study(manifest, cell)} | origin(manifest, result),
        seconds=(result.seconds or {}).get("total", 0.0) if result else None,
    )


def settings(cell: Cell) -> Row:
    """A cell's settings: variants and levels of factors by their names, the variants' own under `components`."""
    config = cell.config.as_json()
    own = {name: value for name, value in config.items() if name not in (*VARIED, *STUDY_KEYS, "seed")}
    held = {f"seed_{half}": value for half, value in config["seed"].items() if value is not None}
    made = {name: config[name] for name in VARIED}
    found = own | held | {"components": made, "budget": {name: getattr(cell, name) for name in BUDGET}}
    for name, level in (variants(cell.name) | cell.levels).items():
        found[name] = found[name] | {"variant": level} if isinstance(found.get(name), dict) else level
    return found


def variants(name: str) -> Row:
    """The variant of each component, from the name of a cell; nothing where one of them has a dash of its own."""
    first, others = name.split("-")[: len(NAMED)], name.split("-")[len(NAMED) :]
    chosen = {group: part for part in others for group in VARIED if part.startswith(f"{group}_")}
    if len(first) < len(NAMED) or len(chosen) < len(others):
        return {}
    found = {group: part.removeprefix(f"{group}_") for group, part in chosen.items()}
    return dict(zip(NAMED, first, strict=True)) | found


def study(manifest: Manifest, cell: Cell) -> Row:
    """What only orchestrates: the study's name, its command line, and the settings that are no part of a run's key."""
    found = {"name": manifest.study, "command": manifest.command}
    config = cell.config.as_json()
    return found | {name: config[name] for name in STUDY_KEYS if name != "study" and name in config}


def origin(manifest: Manifest, result: Result | None) -> Row:
    """Where a run was trained and by which code; the versions are the study's until it has ended."""
    found = result.as_json() if result else {}
    return {"versions": manifest.versions} | {name: found[name] for name in ORIGIN if found.get(name)}
