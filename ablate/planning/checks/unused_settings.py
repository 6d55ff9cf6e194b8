"""Settings that no code reads, found in the source of what they are given to."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.errors import BadComponent
from ablate.config.schema import OWNED, VARIED, Config


def unread(config: Config) -> list[list[str]]:
    """Settings of a cell's components and data that their code never reads, as [key, message]."""
    found = []
    parts = [(group, node) for group in (*VARIED, "data") for node in variants_of(getattr(config, group))]
    parts += [(name, {"_target_": getattr(config, name)._target_} | config.own(name)) for name in OWNED]
    for group, node in parts:
        try:
            target = resolve(group, node["_target_"], config.user)
        except BadComponent:
            continue
        message = f"{getattr(target, '__name__', target)} never reads it, so that it changes nothing; take it out"
        found += [[f"{group}.{key}", message] for key in unread_arguments(target, node)]
    return found


def unread_arguments(target: Callable[..., Any], keys: Iterable[str]) -> list[str]:
    """Arguments that a class's constructor, or a function, does not use; stored ones must be read somewhere else.

    Somewhere is any module of the packages that the class and its bases come from.  Without source nothing is found.
    """
    bases = [base for base in inspect.getmro(target) if base is not object] if inspect.isclass(target) else []
    owner = next((base for base in bases if "__init__" in vars(base)), None)
    function = _definition(owner.__init__ if owner else target)  # type: ignore[misc]
    if function is None or any(isinstance(n, ast.Name) and n.id in ("locals", "vars") for n in ast.walk(function)):
        return []
    modules = {base.__module__ for base in bases if not base.__module__.startswith(("torch.", "builtins"))}
    stored = _stored(function)
    own = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in own]
    unread = own - {node.id for node in uses if node not in stored}
    attributes = attributes_read(tuple(sorted(modules)))
    unread -= {node.id for node, attribute in stored.items() if attribute in attributes}
    return [key for key in keys if key in unread]


def _stored(function: ast.FunctionDef) -> dict[ast.Name, str]:
    """Names whose only use is to be stored in an attribute of `self`, by where they stand: self.a = name."""
    found, mixed = dict[ast.Name, str](), set[ast.Name]()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            paired = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=False) if paired else [(target, node.value)]  # type: ignore[attr-defined]
            for place, value in pairs:
                names = {each for each in ast.walk(value) if isinstance(each, ast.Name)}
                if isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name):
                    found |= dict.fromkeys(names, place.attr)
                else:
                    mixed |= names  # a = self.b = name
    return {name: attribute for name, attribute in found.items() if name not in mixed}


@functools.cache
def attributes_read(modules: tuple[str, ...]) -> set[str]:
    """Names of attributes that any loaded module of these modules' packages reads, and words that could be such."""
    packages = {module.rpartition(".")[0] or module for module in modules}
    found: set[str] = set()
    for name in list(sys.modules):
        if name in packages or any(name.startswith(package + ".") for package in packages):
            for node in ast.walk(_parsed(name) or ast.Module([], [])):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                    found.add(node.value)
    return found


@functools.cache
def _parsed(module: str) -> ast.Module | None:
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, SyntaxError, KeyError):
        return None


def _definition(function: Any) -> ast.FunctionDef | None:
    """The source of a function; None for what has none, as constructors of dataclasses."""
    try:
        [found] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError):
        return None
    return found if isinstance(found, ast.FunctionDef) else None
