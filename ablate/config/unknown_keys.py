"""What to write instead of a key that a configuration does not have."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from ablate.config.choices import Choice
from ablate.config.files import read_plain
from ablate.config.groups import Groups, named_elsewhere
from ablate.config.schema import KEYS, LAYERS, SECTIONS, Config, types_of
from ablate.formatting import first_of, instead, nearest, show

SURELY = 0.8  # the share of letters that two spellings have in common where one is surely meant
SIMILAR = 0.7  # for a word that may also be none of ours: "plan" and "clean" have 0.67
MOST_KEYS = 12  # that are listed


def unknown_key(key: str, config: Mapping[str, Any], choices: Mapping[str, Choice], groups: Groups) -> str:
    """The message for a key that the composed configuration does not have."""
    section, _, name = key.partition(".")
    variants = having(section, name, groups)
    if variants:
        verb = "has" if len(variants) == 1 else "have"
        return f"no such key here; {section}={', '.join(variants)} {verb} it"
    similar = similar_key(section, name, config)
    if similar:
        return f"no such key; did you mean {similar}?"
    keys = first_of(sorted(keys_of(config[section])), MOST_KEYS) or "none"
    if section in SECTIONS or section not in choices:
        return f"no such key; there are {keys}"
    whose = f"{section}={choices[section].text}"
    return f"no such key of {whose}, which has {keys}; what its YAML leaves out takes a plus: +{key}"


def only_some_have(key: str, value: Any, having_it: list[str], lacking_it: list[str]) -> str:
    """The message for a key that only some of the swept variants have."""
    section, _, name = key.partition(".")
    has = ", ".join(f"{section}={name}" for name in having_it)
    lacks = ", ".join(f"{section}={name}" for name in lacking_it)
    example = f"{section}={having_it[0].partition('(')[0]}({name}={show(value)})"
    return f"only {has} has this key, not {lacks}; write it behind the variant's name, as in {example}"


def unknown_section(key: str, groups: Groups) -> str:
    """The message for a key whose first part is no section, group or key."""
    if key == "hold":
        return "no such key; write the setting for all configurations, as in ffn.bias=true"
    head, _, last = key.rpartition(".")
    elsewhere = named_elsewhere()
    section = elsewhere.get(head)
    if section is None:
        names = sorted({*KEYS, *groups.variants, "experiment"} - {"seed"})  # seedz means seeds
        return f"no such key; {instead(last, names, elsewhere)}"
    # As other programs name it: wandb.project means track.project.
    meant = f"{section}.{last}" if having(section, last, groups) else section
    return f"no such key; did you mean {meant}?"


def instead_of_word(word: str, value: str = "", commands: Collection[str] = ()) -> str:
    """What to write instead of a word that is no key=value: of --seeds 5 "write seeds=5", or the command meant."""
    name = word.strip("-").replace("-", "_")
    if name == "config_dir":
        return "write --config-dir DIR"
    names = named_elsewhere() | {command: command for command in commands}
    near = difflib.get_close_matches(name, names, 1, SIMILAR)
    if not near:
        return "see ablate --help"
    meant = names[near[0]]
    if meant in commands:
        return f"did you mean {meant}?"
    if not value or meant != name:  # a key of another name may have another unit
        value = "true" if meant in KEYS and types_of(Config)[meant] is bool else "VALUE"
    return f"write {meant}={value}"


def having(group: str, name: str, groups: Groups) -> list[str]:
    """The variants of a group whose YAML has a key."""
    variants = []
    for variant, file in groups.variants.get(group, {}).items():
        if name in (read_plain(file) or {}):
            variants.append(variant)
    return variants


def similar_key(section: str, name: str, config: Mapping[str, Any]) -> str | None:
    """The key that a misspelt one may mean: spelled alike, of that name in another section, or called so elsewhere."""
    own_keys = keys_of(config[section])
    misspelt = difflib.get_close_matches(name, own_keys, 1, SURELY)
    if misspelt:  # train.step means train.steps
        return f"{section}.{misspelt[0]}"
    elsewhere = named_elsewhere().get(name.lower())
    if elsewhere:
        return elsewhere
    meant = nearest(name, own_keys)
    return f"{section}.{meant}" if meant else None


def keys_of(node: Any) -> list[str]:
    """The keys of a section; of several variants those of all."""
    if isinstance(node, list):
        node = {LAYERS: "", **{str(i): variant for i, variant in enumerate(node)}}
    if not isinstance(node, dict):
        return []
    if LAYERS not in node:
        return [key for key in node if not key.startswith("_")]
    keys = []
    for variant in node.values():
        keys += [key for key in keys_of(variant) if key not in keys]
    return keys
