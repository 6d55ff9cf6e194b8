"""What one module defines, what each definition refers to, and what it imports.  No torch."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable
from typing import Any

WHOLE = "<module>"  # the statements of a module that define nothing
IDLE = ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'", "sys.argv[:1] == ['-m']")  # of blocks
# What looks names up in a way that cannot be followed: names by themselves, and names anywhere.
BUILTINS = {"globals", "vars", "eval", "exec", "__import__"}
DYNAMIC = {"importlib", "import_module", "pkgutil", "getmembers", "__subclasses__", "__init_subclass__"}

MARK = re.compile("⦃([^⦄]*)⦄")  # a reference in normalised source
INNER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # expressions with names of their own

Chain = tuple[str, ...]  # a.b.c
Import = tuple[str, str | None]  # of a module itself, or of a name in it


class Statement:
    """One statement at the top of a module, as it counts: without comments, docstrings, formatting and imports.

    Each name that is not local stands as a mark, `⦃a.b.c⦄`: what it refers to, the module's imports say.
    """

    def __init__(self, node: ast.stmt):
        self.node = node
        more = [*getattr(node, "decorator_list", []), *(node.keywords if isinstance(node, ast.ClassDef) else [])]
        names = (inner.id for part in more for inner in ast.walk(part) if isinstance(inner, ast.Name))
        self.decorators: set[Chain] = {(name,) for name in names}  # and metaclasses: they can do more than define

    @functools.cached_property
    def normal(self) -> Normaliser:
        """Its normalised source, and the names that it uses; its tree is written anew."""
        normaliser = Normaliser()
        normaliser.text = ast.unparse(normaliser.visit(self.node))
        return normaliser


class Normaliser(ast.NodeTransformer):
    """Writes each chain of names that is not local as a mark, and collects it; takes out docstrings and imports.

    In annotations, which lead nowhere, `a.b.C` is written as `C`.
    """

    def __init__(self) -> None:
        self.text = ""  # with marks, where all is visited
        self.chains: set[Chain] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.words: set[str] = set()  # names of functions, and attributes of expressions
        self.scopes: list[set[str] | None] = []  # local names of functions; None for a class

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A name by itself; one that a class binds is the class's own."""
        own = isinstance(node.ctx, ast.Store) and self.scopes and self.scopes[-1] is None
        return node if own or MARK.fullmatch(node.id) else self.mark(node, (node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A chain of attributes, from a name or from an expression."""
        attributes, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            attributes.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name):
            return self.mark(node, (value.id, *reversed(attributes)))
        self.words.update(attributes)
        return self.generic_visit(node)

    def mark(self, node: ast.Name | ast.Attribute, chain: Chain) -> ast.AST:
        """The mark of a chain, but for a local one."""
        if any(names and chain[0] in names for names in self.scopes):
            self.words.update(chain[1:])
            return node
        self.chains.add(chain)
        return ast.Name(f"⦃{'.'.join(chain)}⦄", node.ctx)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        """A function: its decorators and defaults from outside, its body with local names."""
        self.words.add(node.name)
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        node.returns = node.returns and bare(node.returns)
        self.outside(node.args)
        node.body = self.inside(bound(node.args, node.body), node.body)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """A function without a name."""
        self.outside(node.args)
        [node.body] = self.inside(bound(node.args, []), [node.body])
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class."""
        for name in ("decorator_list", "bases", "keywords"):
            setattr(node, name, [self.visit(one) for one in getattr(node, name)])
        node.body = self.inside(None, node.body)
        return node

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> ast.AST:
        """A comprehension: what it loops over is local to it."""
        node.generators[0].iter = self.visit(node.generators[0].iter)
        self.scopes.append(bound(None, [one.target for one in node.generators]))
        self.generic_visit(node)
        self.scopes.pop()
        return node

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """An assignment with an annotation."""
        node.annotation = bare(node.annotation)
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """An import that is carried out when the definition runs."""
        self.imports.append(node)

    visit_ImportFrom = visit_Import

    def outside(self, arguments: ast.arguments) -> None:
        """Defaults, which are no part of a function's inside, and annotations."""
        arguments.defaults = [self.visit(one) for one in arguments.defaults]
        arguments.kw_defaults = [one and self.visit(one) for one in arguments.kw_defaults]
        for one in arguments_of(arguments):
            one.annotation = one.annotation and bare(one.annotation)

    def inside(self, names: set[str] | None, body: list[Any]) -> list[Any]:
        """A body with its local names, without statements that do nothing."""
        self.scopes.append(names)
        left = [self.visit(part) for part in body if not is_idle(part)]
        self.scopes.pop()
        return [part for part in left if part is not None]


class Bare(ast.NodeTransformer):
    """Takes the paths off names."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """The last of a chain."""
        return ast.Name(node.attr, node.ctx)


def bare(annotation: ast.expr) -> ast.expr:
    """An annotation without the modules that its names are looked up in."""
    found: ast.expr = Bare().visit(annotation)
    return found


def arguments_of(arguments: ast.arguments) -> list[ast.arg]:
    """Every argument of a function."""
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return several + [one for one in (arguments.vararg, arguments.kwarg) if one]


def bound(arguments: ast.arguments | None, body: Iterable[ast.AST]) -> set[str]:
    """The local names of a function: arguments, and what its body binds but by imports; of inner scopes the names."""
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
            name = getattr(node, "name", None) or getattr(node, "rest", None)  # of a handler, of a pattern
            found |= {name} if isinstance(name, str) else set()
            todo += ast.iter_child_nodes(node)
    return found - elsewhere


class Module:
    """The definitions of a module, its imports, and what it does beside."""

    def __init__(self, name: str, is_package: bool, source: bytes):
        self.package = name if is_package else name.rpartition(".")[0]
        self.definitions: dict[str, list[Statement]] = {}  # the statements that define each name
        self.imports: dict[str, Import] = {}
        self.stars: set[str] = set()
        self.loads: set[Import] = set()  # what importing it imports
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError):  # nothing that runs can import it; it counts as it is
            body = [ast.Expr(ast.Name(hashlib.sha256(source).hexdigest(), ast.Load()))]
        for statement in body:
            self.add(statement)

    def add(self, statement: ast.stmt) -> None:
        """File one statement by what it binds; a branch can import, and define, too."""
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
        """File what an import at the top binds."""
        found = imports_of(statement, self.package)
        self.loads.update(found.values())
        if isinstance(statement, ast.Import):
            self.loads.update((alias.name, None) for alias in statement.names)
        self.stars |= {where for name, (where, _) in found.items() if name == "*"}
        self.imports |= {name: one for name, one in found.items() if name != "*"}

    @functools.cached_property
    def loaded(self) -> set[str]:
        """The names of the modules that importing it imports, and of what may be one."""
        return {where for where, _ in self.loads} | {f"{where}.{what}" for where, what in self.loads if what}

    def has(self, name: str) -> bool:
        """Whether it has a name."""
        return name in self.definitions or name in self.imports

    @functools.cached_property
    def dynamic(self) -> bool:
        """Whether it looks names up in a way that cannot be followed."""
        found = [statement.normal for statements in self.definitions.values() for statement in statements]
        chains = [chain for normal in found for chain in normal.chains]
        words = set().union(*(normal.words for normal in found), *chains)
        by_string = any(chain[0] in BUILTINS or chain[:2] == ("sys", "modules") for chain in chains)
        return by_string or bool(words & DYNAMIC) or "__getattr__" in self.definitions


@functools.lru_cache(maxsize=4096)
def parse(name: str, is_package: bool, source: bytes) -> Module:
    """A module from its source."""
    return Module(name, is_package, source)


def imports_of(statement: ast.Import | ast.ImportFrom, package: str) -> dict[str, Import]:
    """What each name that an import binds stands for, relative ones by the package that it is in."""
    if isinstance(statement, ast.Import):
        return {
            a.asname or a.name.partition(".")[0]: (a.name if a.asname else a.name.partition(".")[0], None)
            for a in statement.names
        }
    above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
    where = ".".join([*above, *([statement.module] if statement.module else [])])
    return {alias.asname or alias.name: (where, alias.name) for alias in statement.names}


def names_bound(statement: ast.stmt) -> list[str]:
    """The names that a definition or an assignment binds; none where it does more, or something else."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    flat = [part for t in targets for part in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
    names = [part.id for part in flat if isinstance(part, ast.Name)]
    return names if len(names) == len(flat) else []


def is_idle(statement: ast.stmt) -> bool:
    """Whether a statement changes no run: a docstring, or a block for type checkers, for scripts, for `python -m`."""
    if isinstance(statement, ast.If) and not statement.orelse:
        return ast.unparse(statement.test) in IDLE
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )
