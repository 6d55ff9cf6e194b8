"""The variants of `ablate/conf/` as plain settings, and a small reference configuration made of them."""

import copy
import functools
from typing import Any

import yaml

from ablate.config.groups import CONF, default_settings
from ablate.config.schema import VARIED


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
