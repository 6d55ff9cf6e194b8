"""The `_target_`s of a saved configuration, and where these classes and functions are now.  Needs no torch."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ablate.config.schema import Config, typed
from ablate.config.targets import BUILT_IN, NAME, within
from ablate.results.code_hash import PACKAGE, find, sources
from ablate.results.tables import class_name


def parts_of(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Each `_target_` in a configuration, or in a part of one, with its dotted path."""
    value = value.as_json() if isinstance(value, Config) else value
    for key, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        if key == "_target_":
            yield at, str(item)
        if isinstance(item, dict | list):
            yield from parts_of(item, f"{at}.{key}".lstrip("."))


def renamed(value: Any, rename: Callable[[str], str]) -> Any:
    """A part of a configuration with every `_target_` renamed, at any depth."""
    if isinstance(value, list):
        return [renamed(item, rename) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: rename(str(item)) if key == "_target_" else renamed(item, rename) for key, item in value.items()}


def with_class_names(value: Any) -> Any:
    """A part of a configuration with `_target_`s reduced to bare names, so that moved code counts as the same."""
    return renamed(value, class_name)


def with_current_targets(config: Config, user: Iterable[str]) -> Config:
    """A saved configuration with the `_target_`s of user packages updated to where these classes are now."""
    user = list(user)
    tops = tuple(sorted({package.partition(".")[0] for package in user}))

    def now(target: str) -> str:
        name = target.rpartition(".")[2]
        if within(target, [PACKAGE.name]) or not NAME.fullmatch(name):
            return target
        here = sources(tops)
        if [node[1] for node, _ in here.follow_name(target)] == [name]:
            return target
        found = [".".join(node) for top in tops for node in here.definitions_named([name], top)]
        known = [one for one in found if within(one, user)]
        return known[0] if len(known) == 1 else target  # unless exactly one has the name of a class that was moved

    return typed(renamed(config.as_json(), now))


def targets_of(value: Any) -> Iterator[str]:
    """Every `_target_` of a configuration."""
    return (target for _, target in parts_of(value))


def is_foreign(config: Any) -> bool:
    """Whether any `_target_` in a configuration, or in a part of one, is user code."""
    return any(not within(target, BUILT_IN) for target in targets_of(config))


def not_found(targets: Iterable[str], user: Iterable[str]) -> list[str]:
    """The user packages that these `_target_`s need and Python cannot find."""
    tops = {target.partition(".")[0] for target in targets} & {package.partition(".")[0] for package in user}
    return sorted(top for top in tops if find(top) is None)
