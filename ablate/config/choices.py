"""What a choice of a group says: a variant, a variant with settings, or a pattern of variants over the layers.

    group                                       a variant
    group(groups=4)                             with other settings of its own, which have bare names
    dyt(model.scale_embeddings=true,init=gpt2)  with settings of other components, which come with this choice
    5window+mha                                 a pattern: five layers of window, one of mha, repeated over all layers
    5window+mha+...                             the same, and the last repetition may be cut
    mlp+moe...                                  mlp in the first layer, moe in all others

Choices are also the levels of factors in manifests, which are read here, too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ablate.config.files import read_plain
from ablate.config.groups import other_names
from ablate.config.schema import PLACED, VARIED, WITH_ARGUMENTS
from ablate.formatting import instead, split

ITEM = re.compile(r"(\d*)(.*?)(\.\.\.)?", re.DOTALL)
SETTINGS = re.compile(r"""\((?:[^()"']|"[^"]*"|'[^']*')*\)""")
SETTING = re.compile(r"(?:([\w.]+)\s*=\s*)?(.*)")
NAME = re.compile(r"(?a)[A-Za-z]\w*")
REST = "..."  # after a variant
AGAIN = "+..."  # after a whole pattern
WITH_SETTINGS = (*VARIED, *WITH_ARGUMENTS, "data")  # groups whose choices may have settings in parentheses


Variants = Mapping[str, Mapping[str, Path]]  # by group and name: the files of variants


@dataclass(frozen=True)
class Variant:
    """A variant of a group with the settings that are written behind its name."""

    text: str
    name: str
    own_text: str  # without the settings of other components
    settings: dict[str, Any] = field(default_factory=dict)  # its own, by bare name
    beside: dict[str, Any] = field(default_factory=dict)  # of other components, by key


@dataclass(frozen=True)
class Choice:
    """A choice of a group: one variant, or a pattern of several over the layers."""

    group: str
    text: str
    variants: tuple[Variant, ...]
    is_pattern: bool = False

    @property
    def beside(self) -> dict[str, Any]:
        """The settings of other components that come with this choice."""
        return {} if self.is_pattern else self.variants[0].beside

    def __str__(self) -> str:
        return self.text


def parse_choice(group: str, text: str, variants: Variants) -> Choice:
    """The choice of a group that a text stands for.  Raises ValueError."""
    text = text.strip()
    if "(" in text and group not in WITH_SETTINGS:
        raise ValueError(
            f"{group} takes no settings in parentheses; write keys, as in model.dim=128 or track.project=NAME"
        )
    if not is_pattern(text):
        return Choice(group, text, (parse_variant(group, text, variants),))
    if group not in PLACED:
        raise ValueError(f"only {', '.join(PLACED)} can change over the layers; write one variant")
    choices = tuple(parse_variant(group, name, variants) for name in names_of(text))
    open_ends = sum(times is None for _, times in items_of(text)) + text.endswith(AGAIN)
    if open_ends > 1 or any(re.match(r"0|\d.*\.\.\.$", word) for word in split(text, "+")):
        raise ValueError("takes a number from 1 before a variant, or ... behind one of them, which fills other layers")
    if len(choices) == 1:
        raise ValueError(f"has one variant in every layer; write {group}={choices[0].text}")
    for variant in choices:
        for key in variant.beside:
            raise ValueError(f"{key} cannot change over the layers; leave it out")
    return Choice(group, text, choices, is_pattern=True)


def parse_variant(group: str, text: str, variants: Variants) -> Variant:
    """A variant and its settings: group(groups=4).  Raises ValueError."""
    files = variants[group]
    name = variant_of(text)
    if name not in files:
        raise ValueError(no_such_variant(group, name, files))
    own_keys: list[str] = []
    if text != name:
        own_keys = [key for key in read_plain(files[name]) or {} if not key.startswith("_")]
    settings: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    own_texts = []
    for key, value in settings_in_parentheses(text):
        section = key.partition(".")[0]
        if not key:
            raise ValueError(f"{value or 'an empty setting'} has no name; {ONE_VALUE_EACH}")
        if key in settings or key in beside:
            raise ValueError(f"gives {key} twice; write it once")
        if section in own_keys or (NAME.fullmatch(key) and key not in WITH_SETTINGS):
            settings[key] = parse_value(value)
            own_texts.append(f"{key}={value}")
        elif section == group:
            bare = key.rpartition(".")[2]
            raise ValueError(f"{key} is no setting of {name}; its own have bare names, as in {bare}=VALUE")
        else:
            beside[key] = setting_beside(key, value, variants)
    own_text = text
    if beside:
        own_text = f"{name}({','.join(own_texts)})" if own_texts else name
    return Variant(text, name, own_text, settings, beside)


def setting_beside(key: str, value: str, variants: Variants) -> Any:
    """The value of another component's setting that comes with a choice.  Raises ValueError."""
    if key.partition(".")[0] not in (*VARIED, *WITH_ARGUMENTS):
        kinds = "only components, their settings, and those of model and optim can"
        raise ValueError(f"{key} cannot come with a level; {kinds}")
    if key not in variants:
        return parse_value(value)
    try:
        choice = parse_choice(key, value.strip("'\""), variants)
    except ValueError as error:
        raise ValueError(f"{key}={value}: {error}") from None
    if choice.beside:
        raise ValueError(f"{key}={value} has settings of other components; write these beside it")
    return choice


def parse_value(text: str) -> Any:
    """A value in Hydra's grammar: 1e-3, true, [0.9, 0.99], {norm: rms}, 'a text'.  Raises ValueError."""
    # Loaded here, since reading results needs no parser of Hydra's.
    from hydra.errors import HydraException

    from ablate.config.hydra_parser import parser

    try:
        override = parser().parse_override(f"value={text}")
    except HydraException:
        raise ValueError(f"has a value that cannot be read; {ONE_VALUE_EACH}") from None
    if override.is_sweep_override():
        raise ValueError(f"has a value that is a sweep; {ONE_VALUE_EACH}")
    return override.value()


ONE_VALUE_EACH = "parentheses after a variant hold settings of one value each, as in norm=group(groups=4)"


def no_such_variant(group: str, name: str, files: Mapping[str, Path]) -> str:
    """The message for a variant that does not exist."""
    names = re.split("[ ,]+", name)
    if len(names) > 1 and all(word in files for word in names):
        return f"is one word; to compare several write {group}={','.join(names)}"
    if "(" in name:
        return f"cannot be read; {ONE_VALUE_EACH}"
    return f"no such {group}; {instead(name, files, other_names(files))}"


def variant_of(text: str) -> str:
    """A choice of a group without settings: group of group(groups=4), 5window+mha of 5window(size=8)+mha."""
    return SETTINGS.sub("", text)


def settings_in_parentheses(text: str) -> list[tuple[str, str]]:
    """The settings that the choice of one variant gives, as text; a name is empty where only a value is given."""
    if "(" not in text:
        return []
    inside = text.partition("(")[2].removesuffix(")")
    pairs = []
    for part in split(inside, ","):
        match = SETTING.fullmatch(part.strip())
        if match:
            pairs.append((match[1] or "", match[2]))
    return pairs


def is_pattern(text: str) -> bool:
    """Whether a choice of a group is a pattern; a variant's name begins with a letter and has no plus."""
    text = variant_of(text)
    return "+" in text or text.endswith(REST) or bool(re.match(r"\d+[a-z]", text))


def items_of(text: str) -> list[tuple[str, int | None]]:
    """The variants of a pattern such as 2window+mha, each with the number of layers before it; None for one with three
    dots behind it, which takes all remaining layers."""
    items: list[tuple[str, int | None]] = []
    for word in split(text.removesuffix(AGAIN), "+"):
        match = ITEM.fullmatch(word)
        assert match  # it matches every text
        number, name, fills_rest = match.groups()
        items.append((name, None if fills_rest else int(number or 1)))
    return items


def names_of(text: str) -> list[str]:
    """The variants of a pattern with their settings, each once."""
    return list(dict.fromkeys(name for name, _ in items_of(text)))


def named_settings(group: str, text: str) -> set[str]:
    """The keys of the settings that a choice of a group gives by name, of any of its variants: norm.groups."""
    names = [name for word in split(text, "+") for name, _ in settings_in_parentheses(word) if name]
    return {f"{group}.{name}" for name in names}


def with_level_names(choices: Sequence[Choice]) -> list[Choice]:
    """The levels of a group, each with its name as text: without the settings of other components that come with it, if
    no other level has that name."""
    names = [choice.text if choice.is_pattern else choice.variants[0].own_text for choice in choices]
    named = []
    for choice, name in zip(choices, names, strict=True):
        named.append(replace(choice, text=name) if names.count(name) == 1 else choice)
    return named


def unzipped(factor: str, level: object) -> dict[str, str]:
    """The level of each key of a zipped factor, 2 and rms of 2+rms; empty if it is unclear, as of several patterns."""
    keys = factor.split("+")
    values = split(str(level), "+")
    placed = [i for i, key in enumerate(keys) if key in PLACED]
    if len(values) > len(keys) and len(placed) == 1:  # the pattern of this key
        pattern = slice(placed[0], placed[0] + 1 + len(values) - len(keys))
        values[pattern] = ["+".join(values[pattern])]
    if len(keys) < 2 or len(keys) != len(values):
        return {}
    return dict(zip(keys, values, strict=True))
