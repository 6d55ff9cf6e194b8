"""Patterns over depth: a group whose variant changes from layer to layer, as in attention=5window+mha.  No torch.

Names joined by + are the variants of successive layers, a number before one repeats it; the whole is repeated over all
layers, and cut at the last one where it ends in +... : attention=5window+mha+... .  Three dots after one of them repeat
it instead for as many layers as are left: ffn=mlp+moe... .

A configuration holds the settings of each variant by its name, and under LAYERS the pattern as it is written, or, once
the number of layers is known, the variant of each layer.
"""

import itertools
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from ablate.config.errors import Problem
from ablate.config.schema import COMPONENTS, LAYERS, PLACED, Config
from ablate.formatting import instead

ITEM = re.compile(r"(\d*)(.*?)(\.\.\.)?")
REST, AGAIN = "...", "+..."  # after a variant, and after the whole


class Item(NamedTuple):
    """Successive layers of one variant; `times` is None where it takes all that are left."""

    name: str
    times: int | None


def is_pattern(text: str, known: Collection[str]) -> bool:
    """Whether the choice of a group is no variant that there is but a pattern of some."""
    return text not in known and ("+" in text or text.endswith(REST) or bool(re.match(r"\d+[a-z]", text)))


def items_of(text: str, known: Collection[str] = ()) -> list[Item]:
    """The items of a pattern; a name that begins with a number is one where it is known."""
    found = []
    for word in text.removesuffix(AGAIN).split("+"):
        number, name, rest = ("", word, None) if word in known else ITEM.fullmatch(word).groups()  # type: ignore[union-attr]
        found.append(Item(name, None if rest else int(number or 1)))
    return found


def names_of(text: str, known: Collection[str] = ()) -> list[str]:
    """The variants of a pattern, each once."""
    return list(dict.fromkeys(item.name for item in items_of(text, known)))


def pattern_problem(group: str, text: str, known: Collection[str]) -> str | None:
    """What is wrong with a pattern, whatever the number of layers; None if nothing."""
    items = items_of(text, known)
    if group not in PLACED:
        return f"only {', '.join(PLACED)} can change over the layers; write one variant"
    lost = [item.name for item in items if item.name not in known]
    if lost:
        return f"no such {group} {lost[0]!r}; {instead(lost[0], known)}" if lost[0] else "lacks a variant beside a +"
    if sum(item.times is None for item in items) + text.endswith(AGAIN) > 1:
        return "has ... twice; one variant can take all layers that are left, or the whole be repeated"
    if any(item.times == 0 for item in items) or any(re.match(r"\d.*\.\.\.$", word) for word in text.split("+")):
        return "takes numbers from 1 before a variant, and none before one with ..."
    if len({item.name for item in items}) == 1:
        return f"has one variant in every layer; write {group}={items[0].name}"
    return None


def expanded(text: str, layers: int, known: Collection[str]) -> list[str]:
    """The variant of each layer.  Raises ValueError where a pattern does not fit the number of layers."""
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
    """The variant of each layer of a pattern that is repeated and cut at the last layer.

    Where the cut would leave a variant out, the longest run is shorter.  Raises ValueError where there are too few.
    """
    period = itertools.chain.from_iterable(itertools.repeat(item.name, item.times or 0) for item in items)
    cut = list(itertools.islice(itertools.cycle(period), layers))
    if {*cut} == {item.name for item in items}:
        return cut
    most = max(items, key=lambda item: item.times or 0)
    left, others = (most.times or 0) - (taken - layers), taken - (most.times or 0)
    if left < 1:
        starts = itertools.accumulate((item.times or 0 for item in items), initial=0)
        first = {item.name: start for start, item in reversed([*zip(starts, items, strict=False)])}
        raise ValueError(f"takes {1 + min(others, max(first.values()))} layers at least, and model.layers={layers}")
    return [item.name for item in items for _ in range(left if item is most else item.times or 0)]


def spelled(names: list[str]) -> str:
    """The shortest pattern that gives these layers: 2window+mha."""
    count = len(names)
    period = next(n for n in range(1, count + 1) if count % n == 0 and names[:n] * (count // n) == names)
    runs = ((name, len(list(run))) for name, run in itertools.groupby(names[:period]))
    return "+".join(f"{times if times > 1 else ''}{name}" for name, times in runs)


def is_patterned(node: Any) -> bool:
    """Whether the settings of a group are those of several variants."""
    return isinstance(node, dict) and LAYERS in node


def named_variants(node: dict[str, Any], choice: str) -> dict[str, dict[str, Any]]:
    """The settings of each variant of a group by its name; `choice` is the name where it is one."""
    return {name: own for name, own in node.items() if name != LAYERS} if is_patterned(node) else {choice: node}


def variants_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of each variant of a group: of one, but where a pattern has several."""
    return list(named_variants(node, "").values())


def layer_of(node: dict[str, Any], made: Callable[[dict[str, Any]], Any], layers: int) -> list[Any]:
    """What is made of the settings of each layer's variant; of each variant once."""
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
    """What plain data have at a path, None where there is nothing; of several variants over the layers, the first's."""
    for name in path:
        if isinstance(node, dict) and LAYERS in node:
            node = next((each for each in node.values() if isinstance(each, dict) and name in each), {})
        node = node.get(name) if isinstance(node, dict) else node[int(name)] if isinstance(node, list) else None
    return node


def chosen_at(node: Any, path: list[str]) -> Any:
    """What plain data have at a path; where variants over the layers differ in it, in words: mlp 256, swiglu 168."""
    *above, name = path
    for each in above:
        node = node.get(each)
    found = {variant: own[name] for variant, own in node.items() if isinstance(own, dict) and name in own}
    if not is_patterned(node) or len({*found.values()}) == 1:
        return value_at(node, [name])
    return ", ".join(f"{variant} {value}" for variant, value in found.items())


def patterned(config: Config) -> Iterator[str]:
    """The groups that change over the layers."""
    return (group for group in COMPONENTS if is_patterned(getattr(config, group)))


def over_layers(config: Config) -> tuple[Config, list[Problem]]:
    """The configuration with the variant of each layer in place of patterns, and what does not fit."""
    problems = []
    for group in patterned(config):
        node = getattr(config, group)
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
    """The configuration with no more layers than these."""
    for group in patterned(config):
        node = getattr(config, group)
        config = config.with_value(group, node | {LAYERS: node[LAYERS][:layers]})
    return config.with_value("model.layers", layers)


def fewest(config: Config, layers: int) -> int:
    """The first layers, at least so many, in which each variant of every pattern stands."""
    for group in patterned(config):
        names = getattr(config, group)[LAYERS]
        layers = max(layers, *(names.index(name) + 1 for name in names))
    return min(layers, config.model.layers)


def folder_choice(config: Config, choices: dict[str, str]) -> dict[str, str]:
    """The variant of each group; of patterns that are one, one name."""
    return choices | {group: spelled(getattr(config, group)[LAYERS]) for group in patterned(config)}
