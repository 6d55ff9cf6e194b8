"""Single values set in a configuration again and again: what each gives is found once, as sweeps need it.

A copy of a configuration and what OmegaConf makes of it cost a hundred times as much as a value in plain data.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ablate.config.overrides import parsed, refuse_misshapen


class Settable:
    """A configuration, and the same as plain data, in which values can be set."""

    def __init__(self, config: DictConfig, plain: dict[str, Any]):
        self.config, self.plain = config, plain
        self.alone = not refers(OmegaConf.to_container(config))  # no value refers to another
        self.values: dict[str, Any] = {}

    def having(self, texts: Iterable[str]) -> dict[str, Any] | None:
        """The plain data with values set; None where that takes more, or does not go."""
        found = copied(self.plain)
        try:
            for text in texts if self.alone else ():
                *heads, last = parsed(text).key_or_group.split(".")
                functools.reduce(dict.__getitem__, heads, found)[last] = self.value(text)
            refuse_misshapen(found)
        except (HydraException, OmegaConfBaseException, ValueError, KeyError, TypeError):
            return None
        return found if self.alone else None

    def value(self, text: str) -> Any:
        """What a key has once an override set it, over what was set there before: nothing else depends on it."""
        if text not in self.values:
            set_keys(self.config, [text])
            self.values[text] = OmegaConf.select(self.config, parsed(text).key_or_group)
        return self.values[text]


def set_keys(config: DictConfig, texts: Iterable[str]) -> None:
    """Set keys as Hydra does.  Raises what Hydra and OmegaConf raise."""
    ConfigLoaderImpl._apply_overrides_to_config([parsed(text) for text in texts], config)


def sets_a_value(text: str) -> bool:
    """Whether an override gives a key that is to be there already a number, a word or the like; none that refers."""
    override = parsed(text)
    value = override.value() if override.type == OverrideType.CHANGE and not override.is_sweep_override() else []
    return value is None or (isinstance(value, bool | int | float | str) and not refers(value) and value != MISSING)


def overlapping(texts: Iterable[str]) -> bool:
    """Whether some of these overrides set one key, or a key and a part of it."""
    paths = [(*parsed(text).key_or_group.split("."),) for text in texts]
    return any(one[: len(other)] == other for one, other in itertools.permutations(paths, 2))


def refers(value: Any) -> bool:
    """Whether a text in plain data refers to something else, as `results_dir` alone does in the frame."""
    if isinstance(value, dict):
        return any(refers(item) for key, item in value.items() if key != "results_dir")
    return any(map(refers, value)) if isinstance(value, list) else isinstance(value, str) and "${" in value


def copied(value: Any) -> Any:
    """Plain data anew: what is set in one configuration is set in no other."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value
