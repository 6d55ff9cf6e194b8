"""What to write instead of a key that a configuration does not have."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ablate.config.choices import Choice
from ablate.config.files import read_plain
from ablate.config.groups import STUDY_FILE_KEYS, Groups, named_elsewhere
from ablate.config.schema import KEYS, SECTIONS, VARIED, Config, types_of
from ablate.formatting import first_of, instead, nearest, show

SURELY = 0.8  # the share of letters that two spellings have in common where one is surely meant
SIMILAR = 0.7  # for a word that may also be none of ours: "plan" and "clean" have 0.67
MOST_KEYS = 12  # that are listed
MOST_VARIANTS = 4


def unknown_key(
    key: str, value: Any, nodes: Iterable[Mapping[str, Any]], choices: Mapping[str, Choice], groups: Groups
) -> str:
    """The message for a key that no variant of its section has; `nodes` are their settings."""
    section, _, name = key.partition(".")
    variants = having(section, name, groups)
    whose = f"{section}={choices[section].text}" if section in choices else section
    if variants:
        verb = "has" if len(variants) == 1 else "have"
        usual = groups.defaults.get(section)
        example = f"{section}={usual if usual in variants else variants[0]}"
        if section in VARIED:
            example += f"({name}={show(value)})"
        return f"{whose} has no such key; {section}={first_of(variants, MOST_VARIANTS)} {verb} it: write {example}"
    keys = sorted({key for node in nodes for key in node if not key.startswith("_")})
    misspelt = difflib.get_close_matches(name, keys, 1, SURELY)  # train.step means train.steps
    meant = f"{section}.{misspelt[0]}" if misspelt else named_elsewhere().get(name.lower())
    near = nearest(name, keys)
    if meant or near:
        return f"no such key; did you mean {meant or f'{section}.{near}'}?"
    there = first_of(keys, MOST_KEYS) or "none"
    if section in SECTIONS or section not in choices:
        return f"no such key; there are {there}"
    return f"no such key of {whose}, which has {there}; what its YAML leaves out takes a plus: +{key}"


def unknown_section(key: str, groups: Groups) -> str:
    """The message for a key whose first part is no section, group or key."""
    if key == "hold":
        return "no such key; write the setting for all configurations, as in ffn.bias=true"
    head, _, last = key.rpartition(".")
    elsewhere = named_elsewhere()
    section = elsewhere.get(head)
    if section is None:
        names = sorted({*KEYS, *groups.variants, *STUDY_FILE_KEYS, "experiment"} - {"seed"})  # seedz means seeds
        return f"no such key; {instead(last, names, elsewhere)}"
    # As other programs name it: wandb.project means track.project.
    meant = f"{section}.{last}" if having(section, last, groups) else section
    return f"no such key; did you mean {meant}?"


def instead_of_word(word: str, commands: Collection[str] = ()) -> str:
    """What to write instead of a word that is no key=value: of --seeds "write seeds=VALUE", or the command meant."""
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
    is_switch = meant in KEYS and types_of(Config)[meant] is bool
    return f"write {meant}={'true' if is_switch else 'VALUE'}"


def having(group: str, name: str, groups: Groups) -> list[str]:
    """The variants of a group whose YAML has a key."""
    variants = []
    for variant, file in groups.variants.get(group, {}).items():
        if name in (read_plain(file) or {}):
            variants.append(variant)
    return variants
