"""What a manifest must be before anything is made of it: somebody else may have written it, or a disk damaged it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NEEDED = ("study", "cells", "runs", "seeds", "factors", "components", "reference", "tasks", "looks", "units")
OTHERS = ("confirms", "tunes", "placebo_of", "exchange_of", "placebos", "exchange")  # names of studies, or null
TEXTS = ("command", "created", "updated", "design", "match")
MAPPINGS = ("claims", "withdrawn", "aliases", "papers", "versions")
LISTS = ("remarks", "zip")
Check = Callable[[Any], bool]


def flaw(manifest: dict[str, Any]) -> str | None:
    """The first thing that a manifest lacks, or has and cannot have, as the end of a sentence; or None."""
    missing = {key for key in NEEDED if key not in manifest or (key in ("cells", "runs") and not manifest[key])}
    if missing:
        return f"has no {', '.join(sorted(missing))}"
    return next(_flaws(manifest), None)


def flaw_of_run(run: Any) -> str | None:
    """The same of one planned run, whose path names a folder of a cell and in it one of a run, and nothing outside."""
    if not isinstance(run, dict):
        return "has a run that is no mapping"
    if not _is_number(run.get("seed")):
        return f"has a run with the seed {run.get('seed')!r}"
    parts = run["path"].split("/") if isinstance(run.get("path"), str) else []
    if len(parts) != 2 or not all(map(is_name, parts)):
        return f"has a run whose path is {run.get('path')!r}, no folder of its results"
    return None


def is_name(value: Any) -> bool:
    """Whether a value can name a file or folder, and nothing outside the one that it is in."""
    return isinstance(value, str) and value not in ("", ".", "..") and not set(value) & set("/\\\0")


def outside(results: Path, paths: list[str]) -> str | None:
    """The first of some runs whose folder links lead out of the results, or None."""
    base, seen = os.path.realpath(results), dict[str, bool]()
    for path in paths:
        cell, _, key = path.partition("/")
        if cell not in seen:
            seen[cell] = _inside(results / "runs" / cell, base)
        folder = results / "runs" / cell / key
        if not seen[cell] or (folder.is_symlink() and not _inside(folder, base)):
            return path
    return None


def _inside(folder: Path, base: str) -> bool:
    return os.path.realpath(folder).startswith(base + os.sep)


def _flaws(manifest: dict[str, Any]) -> Iterator[str]:
    yield from (f"names the study {manifest[key]!r}" for key in ("study", *OTHERS) if not _is_study(manifest, key))
    kinds: dict[str, Check] = dict.fromkeys(("factors", "reference", "tasks", "units", *MAPPINGS), _is_mapping)
    kinds |= dict.fromkeys(("cells", "runs", "seeds", "components", "looks", *LISTS), _is_list)
    kinds |= dict.fromkeys(TEXTS, lambda value: isinstance(value, str))
    kinds["sequential"] = lambda value: value is None or _is_mapping(value)
    for key in kinds.keys() & manifest.keys():
        if not kinds[key](manifest[key]):
            yield f"has {key} that are none" if key in NEEDED else f"has no {key} that can be read"
            return
    yield from _of_lists(manifest)
    yield from _of_cells(manifest)
    yield from filter(None, map(flaw_of_run, manifest["runs"]))
    known = {cell["id"] for cell in manifest["cells"]}
    yield from (f"has a run of a cell {run.get('cell')!r}, which it has not" for run in manifest["runs"]
                if str(run.get("cell")) not in known)  # fmt: skip


def _of_lists(manifest: dict[str, Any]) -> Iterator[str]:
    if not _are_numbers(manifest["seeds"]):
        yield "has seeds that are none"
    if not all(_is_mapping(look) and _are_numbers(look.get("seeds")) for look in manifest["looks"]):
        yield "has looks that are none"
    if not all(map(_is_task, manifest["tasks"].values())):
        yield "has tasks that are none"
    if not all(map(_is_list, manifest["units"].values())):
        yield "has units that are none"
    margin, plan = manifest.get("margin") or {}, manifest.get("sequential") or {"looks": [], "at": 0}
    if not _is_mapping(margin) or not isinstance(margin.get("value"), str | int | float | None):
        yield "has a margin that is none"
    if not _are_numbers(plan.get("looks")) or not _is_number(plan.get("at")):
        yield "has looks in sequence that are none"
    if not all(_is_mapping(claim) for key in ("claims", "withdrawn") for claim in manifest.get(key, {}).values()):
        yield "has claims that are none"
    factors = manifest["factors"]
    if not all(_is_list(levels) and levels and all(map(_is_level, levels)) for levels in factors.values()):
        yield "has factors that are none"
        return
    if not all(isinstance(name, str) and name in factors for name in manifest["components"]):
        yield "has components that are no factors of it"
    for name, level in manifest["reference"].items():
        if name not in factors or level not in factors[name]:
            yield f"has the reference {name}={level}, which is no level of its factors"


def _of_cells(manifest: dict[str, Any]) -> Iterator[str]:
    for cell in manifest["cells"]:
        if not _is_mapping(cell) or not all(isinstance(cell.get(key), str) for key in ("id", "name", "label")):
            yield "has cells that are none"
            return
        if not is_name(cell["name"]):
            yield f"has a cell with the name {cell['name']!r}, which can name no folder"
        levels, config = cell.get("levels"), cell.get("config")
        if not _is_mapping(levels) or not all(map(_is_level, levels.values())) or manifest["factors"].keys() - levels:
            yield f"has no levels of its cell {cell['label']}"
        if not _is_mapping(config):
            yield f"has no configuration of its cell {cell['label']}"
        if cell.get("task") is not None and str(cell["task"]) not in manifest["tasks"]:
            yield f"has no task of its cell {cell['label']}"


def _is_task(value: Any) -> bool:
    texts = ("name", "title", "kind", "token")
    if not _is_mapping(value) or not all(isinstance(value.get(key, ""), str) for key in texts):
        return False
    ways, marks, units = value.get("metrics"), value.get("yardsticks", {}), value.get("units", {})
    if not all(_is_words(value.get(key, [])) for key in ("shares", "beside")) or not _is_mapping(units):
        return False
    return (
        _is_mapping(ways)
        and len(ways) > 0
        and all(way in ("min", "max") for way in ways.values())
        and _is_mapping(marks)
        and _is_words(list(units.values()))
        and all(isinstance(mark, int | float | None) for mark in marks.values())
    )


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _is_study(manifest: dict[str, Any], key: str) -> bool:
    return is_name(manifest.get(key)) or (key in OTHERS and manifest.get(key) is None)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_level(value: Any) -> bool:
    return isinstance(value, str | int | float | None)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
