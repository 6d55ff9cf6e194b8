"""Configurations, joined from files that Hydra reads: the reference model, choices of variants, a preset, single keys.

Hydra finds and reads each file once: its search path, its package, its defaults list.  A configuration then has,
section by section, what the reference model, the chosen variants in the order of the defaults list, the preset, and the
keys of the command line set.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import GroupDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ablate.config.choices import Choice, Variant, parse_choice
from ablate.config.claims import Levels
from ablate.config.depth import value_at
from ablate.config.errors import Problem, first_line
from ablate.config.groups import CONF, Groups, default_choices
from ablate.config.read_config import read_config
from ablate.config.schema import COMPONENTS, LAYERS, WHOLE, Config
from ablate.config.targets import BUILT_IN, within
from ablate.config.unknown_keys import unknown_key
from ablate.config.words import services_of

HYDRAS_ERRORS = (HydraException, OmegaConfBaseException, ValueError)  # ValueError: for a group that is null
PRESET = "preset"

Plain = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """What a variant's file sets, by section; of a preset, also the choices of other groups."""

    sections: Plain
    choices: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Draft:
    """A cell before it is checked: its configuration without a seed, and what distinguishes it from other cells."""

    config: Config  # before anything is resolved or matched
    choices: dict[str, str]  # the text of each group's choice, after which its folder is named
    label: str = ""
    levels: Levels = field(default_factory=dict)
    reference: int = 0  # the index of the cell that it is compared with


class Composer:
    """Composes configurations and collects problems; a context manager, since Hydra is initialised for it."""

    def __init__(self, groups: Groups):
        self.groups = groups
        self.base: Plain = {}  # the reference model's settings outside of its variants
        self.parts: dict[tuple[str, str], Part] = {}
        # Dictionaries stand for sets that keep their order.
        self.problems: dict[Problem, None] = {}
        self.remarks: dict[str, None] = {}  # on settings that not all variants have
        self.missed: dict[str, str] = {}  # by key that a configuration does not have: what to write instead

    def __enter__(self) -> Composer:
        initialize_hydra(self.groups)
        self.base = reference_sections()
        return self

    def __exit__(self, *error: Any) -> None:
        GlobalHydra.instance().clear()

    def without_problems(self) -> Composer:
        """A composer of the same files that has found no problems yet."""
        other = Composer(self.groups)
        other.parts = self.parts
        other.base = self.base
        return other

    def compose(self, settings: Mapping[str, Any], added: Collection[str] = ()) -> Draft:
        """A configuration with these choices of groups and values of keys; the keys in `added` need not be there."""
        choices = self.all_choices({key: value for key, value in settings.items() if isinstance(value, Choice)})
        config = self.sections(choices)
        for key, value in settings.items():
            if not isinstance(value, Choice):
                self.set_key(config, key, value, choices, key in added)
        self.resolve(config)
        typed, problems = read_config(config, self.usual)
        self.problems |= dict.fromkeys(problems)
        return Draft(typed, {group: choice.text for group, choice in choices.items()})

    @functools.cached_property
    def usual(self) -> Plain:
        """The reference model, whose values stand in for wrong ones so that other mistakes are found, too."""
        return self.sections(self.all_choices({}))

    def all_choices(self, chosen: dict[str, Choice]) -> dict[str, Choice]:
        """The choice of every group, in the order of the defaults list: by the user, else by a chosen preset, else that
        of the reference model."""
        names: dict[str, Any] = dict(default_choices())
        for group, choice in chosen.items():
            names |= self.part(group, choice.variants[0].name).choices
        choices = {}
        for group, name in names.items():
            if group in chosen:
                choices[group] = chosen[group]
            elif isinstance(name, list):
                choices[group] = services_of(name, self.groups)
            elif group in self.groups.variants:
                choices[group] = parse_choice(group, str(name), self.groups.variants)
        return choices | chosen

    def sections(self, choices: Mapping[str, Choice]) -> Plain:
        """A configuration by section; of a group with several variants, the settings of each."""
        variants = {group: choice.variants[0] for group, choice in choices.items()}
        config = self.joined(variants)
        for group, choice in choices.items():
            if choice.is_pattern:
                nodes = {each.text: self.joined(variants | {group: each})[group] for each in choice.variants}
                config[group] = [*nodes.values()] if group == "track" else {LAYERS: choice.text, **nodes}
        return config

    def joined(self, variants: Mapping[str, Variant]) -> Plain:
        """A configuration with one variant of each group: every file may set every section."""
        config = copy.deepcopy(self.base)
        for group, variant in variants.items():
            if group != PRESET:
                config = merged(config, self.part(group, variant.name).sections)
        if PRESET in variants:
            self.add_preset(config, variants)
        for group, variant in variants.items():
            for key, value in variant.settings.items():
                set_at(config, [group, *key.split(".")], value)
        return config

    def add_preset(self, config: Plain, variants: Mapping[str, Variant]) -> None:
        """Add a preset's settings in place.  Variants that it does not choose get only those that they have."""
        preset = variants[PRESET]
        part = self.part(PRESET, preset.name)
        for section, settings in part.sections.items():
            node = config.setdefault(section, {})
            if section not in variants:
                config[section] = merged(node, settings)
                continue
            variant = variants[section]
            text = part.choices.get(section, variant.name)
            names = [each.name for each in parse_choice(section, text, self.groups.variants).variants]
            keys_of_others: set[str] = set()
            for name in names:
                if name != variant.name:
                    keys_of_others |= set(self.part(section, name).sections.get(section, {}))
            dropped = []
            for key, value in settings.items():
                if key in node or (variant.name in names and key not in keys_of_others):
                    node[key] = merged(node.get(key), value)
                elif variant.name not in names:
                    dropped.append(key)
            if dropped and section in (*COMPONENTS, "model"):
                missing = f"{section}={variant.text} has no {', '.join(sorted(dropped))}"
                self.remarks[f"{missing}; what {preset.text} sets is not applied"] = None

    def set_key(self, config: Plain, key: str, value: Any, choices: Mapping[str, Choice], is_added: bool) -> None:
        """Set a key in place.  Of several variants those that have the key get the value; with `is_added` (+key=value)
        also those whose constructor takes it, or all if none does."""
        section, *path = key.split(".")
        if not path:
            config[section] = value
            return
        nodes = named_nodes(config, section, choices)
        if not all(isinstance(node, dict) for node in nodes.values()):
            self.problems[Problem(key, f"{section} takes one value; write {section}=VALUE")] = None
            return
        targets = [name for name, node in nodes.items() if path[0] in node]
        if is_added and len(nodes) > 1:
            targets = [name for name, node in nodes.items() if path[0] in node or takes(section, node, path[0])]
        if not targets and not is_added:
            self.missed.setdefault(key, unknown_key(key, value, nodes.values(), choices, self.groups))
            return
        lacking = [name for name in nodes if name not in targets]
        if targets and lacking:
            self.remarks[f"{key} reaches {', '.join(targets)}, not {', '.join(lacking)}"] = None
        for name in targets or nodes:
            set_at(nodes[name], path, value)

    def resolve(self, config: Plain) -> None:
        """Resolve interpolations such as ${model.dim} in place."""
        if "${" not in str(config):
            return
        whole = OmegaConf.create(config)
        for path in list(interpolations(config)):
            try:
                value: Any = whole
                for name in path:
                    value = value[name]
            except OmegaConfBaseException as error:
                self.problems[Problem(".".join(map(str, path)), first_line(error))] = None
                value = value_at(self.usual, [str(name) for name in path])
            set_at(config, path, OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value)

    def part(self, group: str, name: str) -> Part:
        """What the file of a variant sets, read once."""
        if (group, name) not in self.parts:
            self.parts[group, name] = self.read(group, name)
        return self.parts[group, name]

    def read(self, group: str, name: str) -> Part:
        """What the file of a variant sets."""
        file = self.groups.variants[group][name]
        state = file.stat()
        result = read_by_hydra(f"{group}/{name}", str(file.absolute()), state.st_mtime_ns, state.st_size)
        sections = at_package(plain(result.config), result.header.get("package") or group)
        defaults = [entry for entry in result.defaults_list or [] if getattr(entry, "path", None) != "_self_"]
        choices: dict[str, str] = {}
        if group == PRESET:
            for entry in defaults:
                if isinstance(entry, GroupDefault):
                    choices[str(entry.group).lstrip("/")] = str(entry.value)
                else:  # another preset, which this one extends
                    other = self.part(PRESET, str(entry.path))
                    sections = merged(other.sections, sections)
                    choices = other.choices | choices
            for section, content in sections.items():
                if isinstance(content, dict) and LAYERS in content:
                    choices[section] = content.pop(LAYERS)
        elif defaults:
            sections = self.composed_by_hydra(group, name)
        keys = [key for key in (*sections, *choices) if key in WHOLE and key != group]  # `track` is a group, too
        for key in keys:
            message = f"sets {key}, a key of a whole study; write it on the command line"
            self.problems[Problem(f"{group}={name}", message)] = None
        return Part(sections, choices)

    def composed_by_hydra(self, group: str, name: str) -> Plain:
        """What a variant with a defaults list of its own changes in the reference model, by section."""
        try:
            usual = plain(compose("config"))
            whole = plain(compose("config", [f"{self.groups.plus(group)}{group}={name}"]))
        except HYDRAS_ERRORS as error:
            why = " ".join(str(error.__cause__ or error).split())
            self.problems[Problem(f"{group}={name}", f"cannot be composed ({why})")] = None
            return {}
        sections = {}
        for section, node in whole.items():
            if section == group or section not in usual:
                sections[section] = node
            elif node != usual[section]:
                sections[section] = differences(usual[section], node)
        return sections

    def all_problems(self) -> list[Problem]:
        """The problems of all configurations, each once."""
        return [*self.problems, *(Problem(key, message) for key, message in self.missed.items())]


def takes(group: str, node: Plain, argument: str) -> bool:
    """Whether the constructor of a variant in a pattern has an argument that its YAML leaves out; of user code, which
    planning does not import, it is assumed, and checked with all other arguments."""
    from ablate.config.components import parameters_of, resolve  # imports the component, so torch

    target = node.get("_target_", "")
    return not within(target, BUILT_IN) or argument in parameters_of(resolve(group, target))


@functools.lru_cache(maxsize=1000)
def read_by_hydra(path: str, file: str, modified: int, size: int) -> Any:
    """A file of a group as Hydra reads it.  All but the path tell only whether it is the one that was read before."""
    return GlobalHydra.instance().config_loader().repository.load_config(path)


def initialize_hydra(groups: Groups) -> None:
    """Initialise Hydra for the folder of built-in variants and the user's folder."""
    if "schema.yaml" not in ConfigStore.instance().repo:  # `ablate/conf/config.yaml` refers to it
        ConfigStore.instance().store(name="schema", node=OmegaConf.create(schema_sections()))
    GlobalHydra.instance().clear()
    initialize_config_dir(str(CONF), version_base="1.3")
    if groups.folder:
        loader = GlobalHydra.instance().config_loader()
        search_path = loader.get_search_path()
        # After the built-in variants, and before the schema, which Hydra wants to be the last.
        search_path.prepend("user", f"file://{Path(groups.folder).absolute()}", SearchPathQuery(provider="schema"))
        loader.repository.initialize_sources(search_path)  # which were those of the path before


def schema_sections() -> Plain:
    """The base schema's default values, by section."""
    return Config().as_json() | {"user": []}


def reference_sections() -> Plain:
    """The base schema with what ablate/conf/config.yaml sets, without any variant."""
    result = GlobalHydra.instance().config_loader().repository.load_config("config")
    content = OmegaConf.to_container(result.config, resolve=True)
    assert isinstance(content, dict)
    return merged(schema_sections(), {str(key): value for key, value in content.items() if key != "hydra"})


def plain(config: Any) -> Plain:
    """A node of OmegaConf as plain data, its interpolations unresolved."""
    content = OmegaConf.to_container(config)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def at_package(content: Plain, package: str) -> Plain:
    """The content of a file by section: below its package, such as norm; _global_ is the root."""
    if package == "_global_":
        return content
    for name in reversed(package.split(".")):
        content = {name: content}
    return content


def merged(node: Any, content: Any) -> Any:
    """Plain data with nested content added; lists and values are replaced."""
    if not isinstance(node, dict) or not isinstance(content, dict):
        return copy.deepcopy(content)
    result = dict(node)
    for key, value in content.items():
        result[key] = merged(result.get(key), value)
    return result


def differences(before: Any, after: Any) -> Any:
    """The part of nested data that differs from before."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    return {key: differences(before.get(key), value) for key, value in after.items() if before.get(key) != value}


def set_at(node: Any, path: list[Any], value: Any) -> None:
    """Set a value at a path of plain data in place; missing mappings are made, and mappings are merged."""
    *above, last = path
    for name in above:
        if isinstance(node, dict) and not isinstance(node.get(name), dict | list):
            node[name] = {}
        node = node[name]
    node[last] = merged(node.get(last), value) if isinstance(node, dict) else value


def interpolations(node: Any, path: tuple[Any, ...] = ()) -> Iterator[list[Any]]:
    """The paths of all strings in plain data that refer to other settings."""
    if isinstance(node, str) and "${" in node:
        yield list(path)
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from interpolations(value, (*path, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from interpolations(value, (*path, i))


def named_nodes(config: Plain, section: str, choices: Mapping[str, Choice]) -> dict[str, Any]:
    """The settings of each variant of a section by name; of a section that is no group, by the section's name."""
    node = config.get(section)
    if isinstance(node, list):
        return {variant.text: each for variant, each in zip(choices[section].variants, node, strict=True)}
    if isinstance(node, dict) and LAYERS in node:
        return {name: each for name, each in node.items() if name != LAYERS}
    return {choices[section].text if section in choices else section: node}


def hydras_own(words: list[str], groups: Groups) -> Any:
    """Hydra's own settings, given words about them such as hydra/launcher=joblib.  Raises HYDRAS_ERRORS."""
    with Composer(groups):
        return compose("config", words, return_hydra_config=True).hydra
