"""Groups that change over the layers, in configurations: {_layers_: 5window+mha, window: {...}, mha: {...}}."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ablate.config.choices import AGAIN, Item, items_of, variant_of
from ablate.config.errors import Problem
from ablate.config.schema import COMPONENTS, LAYERS, Config


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


def folder_choice(config: Config, choices: Mapping[str, str]) -> dict[str, str]:
    """The choice of each group as in a folder's name: without settings, and with equal patterns spelled alike."""
    names = dict(choices)
    for group, node in patterned(config):
        names[group] = spelled(node[LAYERS])
    return {group: variant_of(choice) for group, choice in names.items()}  # settings are in the run's key
