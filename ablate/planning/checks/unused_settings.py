"""Settings that no code reads, found in the source of what they are given to."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
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
        user = config.user
        try:
            target = resolve(group, node["_target_"], user)
        except BadComponent:
            continue
        for key in unread_arguments(target, node):
            name = getattr(target, "__name__", node["_target_"])
            found.append([f"{group}.{key}", f"{name} never reads it, so that it changes nothing; take it out"])
    return found


def unread_arguments(target: Callable[..., Any], keys: Iterable[str]) -> list[str]:
    """Arguments that a class's constructor, or a function, does not use; stored ones must be read somewhere else.

    Somewhere is any module of the packages that the class and its bases come from.  Without source nothing is found.
    """
    bases = [base for base in inspect.getmro(target) if base is not object] if inspect.isclass(target) else []
    owner = next((base for base in bases if "__init__" in vars(base)), None)
    function = definition(owner.__init__ if owner else target)  # type: ignore[misc]
    if function is None or any(isinstance(n, ast.Name) and n.id in ("locals", "vars") for n in ast.walk(function)):
        return []
    modules = tuple(
        sorted({base.__module__ for base in bases if not base.__module__.startswith(("torch.", "builtins"))})
    )
    own = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
    return [key for key in keys if key in own and not is_read(function, key, modules)]


def is_read(function: ast.FunctionDef, name: str, modules: tuple[str, ...]) -> bool:
    """Whether an argument is used for more than attributes of self that nobody reads."""
    other, mixed, stored = names_in(function, name), set[ast.Name](), set[str]()
    for target, value in assignments(function):
        used = names_in(value, name)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            other -= used
            stored |= {target.attr} if used else set()
        else:
            mixed |= used  # a = self.b = name
    return bool(other | mixed) or (bool(stored) and not stored.isdisjoint(attributes_read(modules)))


def names_in(tree: ast.AST, name: str) -> set[ast.Name]:
    """The places where a name stands."""
    return {node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name}


def assignments(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Every target of an assignment, and what is put there."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        value = node.value
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                yield from zip(target.elts, value.elts, strict=True)
            else:
                yield target, value


@functools.cache
def attributes_read(modules: tuple[str, ...]) -> set[str]:
    """Names of attributes that any loaded module of these modules' packages reads, and words that could be such."""
    packages = {module.rpartition(".")[0] or module for module in modules}
    found: set[str] = set()
    for name in list(sys.modules):
        if name in packages or any(name.startswith(package + ".") for package in packages):
            for node in ast.walk(parsed(name) or ast.Module([], [])):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                    found.add(node.value)
    return found


@functools.cache
def parsed(module: str) -> ast.Module | None:
    """A loaded module's source."""
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, SyntaxError, KeyError):
        return None


def definition(function: Any) -> ast.FunctionDef | None:
    """The source of a function; None for what has none, as constructors of dataclasses."""
    try:
        [found] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError):
        return None
    return found if isinstance(found, ast.FunctionDef) else None
