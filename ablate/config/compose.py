"""Composes the command line into resolved configurations with Hydra; `blame` explains its errors."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ablate.config.components import taken_by
from ablate.config.depth import is_pattern, names_of, split_settings, variant_of
from ablate.config.files import read_plain
from ablate.config.groups import CONF, Groups, default_choices, default_settings
from ablate.config.overrides import choice_of, chosen, key_of, parsed, refuse_misshapen
from ablate.config.schema import LAYERS, OWNED, PLACED, WHOLE, Config, typed

# The errors of composing a bad override; Hydra raises ValueError for a group that is null.
COMPOSING = (HydraException, OmegaConfBaseException, ValueError)
MOST = 256  # the most choices of groups that are cached for the next plan


def copied(node: DictConfig) -> DictConfig:
    """A deep copy by pickling; `copy.deepcopy` takes four times as long."""
    return pickle.loads(pickle.dumps(node))


def plain_of(file: Path) -> dict[str, Any]:
    """The settings in a file, unresolved, without those of Hydra."""
    found: Any = OmegaConf.to_container(OmegaConf.load(file))
    return {key: value for key, value in found.items() if key not in ("defaults", "hydra")}


@functools.cache
def blank() -> DictConfig:
    """The base schema without values, writable though its dataclasses are frozen; to be copied, as that is faster."""
    node: DictConfig = OmegaConf.structured(Config)
    for part in (node, *(node._get_node(key) for key in node)):
        if isinstance(part, DictConfig):
            OmegaConf.set_readonly(part, None)
    for name in OWNED:
        OmegaConf.set_struct(node[name], False)  # variants may add keys
    return node


class Composed(NamedTuple):
    """One resolved configuration without a seed, and the variant chosen for each group."""

    config: Config
    choices: dict[str, str]


Made = tuple[DictConfig, dict[str, str]]


@functools.lru_cache(maxsize=2)
def cache_of(search: tuple[str, ...], files: tuple[Any, ...]) -> tuple[dict[tuple[str, ...], Made], dict[str, Any]]:
    """What is composed of these files by choices of groups, and what they set; empty after one is edited."""
    return {}, {"": plain_of(CONF / "config.yaml")}


def states(files: Iterable[Path]) -> Iterator[tuple[Any, ...]]:
    """Path, inode, mtime, ctime and size of the files that exist."""
    for file in files:
        with contextlib.suppress(OSError):
            found = file.stat()
            yield file, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


class Composer:
    """Hydra, initialised once for many compositions; a context manager."""

    def __init__(self, groups: Groups, takes: Callable[[Config, str, str], bool] | None = None):
        """`takes(config, group, key)`: whether a component has an argument that its YAML does not set."""
        self.takes = takes or (lambda config, group, key: key in taken_by(group, getattr(config, group), config.user))
        folder = groups.folder
        self.search = [f"hydra.searchpath=['file://{Path(folder).resolve()}']"] if folder else []
        self.known, self.defaults = groups.variants, groups.defaults
        variants = itertools.chain(*(each.values() for each in self.known.values()))
        nested = sorted(Path(folder).glob("*/*/*.yaml")) if folder else []  # nested groups
        files = map(Path.absolute, [CONF / "config.yaml", *variants, *groups.studies.values(), *groups.own, *nested])
        self.made, self.parts = cache_of(tuple(self.search), tuple(states(files)))
        if len(self.made) > MOST:
            self.made.clear()

    def __enter__(self) -> Composer:
        if "schema.yaml" not in ConfigStore.instance().repo:  # `conf/config.yaml` refers to it
            ConfigStore.instance().store(name="schema", node=blank())
        GlobalHydra.instance().clear()
        initialize_config_dir(str(CONF), version_base="1.3")
        return self

    def __exit__(self, *error: Any) -> None:
        GlobalHydra.instance().clear()

    def compose(self, overrides: list[str]) -> Composed:
        """One configuration: a choice of groups is composed once, and keys are set on a copy.  Raises `COMPOSING`."""
        # The preset's patterns and the reference model's tracking services, for groups that no override chooses.
        preset = tuple(text for text in overrides if self.group_of(text) == "preset")
        own = self.pattern_in(self.chosen(preset)[0]) if preset else {}
        own |= {group: f"[{','.join(each)}]" for group, each in default_choices().items() if isinstance(each, list)}
        taken = {self.group_of(text) for text in overrides}
        overrides = overrides + [choice_of(group, pattern) for group, pattern in own.items() if group not in taken]
        if any(map(self.pattern_of, overrides)):
            return self.over_depth(overrides)
        groups = tuple(self.plain(text) for text in overrides if self.chooses_group(text))
        keys = [text for text in overrides if not self.chooses_group(text)]
        given = {*map(key_of, keys)} | {text.partition("=")[2] for text in keys if key_of(text) == "tune.key"}
        shown = {}
        for text in overrides:
            if (group := self.group_of(text)) and "(" in text:
                shown[group] = chosen(text)
                keys += self.settings(group, chosen(text), given)
        return Composed(typed(self._with_keys(groups, keys)), self.chosen(groups)[1] | shown)

    def plain(self, text: str) -> str:
        """An override, without the settings that it gives with a choice."""
        return f"{text.partition('=')[0]}={variant_of(chosen(text))}" if self.group_of(text) and "(" in text else text

    def settings(self, group: str, choice: str, given: set[str]) -> Iterator[str]:
        """The overrides for a choice's own settings.  Raises ValueError for keys that are `given` separately, too."""
        file = self.known[group].get(variant_of(choice))
        own = [key for key in (file and read_plain(file)) or {} if not key.startswith("_")]
        more = [key for key in own if key not in default_settings(group)] if group in self.defaults else own
        variant, example, found = variant_of(choice), (more or own or ["SETTING"])[0], dict[str, str]()
        for name, value in split_settings(group, choice, self.known[group])[0]:
            if not value or (not name and not found and len(more) != 1):
                what, how = "setting" if value else "value", f"{name or example}={value.lstrip('=') or 'VALUE'}"
                raise ValueError(f"does not say which {what}; write {group}={variant}({how})")
            name = name or next(reversed(found), example)  # without a name: of the setting before
            if name in found:
                each = ",".join(f"{variant}({name}={one})" for one in (found[name], value))
                raise ValueError(f"gives {name} twice; write it once, or {group}={each} to compare them")
            found[name] = value
            if name.partition(".")[0] not in own and not re.fullmatch(r"(?a)[A-Za-z]\w*", name):
                raise ValueError(f"{name} is no setting of {variant}; its own have bare names, as in {example}=VALUE")
            key = f"{group}.{name}"
            if "${" in value:
                raise ValueError(f"{value} stands for a value; write the value itself")
            if key in given:
                raise ValueError(f"{key} is given twice, also by {group}={choice}; leave one out")
            yield f"++{key}={value}"

    def pattern_of(self, text: str) -> list[str]:
        """The variants of a pattern over the layers, or of a list of tracking services; empty for a single one."""
        group = self.group_of(text)
        if group == "track":
            value = parsed(text).value()
            return [str(each) for each in value] if isinstance(value, list) else []
        choice = chosen(text) if group in PLACED else ""
        return names_of(choice, self.known[group]) if group and is_pattern(choice, self.known[group]) else []

    def pattern_in(self, config: DictConfig) -> dict[str, str]:
        """The patterns over the layers in a composed configuration, by group."""
        nodes = {group: config.get(group) or {} for group in PLACED}
        return {group: node[LAYERS] for group, node in nodes.items() if node.get(LAYERS)}

    def each_variant(self, groups: Iterable[str]) -> Iterator[tuple[str, ...]]:
        """These choices of groups, once with each variant of a pattern in place of the pattern."""
        named = [
            [f"{text.partition('=')[0]}={variant_of(name)}" for name in self.pattern_of(text)] or [self.plain(text)]
            for text in groups
        ]
        return itertools.product(*named)

    def over_depth(self, overrides: list[str]) -> Composed:
        """`compose` for overrides with patterns over the layers or several tracking services."""
        found = {text: self.pattern_of(text) for text in overrides}
        shown = {text.partition("=")[0]: text for text, names in found.items() if names}
        rest = [text for text in overrides if text not in shown.values()]
        others = [text for text in rest if text.lstrip("+").partition(".")[0] not in shown]
        whole = self.compose([*others, *(choice_of(group, found[text][0]) for group, text in shown.items())])
        for group, text in shown.items():
            own = [each for each in rest if each.lstrip("+").startswith(f"{group}.")]
            variants = self._variants(group, found[text], others, own)
            node = {LAYERS: chosen(text), **variants} if group in PLACED else [*variants.values()]
            whole = Composed(whole.config.with_value(group, node), whole.choices | {group: chosen(text)})
        return whole

    def _variants(self, group: str, names: list[str], others: list[str], own: list[str]) -> dict[str, Any]:
        """The settings of a group's variants, each with the keys of `own` that it has; keys that none has go to all."""
        bare = {name: self.compose([*others, choice_of(group, name)]).config for name in names}

        def has(name: str, text: str) -> bool:
            key, node = parsed(text).key_or_group.split(".")[1], getattr(bare[name], group)
            return key in node or (text.startswith("+") and self.takes(bare[name], group, key))

        lost = [text for text in own if not any(has(name, text) for name in names)]
        taken = {name: [text for text in own if text in lost or has(name, text)] for name in names}
        whole = {name: self.compose([*others, choice_of(group, name), *taken[name]]) for name in names if own}
        return {name: getattr(whole[name].config if own else bare[name], group) for name in names}

    def _with_keys(self, groups: tuple[str, ...], keys: list[str]) -> dict[str, Any]:
        """The configuration of these choices of groups with keys set, resolved to plain data."""
        config = copied(self.chosen(groups)[0])
        for override in map(parsed, keys):  # as Hydra does
            key, value, adds = override.key_or_group, override.value(), override.is_add()
            single = adds and not isinstance(value, dict | list)
            if single and OmegaConf.select(config, key, throw_on_missing=False) is not None:
                raise HydraException(f"an item is already at {key}")
            OmegaConf.update(config, key, value, merge=True, force_add=adds or override.is_force_add())
        try:
            resolved = OmegaConf.to_container(config, resolve=True)
        except OmegaConfBaseException:  # `refuse_misshapen` has better messages for wrong types
            resolved = OmegaConf.to_container(OmegaConf.masked_copy(config, list(config)), resolve=True)
        assert isinstance(resolved, dict)
        for key, value in resolved.items():  # convert interpolated values to the key's type, too
            if OmegaConf.is_interpolation(config, str(key)) and not isinstance(value, dict | list):
                resolved[key] = config[key]
        refuse_misshapen(resolved)
        return {str(key): value for key, value in resolved.items()}

    def chosen(self, groups: tuple[str, ...]) -> Made:
        """The configuration of these choices of groups, and every group's variant; cached."""
        if groups not in self.made:
            made = None
            with contextlib.suppress(*COMPOSING, yaml.YAMLError, OSError):
                made = self.joined(groups)  # if files are invalid, Hydra has better messages
            made = made or self.composed(groups)
            if self.search:
                self.refuse_keys_of_studies(made[0], groups)
            self.made[groups] = made
        return self.made[groups]

    def composed(self, groups: tuple[str, ...]) -> Made:
        """`chosen` for choices that Hydra composes."""
        config = compose("config", [*self.search, *groups], return_hydra_config=True)
        choices = {name: choice for name, choice in config.hydra.runtime.choices.items() if "/" not in name}
        with open_dict(config):  # Hydra's own settings would be three quarters of each copy
            del config["hydra"]
        for name in OWNED:
            OmegaConf.set_struct(config[name], None)  # keys that no variant has are refused as misspelt
        self.drop_idle(config, choices, groups)
        return config, choices

    def refuse_keys_of_studies(self, config: DictConfig, groups: tuple[str, ...]) -> None:
        """Raise ValueError if a variant's file sets a key of a whole study (but `track`, which variants of it may)."""
        track = tuple(text for text in groups if self.group_of(text) == "track")
        for choice, keys in ((), [key for key in WHOLE if key != "track"]), (track, ["track"]):
            plain = self.chosen(choice)[0] if choice != groups else config
            found, given = (OmegaConf.masked_copy(each, list(keys)) for each in (config, plain))
            if other := [key for key in keys if found._get_node(key) != given._get_node(key)]:
                raise ValueError(f"sets {other[0]}, a key of a whole study; write it on the command line")

    def joined(self, groups: tuple[str, ...]) -> Made | None:
        """`composed` in an eighth of the time, by merging files in the order of the defaults; None for what only Hydra
        can compose: files that choose groups, and groups beyond the defaults."""
        usual = {group: name for group, name in self.defaults.items() if group in self.known}
        given = dict(text.split("=", 1) for text in groups)
        choices = usual | given
        parts = [self.part(f"{group}={name}") for group, name in choices.items()]
        if None in parts or len(given) < len(groups) or choices.keys() != usual.keys():
            return None
        config = copied(blank())
        config.merge_with(self.parts[""], *parts)
        for name in OWNED:
            OmegaConf.set_struct(config[name], None)
        OmegaConf.set_struct(config, True)
        return config, dict(reversed(choices.items()))

    def part(self, text: str) -> Mapping[str, Any] | None:
        """What the file of a variant sets in a configuration: keys of its group or, as a scale does, of all; None if it
        chooses groups, too, or if there is no such file."""
        group, _, variant = text.partition("=")
        if text not in self.parts:
            file = self.known.get(group, {}).get(variant)
            written = file.read_text(encoding="utf-8", errors="replace") if file else ""
            whole = "@package _global_" in written
            if not file or "defaults" in written or whole != ("@package" in written):
                self.parts[text] = None
            else:
                self.parts[text] = plain_of(file) if whole else {group: plain_of(file)}
        return self.parts[text]

    def drop_idle(self, config: DictConfig, choices: dict[str, str], groups: tuple[str, ...]) -> None:
        """Remove a preset's settings for its own variants from groups with another variant that lacks these keys."""
        preset = tuple(text for text in groups if self.group_of(text) == "preset")
        if not preset or preset == groups:
            return
        (own, chosen), plain = self.chosen(preset), self.chosen(tuple(t for t in groups if t not in preset))[0]
        patterns = self.pattern_in(own)
        for group, choice in choices.items():
            if group not in config or (choice == chosen.get(group) and group not in patterns):
                continue
            others = names_of(patterns.get(group, ""), self.known[group])
            lacking = (config[group] or {}).keys() - (plain[group] or {}).keys()
            if choice in others:  # a variant of the preset's own pattern loses only the keys of its other variants
                lacking &= {LAYERS, *(key for name in others for key in read_plain(self.known[group][name]))}
            if lacking:
                rest = OmegaConf.masked_copy(config[group], [*(config[group].keys() - lacking)])
                with open_dict(config):  # sections of the base schema are typed
                    config[group] = OmegaConf.merge(plain[group], rest) if group in OWNED else rest

    def chooses_group(self, text: str) -> bool:
        """Whether an override is one of groups (or of Hydra's own settings), not of a key."""
        key = text.partition("=")[0]
        return self.group_of(text) is not None or key.startswith(("~", "hydra.")) or "/" in key or "@" in key

    def group_of(self, text: str) -> str | None:
        """The group for which an override chooses a variant; None for a key."""
        key = text.partition("=")[0].lstrip("+~").partition("@")[0]
        return key if key in self.known else None
