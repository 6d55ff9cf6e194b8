"""Index of one module: its definitions, the names that each refers to, and its imports.  Needs no torch."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable
from typing import Any

WHOLE = "<module>"  # the key of statements that define no name
IDLE = ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'", "sys.argv[:1] == ['-m']")  # of no effect
# Dynamic lookups that cannot be followed: as bare names, and as names or attributes anywhere.
BUILTINS = {"globals", "vars", "eval", "exec", "__import__"}
DYNAMIC = {"importlib", "import_module", "pkgutil", "getmembers", "__subclasses__", "__init_subclass__"}

MARK = re.compile("⦃([^⦄]*)⦄")  # a reference in normalised source
INNER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # expressions with their own scope

Chain = tuple[str, ...]  # a.b.c
Import = tuple[str, str | None]  # a module (with None), or a name in a module


class Statement(ast.NodeTransformer):
    """A top-level statement.  To normalise it replaces non-local dotted names by marks, `⦃a.b.c⦄`, and collects them,
    and removes comments, docstrings, formatting, imports and paths in annotations."""

    def __init__(self, node: ast.stmt):
        self.node = node
        more = [*getattr(node, "decorator_list", []), *(node.keywords if isinstance(node, ast.ClassDef) else [])]
        names = (inner.id for part in more for inner in ast.walk(part) if isinstance(inner, ast.Name))
        self.decorators: set[Chain] = {(name,) for name in names}  # and metaclasses: both can have side effects
        self.text = ""  # the normalised source; like the following, it is set by `normal`
        self.chains: set[Chain] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.words: set[str] = set()  # names of functions, and attributes of expressions
        self.scopes: list[set[str] | None] = []  # during the visit: local names of functions; None for a class

    @functools.cached_property
    def normal(self) -> Statement:
        """The statement, normalised: this changes the syntax tree in place."""
        self.text = ast.unparse(self.visit(self.node))
        return self

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A bare name; a name bound in a class body stays as it is."""
        own = isinstance(node.ctx, ast.Store) and self.scopes and self.scopes[-1] is None
        return node if own or MARK.fullmatch(node.id) else self.mark(node, (node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A chain of attributes that starts at a name or at another expression."""
        attributes, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            attributes.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name):
            return self.mark(node, (value.id, *reversed(attributes)))
        self.words.update(attributes)
        return self.generic_visit(node)

    def mark(self, node: ast.Name | ast.Attribute, chain: Chain) -> ast.AST:
        """Replace a chain by its mark, unless it is local."""
        if any(names and chain[0] in names for names in self.scopes):
            self.words.update(chain[1:])
            return node
        self.chains.add(chain)
        return ast.Name(f"⦃{'.'.join(chain)}⦄", node.ctx)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        """A function: decorators and defaults belong to the outer scope, the body to its own."""
        self.words.add(node.name)
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        node.returns = node.returns and Bare().visit(node.returns)
        self.outside(node.args)
        node.body = self.inside(bound(node.args, node.body), node.body)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """A lambda: defaults belong to the outer scope, the body to its own."""
        self.outside(node.args)
        [node.body] = self.inside(bound(node.args, []), [node.body])
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class: decorators, bases and keywords belong to the outer scope."""
        for name in ("decorator_list", "bases", "keywords"):
            setattr(node, name, [self.visit(one) for one in getattr(node, name)])
        node.body = self.inside(None, node.body)
        return node

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> ast.AST:
        """A comprehension: its targets are local."""
        node.generators[0].iter = self.visit(node.generators[0].iter)
        self.scopes.append(bound(None, [one.target for one in node.generators]))
        self.generic_visit(node)
        self.scopes.pop()
        return node

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """An annotated assignment: the annotation is reduced to bare names."""
        node.annotation = Bare().visit(node.annotation)
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Collect an import inside a definition, and remove it from the source."""
        self.imports.append(node)

    visit_ImportFrom = visit_Import

    def outside(self, arguments: ast.arguments) -> None:
        """Visit a function's defaults in the outer scope, and simplify its annotations."""
        arguments.defaults = [self.visit(one) for one in arguments.defaults]
        arguments.kw_defaults = [one and self.visit(one) for one in arguments.kw_defaults]
        for one in arguments_of(arguments):
            one.annotation = one.annotation and Bare().visit(one.annotation)

    def inside(self, names: set[str] | None, body: list[Any]) -> list[Any]:
        """Visit a body with these local names, without statements that do nothing."""
        self.scopes.append(names)
        left = [self.visit(part) for part in body if not is_idle(part)]
        self.scopes.pop()
        return [part for part in left if part is not None]


class Bare(ast.NodeTransformer):
    """Reduces dotted names, in an annotation, to their last part."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """The last part of a chain."""
        return ast.Name(node.attr, node.ctx)


def arguments_of(arguments: ast.arguments) -> list[ast.arg]:
    """Every argument of a function."""
    return [one for one in ast.iter_child_nodes(arguments) if isinstance(one, ast.arg)]


def bound(arguments: ast.arguments | None, body: Iterable[ast.AST]) -> set[str]:
    """The local names of a function: its arguments and what its body binds, except by imports."""
    found = {one.arg for one in arguments_of(arguments)} if arguments else set()
    elsewhere: set[str] = set()
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            elsewhere |= imports_of(node, "").keys()
        elif isinstance(node, ast.Global):
            elsewhere |= set(node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found |= {node.id} if isinstance(node.ctx, ast.Store | ast.Del) else set()
        elif not isinstance(node, INNER):
            name = getattr(node, "name", None) or getattr(node, "rest", None)  # of an except clause or a match pattern
            found |= {name} if isinstance(name, str) else set()
            todo += ast.iter_child_nodes(node)
    return found - elsewhere


class Module:
    """A module's definitions, imports and other statements."""

    def __init__(self, name: str, is_package: bool, source: bytes):
        self.package = name if is_package else name.rpartition(".")[0]
        self.definitions: dict[str, list[Statement]] = {}  # the statements that define each name
        self.imports: dict[str, Import] = {}
        self.stars: set[str] = set()
        self.loads: set[Import] = set()  # everything that it imports when it is imported
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError):  # it cannot be imported, so its raw bytes count
            body = [ast.Expr(ast.Name(hashlib.sha256(source).hexdigest(), ast.Load()))]
        for statement in body:
            self.add(statement)

    def add(self, statement: ast.stmt) -> None:
        """Index one statement by the names that it binds; an `if` or `try` can contain imports and definitions, too."""
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self.bind(statement)
        elif not is_idle(statement):
            names = names_bound(statement)
            for node in ast.walk(statement) if not names else ():
                if isinstance(node, ast.Import | ast.ImportFrom):
                    self.bind(node)
                elif isinstance(node, ast.stmt):
                    names += names_bound(node)
            filed = Statement(statement)
            for name in dict.fromkeys(names if names_bound(statement) else [*names, WHOLE]):
                self.definitions.setdefault(name, []).append(filed)

    def bind(self, statement: ast.Import | ast.ImportFrom) -> None:
        """Index the names that a top-level import binds."""
        found = imports_of(statement, self.package)
        self.loads.update(found.values())
        if isinstance(statement, ast.Import):
            self.loads.update((alias.name, None) for alias in statement.names)
        self.stars |= {where for name, (where, _) in found.items() if name == "*"}
        self.imports |= {name: one for name, one in found.items() if name != "*"}

    @functools.cached_property
    def loaded(self) -> set[str]:
        """The modules imported with this one; `from a import b` gives a and a.b, which may be a module."""
        return {where for where, _ in self.loads} | {f"{where}.{what}" for where, what in self.loads if what}

    @functools.cached_property
    def dynamic(self) -> bool:
        """Whether it looks names up dynamically, so that references cannot be followed."""
        found = [statement.normal for statements in self.definitions.values() for statement in statements]
        chains = [chain for normal in found for chain in normal.chains]
        words = set().union(*(normal.words for normal in found), *chains)
        by_string = any(chain[0] in BUILTINS or chain[:2] == ("sys", "modules") for chain in chains)
        return by_string or bool(words & DYNAMIC) or "__getattr__" in self.definitions


parse = functools.lru_cache(maxsize=4096)(Module)  # by name and source: what is edited in memory shares the rest


def imports_of(statement: ast.Import | ast.ImportFrom, package: str) -> dict[str, Import]:
    """The target of each name that an import binds; relative imports are resolved from `package`."""
    if isinstance(statement, ast.Import):
        names = [(a.asname, a.name if a.asname else a.name.partition(".")[0]) for a in statement.names]
        return {asname or name: (name, None) for asname, name in names}
    above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
    where = ".".join([*above, *([statement.module] if statement.module else [])])
    return {alias.asname or alias.name: (where, alias.name) for alias in statement.names}


def names_bound(statement: ast.stmt) -> list[str]:
    """The names that a definition or a plain assignment binds; empty for any other statement."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    flat = [part for t in targets for part in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
    names = [part.id for part in flat if isinstance(part, ast.Name)]
    return names if len(names) == len(flat) else []


def is_idle(statement: ast.stmt) -> bool:
    """Whether a statement changes no run: a docstring, or a block for type checkers, scripts or `python -m`."""
    if isinstance(statement, ast.If) and not statement.orelse:
        return ast.unparse(statement.test) in IDLE
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass)
