"""The variants of `ablate/conf/` as plain settings, and a small reference configuration made of them."""

import copy
import functools
from typing import Any

import pytest
import yaml

from ablate.config.groups import CONF, default_settings
from ablate.config.schema import COMPONENTS, VARIED


def component(group: str, variant: str) -> dict[str, Any]:
    """A variant's YAML."""
    return copy.deepcopy(parsed(group, variant))


@functools.cache
def parsed(group: str, variant: str) -> dict[str, Any]:
    """A variant's YAML, parsed once for all tests."""
    settings: dict[str, Any] = yaml.safe_load((CONF / group / f"{variant}.yaml").read_text())
    return settings


CONFIG: dict[str, Any] = {
    **{group: default_settings(group) for group in VARIED},
    "model": default_settings("model") | {"layers": 2, "heads": 2, "dim": 16},
    "data": {"context": 12},
}


def cells() -> list[dict[str, Any]]:
    """The reference and every cell that differs from it in one component."""
    configs = [CONFIG]
    for group in COMPONENTS:
        for file in sorted((CONF / group).glob("*.yaml")):
            settings = component(group, file.stem)
            if settings != CONFIG[group]:
                configs.append(CONFIG | {group: settings})
    for config in configs:
        if config["embedding"]["frozen"]:  # a frozen embedding cannot be the head
            config["model"] = CONFIG["model"] | {"tie_embeddings": False}
    return configs


def name_of(config: dict[str, Any]) -> str:
    """A cell in a test's name."""
    return "-".join(config[group]["_target_"].rpartition(".")[2] for group in COMPONENTS)


each_cell = pytest.mark.parametrize("config", cells(), ids=name_of)
