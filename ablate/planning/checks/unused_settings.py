"""Settings that no code reads, found in the source of what they are given to."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ablate.config.components import RESERVED, resolve
from ablate.config.errors import BadComponent
from ablate.config.schema import COMPONENTS, Config


def unread(config: Config) -> list[list[str]]:
    """Settings of a cell's components and data that their code never reads, as [key, message]."""
    found = []
    for group in (*COMPONENTS, "data"):
        node, user = getattr(config, group), config.user
        try:
            target = resolve(group, node["_target_"], user)
        except BadComponent:
            continue
        for key in unread_arguments(target, tuple(key for key in node if key not in RESERVED)):
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
    """Whether an argument is used for more than attributes that nobody reads."""
    stored: set[str] = set()
    for statement in simple(function.body):
        uses = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
        attributes = stores(statement, name) if uses else set()
        if uses and attributes is None:
            return True
        stored |= attributes or set()
    return bool(stored & attributes_read(modules)) if stored else False


def simple(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The statements of a body that hold no others, and the heads of those that do."""
    for statement in body:
        inner = [part for field in ("body", "orelse", "finalbody") for part in getattr(statement, field, [])]
        if not inner:
            yield statement
            continue
        yield from simple(inner)
        for name, value in ast.iter_fields(statement):
            if name not in ("body", "orelse", "finalbody"):
                yield from (
                    part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST)
                )


def stores(statement: ast.AST, name: str) -> set[str] | None:
    """Attributes of self that a statement puts an argument into, None where it does anything else with it."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return None
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for target in targets:
        value = statement.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs += zip(target.elts, value.elts, strict=True)
        else:
            pairs += [(target, value)]
    using = [to for to, value in pairs if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))]
    plain = [to.attr for to in using if isinstance(to, ast.Attribute) and isinstance(to.value, ast.Name)]
    return set(plain) if using and len(plain) == len(using) else None


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
    """The source of a function, found by its qualified name; None for what has none, as constructors of dataclasses."""
    tree, name = parsed(getattr(function, "__module__", "")), getattr(function, "__qualname__", "")
    scope: Any = tree
    for part in name.split("."):
        named = (ast.ClassDef, ast.FunctionDef)
        scope = next((n for n in getattr(scope, "body", []) if isinstance(n, named) and n.name == part), None)
    return scope if isinstance(scope, ast.FunctionDef) else None
