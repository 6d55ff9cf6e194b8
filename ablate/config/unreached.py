"""Settings that do not reach a variant that stands where they would: told with the plan, for nothing is ignored unsaid.

No torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.config.compose import Composed
from ablate.config.depth import named_variants, patterned
from ablate.config.overrides import parsed
from ablate.config.plain_yaml import read_plain
from ablate.config.schema import COMPONENTS, LAYERS, Config


def unreached(cells: list[tuple[Composed, list[str]]], presets: dict[str, Path]) -> list[str]:
    """What does not reach some variants of cells, each with the overrides that made it; in words, each once."""
    chosen = {cell.choices.get("preset", "") for cell, _ in cells}
    files = {name: read_plain(file) for name, file in presets.items() if name in chosen}
    told: dict[str, None] = {}
    for cell, overrides in cells:
        told |= dict.fromkeys(in_patterns(cell.config, overrides))
        told |= dict.fromkeys(beside_preset(cell, files.get(cell.choices.get("preset", ""), {})))
    return list(told)


def in_patterns(config: Config, overrides: list[str]) -> Iterator[str]:
    """Keys that some variants of a pattern over the layers take, and others do not have."""
    written = [parsed(text).key_or_group for text in overrides if "=" in text]
    keys = [key.split(".") for key in (*written, config.tune.key or "")]
    for group in patterned(config):
        variants = named_variants(getattr(config, group), "")
        for key in (path[1] for path in keys if path[0] == group and len(path) > 1):
            lacking = [name for name, node in variants.items() if key not in node]
            if lacking:
                taking = [name for name in variants if name not in lacking]
                yield f"{group}.{key} reaches {', '.join(taking)}, not {', '.join(lacking)}"


def beside_preset(cell: Composed, file: dict[str, Any]) -> Iterator[str]:
    """Keys that a preset sets for its own variants, which those chosen instead do not have."""
    whole = cell.config.as_json() if file else {}
    for group in (name for name in (*COMPONENTS, "model") if name in file):
        sets, node = dict(file.get(group) or {}), whole[group] or {}
        if sets.pop(LAYERS, None) == node.get(LAYERS, ""):
            continue  # its own pattern, of which each variant has what is its
        for name, own in named_variants(node, cell.choices.get(group, "")).items():
            if lacking := sets.keys() - own.keys():
                yield f"{group}={name} is without {', '.join(sorted(lacking))}, which {cell.choices['preset']} sets"
