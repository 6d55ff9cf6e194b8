"""Groups that change over the layers, in configurations: {_layers_: 5window+mha, window: {...}, mha: {...}}."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from ablate.config.choices import AGAIN, items_of, variant_of
from ablate.config.errors import Problem
from ablate.config.schema import COMPONENTS, LAYERS, Config


def expanded(text: str, layers: int) -> list[str]:
    """The variant of each layer.  Raises ValueError if the pattern does not fit the number of layers."""
    items = items_of(text)
    taken = sum(times or 0 for _, times in items)
    is_open = any(times is None for _, times in items)
    if text.endswith(AGAIN) and taken <= layers:
        return (repeated(items) * (layers // taken + 1))[:layers]
    if text.endswith(AGAIN):  # no variant is cut off: the longest sequence is shortened
        name, most = max(items, key=lambda item: item[1] or 0)
        items[items.index((name, most))] = (name, None)
        taken -= most or 0
        is_open = True
    if is_open and taken >= layers:
        raise ValueError(f"takes {taken + 1} layers at least, and model.layers={layers}")
    if is_open:
        return repeated(items, layers - taken)
    if layers % taken:
        rule = f"is a pattern of {taken} layers, which must divide model.layers={layers}"
        raise ValueError(f"{rule}; end it with {AGAIN}, which cuts it, or write ... after one variant")
    return repeated(items) * (layers // taken)


def repeated(items: list[tuple[str, int | None]], rest: int = 0) -> list[str]:
    """The name of each item as often as it says; one without a number takes the rest."""
    names = []
    for name, times in items:
        names += [name] * (rest if times is None else times)
    return names


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
    if not is_patterned(node):
        return {choice: node}
    return {name: settings for name, settings in node.items() if name != LAYERS}


def variants_of(node: Any) -> list[dict[str, Any]]:
    """The settings of each variant of a group: several in a pattern or a list of tracking services, else one."""
    return node if isinstance(node, list) else list(named_variants(node, "").values())


def layer_of(node: dict[str, Any], build: Callable[[dict[str, Any]], Any], layers: int) -> list[Any]:
    """What is built of the settings of each layer's variant, once per variant."""
    by_name = {name: build(settings) for name, settings in named_variants(node, "").items()}
    return [by_name[name] for name in node.get(LAYERS, [""] * layers)]


def mapped(node: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A group with the settings of each of its variants changed."""
    if not is_patterned(node):
        return change(node)
    return {name: value if name == LAYERS else change(value) for name, value in node.items()}


def value_at(node: Any, path: list[str]) -> Any:
    """The value at a path in plain data, or None; in a pattern that of the first variant that has the key."""
    for name in path:
        if is_patterned(node):
            node = next((settings for settings in variants_of(node) if name in settings), {})
        if isinstance(node, list):
            node = node[int(name)]
        elif isinstance(node, dict):
            node = node.get(name)
        else:
            return None
    return node


def chosen_at(node: Any, path: list[str]) -> Any:
    """The value at a path in plain data; as text if variants of a pattern differ in it: mlp 256, swiglu 168."""
    *above, name = path
    for section in above:
        node = node.get(section)
    variants = named_variants(node, "")
    values = {variant: settings[name] for variant, settings in variants.items() if name in settings}
    if len(set(values.values())) <= 1:
        return value_at(node, [name])
    return ", ".join(f"{variant} {value}" for variant, value in values.items())


def patterned(config: Config) -> list[tuple[str, Any]]:
    """The groups that change over the layers, and their settings."""
    nodes = [(group, getattr(config, group)) for group in COMPONENTS]
    return [(group, node) for group, node in nodes if is_patterned(node)]


def over_layers(config: Config) -> tuple[Config, list[Problem]]:
    """The configuration with the variant of each layer in place of patterns, and problems of those that do not fit."""
    problems = []
    for group, node in patterned(config):
        text = node[LAYERS] if isinstance(node[LAYERS], str) else "+".join(node[LAYERS])
        if config.model.share_layers:
            message = f"layers that differ ({group}={text}) cannot share parameters"
            problems.append(Problem("model.share_layers", message))
        try:
            names = expanded(text, config.model.layers)
        except ValueError as error:
            problems.append(Problem(group, f"{text} {error}"))
            continue
        config = config.with_value(group, node | {LAYERS: names})
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


def folder_choice(config: Config, choices: Mapping[str, str]) -> dict[str, str]:
    """The choice of each group as in a folder's name: without settings, and with equal patterns spelled alike."""
    names = dict(choices)
    for group, node in patterned(config):
        names[group] = spelled(node[LAYERS])
    return {group: variant_of(choice) for group, choice in names.items()}  # settings are in the run's key
