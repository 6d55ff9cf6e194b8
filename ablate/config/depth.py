"""What a choice of a group may say beyond a variant's name: settings and patterns over the layers.  No torch.

Settings stand in parentheses, as in norm=group(groups=4): the variant's own, which have bare names, and others of the
configuration that come with this choice, as in norm=dyt(model.scale_embeddings=true) or residual=deepnorm(init=xavier).
In a pattern, as in attention=5window+mha, names joined by +
are the variants of successive layers; a number before a name repeats it.  The pattern is repeated over all layers; if
it ends in +... it may be cut at the last layer: attention=5window+mha+... .  Three dots after a name repeat that
variant for all remaining layers instead: ffn=mlp+moe... .
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.errors import Problem
from ablate.config.files import read_plain
from ablate.config.groups import other_names
from ablate.config.schema import COMPONENTS, LAYERS, OWNED, PLACED, VARIED, Config
from ablate.formatting import instead, split

ITEM = re.compile(r"(\d*)(.*?)(\.\.\.)?", re.DOTALL)
SETTINGS = re.compile(r"""\((?:[^()"']|"[^"]*"|'[^']*')*\)""")
SETTING = re.compile(r"(?:([\w.]+)\s*=\s*)?(.*)")
REST, AGAIN = "...", "+..."  # after a variant, and after the whole pattern


class Item(NamedTuple):
    """Successive layers of one variant; `times` is None if it takes all remaining layers."""

    name: str
    times: int | None


def variant_of(text: str) -> str:
    """A choice of a group without settings: group of group(groups=4), 5window+mha of 5window(size=8)+mha."""
    return SETTINGS.sub("", text)


def settings_of(text: str) -> list[tuple[str, str]]:
    """The settings that the choice of one variant gives, as text; a name is empty where only a value is given."""
    parts = split(text.partition("(")[2].removesuffix(")"), ",") if "(" in text else []
    return [(found[1] or "", found[2]) for part in parts if (found := SETTING.fullmatch(part.strip()))]


def split_settings(
    group: str, choice: str, variants: Mapping[str, Path]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The settings of a choice: its own, and others that come with it; none for a pattern over the layers."""
    if is_pattern(choice, variants):
        return [], []
    file = variants.get(variant_of(choice))
    own_keys = (file and read_plain(file)) or {}
    own, others = [], []
    for name, value in settings_of(choice):
        section = name.partition(".")[0]
        elsewhere = "." in name or name in (*VARIED, *OWNED)
        if elsewhere and section != group and section not in own_keys:
            others.append((name, value))
        else:
            own.append((name, value))
    return own, others


def without_others(group: str, choice: str, variants: Mapping[str, Path]) -> str:
    """A choice with its own settings only: dyt of dyt(model.scale_embeddings=true)."""
    own, others = split_settings(group, choice, variants)
    if not others:
        return choice
    texts = [f"{name}={value}" if name else value for name, value in own]
    inside = f"({','.join(texts)})" if texts else ""
    return f"{variant_of(choice)}{inside}"


def level_names(group: str, choices: Iterable[str], variants: Mapping[str, Path]) -> dict[str, str]:
    """The name of each level of a group: without the settings that come with it, if no other level has that name."""
    short = {choice: without_others(group, choice, variants) for choice in choices}
    counts = Counter(short.values())
    return {choice: name if counts[name] == 1 else choice for choice, name in short.items()}


def unzipped(factor: str, level: object) -> dict[str, str]:
    """The level of each key of a zipped factor, 2 and rms of 2+rms; empty if it is unclear, as of several patterns."""
    keys, values = factor.split("+"), split(str(level), "+")
    placed = [i for i, key in enumerate(keys) if key in PLACED]
    if len(values) > len(keys) and len(placed) == 1:  # the pattern of this key
        pattern = slice(placed[0], placed[0] + 1 + len(values) - len(keys))
        values[pattern] = ["+".join(values[pattern])]
    return dict(zip(keys, values, strict=True)) if 1 < len(keys) == len(values) else {}


def is_pattern(text: str, known: Collection[str]) -> bool:
    """Whether a choice of a group is a pattern and not the name of a `known` variant."""
    text = variant_of(text)
    return text not in known and ("+" in text or text.endswith(REST) or bool(re.match(r"\d+[a-z]", text)))


def items_of(text: str, known: Collection[str] = ()) -> list[Item]:
    """The items of a pattern; a `known` name may begin with a digit."""
    found = []
    for word in split(text.removesuffix(AGAIN), "+"):
        number, name, rest = ("", word, None) if {word, variant_of(word)} & {*known} else ITEM.fullmatch(word).groups()  # type: ignore[union-attr]
        found.append(Item(name, None if rest else int(number or 1)))
    return found


def names_of(text: str, known: Collection[str] = ()) -> list[str]:
    """The variants of a pattern with their settings, each once."""
    return list(dict.fromkeys(item.name for item in items_of(text, known)))


def named_settings(group: str, text: str) -> set[str]:
    """The keys of the settings that a choice of a group gives by name, of any of its variants: norm.groups."""
    return {f"{group}.{name}" for word in split(text, "+") for name, _ in settings_of(word) if name}


def pattern_problem(group: str, text: str, known: Mapping[str, Path]) -> str | None:
    """What is wrong with a pattern of `known` variants, whatever the number of layers; None if nothing."""
    items = items_of(text, known)
    if group not in PLACED:
        return f"only {', '.join(PLACED)} can change over the layers; write one variant"
    lost = [name for item in items if (name := variant_of(item.name)) not in known]
    if lost:
        why = f"no such {group} {lost[0]!r}; {instead(lost[0], known, other_names(known))}"
        return why if lost[0] else "lacks a variant beside a +"
    if sum(item.times is None for item in items) + text.endswith(AGAIN) > 1:
        return "has ... twice; one variant can take all layers that are left, or the whole be repeated"
    if any(item.times == 0 for item in items) or any(re.match(r"\d.*\.\.\.$", word) for word in split(text, "+")):
        return "takes numbers from 1 before a variant, and none before one with ..."
    if len({item.name for item in items}) == 1:
        return f"has one variant in every layer; write {group}={items[0].name}"
    return None


def expanded(text: str, layers: int, known: Collection[str]) -> list[str]:
    """The variant of each layer.  Raises ValueError if the pattern does not fit the number of layers."""
    items = items_of(text, known)
    taken = sum(item.times or 0 for item in items)
    if any(item.times is None for item in items):
        if taken >= layers:
            raise ValueError(f"takes {taken + 1} layers at least, and model.layers={layers}")
        return [item.name for item in items for _ in range(item.times or layers - taken)]
    if text.endswith(AGAIN):
        return _cut(items, taken, layers)
    if layers % taken:
        fitting = " or ".join(str(taken * n) for n in (layers // taken, layers // taken + 1) if n)
        rule = f"is a pattern of {taken} layers, which must divide model.layers={layers}; write model.layers={fitting}"
        raise ValueError(f"{rule}, {text}{AGAIN} to cut it, or ... after a variant that takes what is left")
    return [item.name for item in items for _ in range(item.times or 0)] * (layers // taken)


def _cut(items: list[Item], taken: int, layers: int) -> list[str]:
    """The variant of each layer of a repeated pattern, cut at the last layer.  Raises ValueError for too few layers."""
    period = itertools.chain.from_iterable(itertools.repeat(item.name, item.times or 0) for item in items)
    cut = list(itertools.islice(itertools.cycle(period), layers))
    if {*cut} == {item.name for item in items}:
        return cut
    most = max(items, key=lambda item: item.times or 0)  # the cut would drop a variant, so the longest run is shortened
    left, others = (most.times or 0) - (taken - layers), taken - (most.times or 0)
    if left < 1:
        starts = itertools.accumulate((item.times or 0 for item in items), initial=0)
        first = {item.name: start for start, item in reversed([*zip(starts, items, strict=False)])}
        raise ValueError(f"takes {1 + min(others, max(first.values()))} layers at least, and model.layers={layers}")
    return [item.name for item in items for _ in range(left if item is most else item.times or 0)]


def spelled(names: list[str]) -> str:
    """The shortest pattern for these layers: 2window+mha."""
    count = len(names)
    period = next(n for n in range(1, count + 1) if count % n == 0 and names[:n] * (count // n) == names)
    runs = ((name, len(list(run))) for name, run in itertools.groupby(names[:period]))
    return "+".join(f"{times if times > 1 else ''}{name}" for name, times in runs)


def is_patterned(node: Any) -> bool:
    """Whether a group's settings hold several variants."""
    return isinstance(node, dict) and LAYERS in node


def named_variants(node: dict[str, Any], choice: str) -> dict[str, dict[str, Any]]:
    """The settings of each variant of a group by name; `choice` is the name of a single variant."""
    return {name: own for name, own in node.items() if name != LAYERS} if is_patterned(node) else {choice: node}


def variants_of(node: Any) -> list[dict[str, Any]]:
    """The settings of each variant of a group: several in a pattern or a list of tracking services, else one."""
    return node if isinstance(node, list) else list(named_variants(node, "").values())


def layer_of(node: dict[str, Any], made: Callable[[dict[str, Any]], Any], layers: int) -> list[Any]:
    """`made` of the settings of each layer's variant, called once per variant."""
    if not is_patterned(node):
        return [made(node)] * layers
    each = {name: made(settings) for name, settings in node.items() if name != LAYERS}
    return [each[name] for name in node[LAYERS]]


def mapped(node: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A group with the settings of each of its variants changed."""
    if not is_patterned(node):
        return change(node)
    return {name: value if name == LAYERS else change(value) for name, value in node.items()}


def value_at(node: Any, path: list[str]) -> Any:
    """The value at a path in plain data, or None; in a pattern that of the first variant that has the key."""
    for name in path:
        if is_patterned(node):
            node = next((each for each in node.values() if isinstance(each, dict) and name in each), {})
        node = node.get(name) if isinstance(node, dict) else node[int(name)] if isinstance(node, list) else None
    return node


def chosen_at(node: Any, path: list[str]) -> Any:
    """The value at a path in plain data; as text if variants of a pattern differ in it: mlp 256, swiglu 168."""
    *above, name = path
    for each in above:
        node = node.get(each)
    found = {variant: own[name] for variant, own in node.items() if isinstance(own, dict) and name in own}
    if not is_patterned(node) or len({*found.values()}) == 1:
        return value_at(node, [name])
    return ", ".join(f"{variant} {value}" for variant, value in found.items())


def patterned(config: Config) -> Iterator[tuple[str, Any]]:
    """The groups that change over the layers, and their settings."""
    return ((group, node) for group in COMPONENTS if is_patterned(node := getattr(config, group)))


def over_layers(config: Config) -> tuple[Config, list[Problem]]:
    """The configuration with the variant of each layer in place of patterns, and problems of those that do not fit."""
    problems = []
    for group, node in patterned(config):
        text = node[LAYERS] if isinstance(node[LAYERS], str) else "+".join(node[LAYERS])
        if config.model.share_layers:
            message = f"layers that differ ({group}={text}) cannot share parameters"
            problems.append(Problem("model.share_layers", message))
        try:
            found = expanded(text, config.model.layers, node)
        except ValueError as error:
            problems.append(Problem(group, f"{text} {error}"))
            continue
        config = config.with_value(group, node | {LAYERS: found})
    return config, problems


def first_layers(config: Config, layers: int) -> Config:
    """The configuration cut to its first `layers` layers."""
    for group, node in patterned(config):
        config = config.with_value(group, node | {LAYERS: node[LAYERS][:layers]})
    return config.with_value("model.layers", layers)


def fewest(config: Config, layers: int) -> int:
    """The least number of first layers, `layers` or more, that contain each variant of every pattern."""
    for _, node in patterned(config):
        layers = max(layers, *(node[LAYERS].index(name) + 1 for name in node[LAYERS]))
    return min(layers, config.model.layers)


def folder_choice(config: Config, choices: dict[str, str]) -> dict[str, str]:
    """The choice of each group as in a folder's name: without settings, and with equal patterns spelled alike."""
    whole = choices | {group: spelled(node[LAYERS]) for group, node in patterned(config)}
    return {group: variant_of(choice) for group, choice in whole.items()}  # settings are in the run's key
