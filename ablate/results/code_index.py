"""One module's source taken apart: what it defines, what each definition refers to, what it imports.  No torch."""

from __future__ import annotations

import ast
import functools
import hashlib

WHOLE = "<module>"  # the statements of a module that define nothing
# What looks names up in a way that cannot be followed: names by themselves, and names anywhere.
BUILTINS = {"globals", "vars", "eval", "exec", "__import__"}
DYNAMIC = {"importlib", "import_module", "pkgutil", "getmembers", "__subclasses__", "__init_subclass__"}

Chain = tuple[str, ...]  # a.b.c
Import = tuple[str, str | None]  # of a module itself, or of a name in it


class Definition:
    """The statements that define a name."""

    def __init__(self) -> None:
        self.statements: list[ast.stmt] = []

    @functools.cached_property
    def found(self) -> Finder:
        """The names that they use."""
        finder = Finder()
        for statement in self.statements:
            finder.visit(statement)
        return finder

    @functools.cached_property
    def decorators(self) -> set[Chain]:
        """The names of decorators and metaclasses, which can do more than define."""
        finder = Finder()
        for statement in self.statements:
            keywords = statement.keywords if isinstance(statement, ast.ClassDef) else []
            for part in (*getattr(statement, "decorator_list", []), *keywords):
                finder.visit(part)
        return finder.chains

    @functools.cached_property
    def text(self) -> str:
        """Their source without comments, docstrings and formatting."""
        return "\n".join(ast.unparse(without_docstrings(statement)) for statement in self.statements)


class Finder(ast.NodeVisitor):
    """Collects chains of names that are used, and the imports inside functions; annotations are passed over."""

    def __init__(self) -> None:
        self.chains: set[Chain] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.words: set[str] = set()  # names of functions, and attributes of expressions

    def visit_Name(self, node: ast.Name) -> None:
        """A name by itself."""
        self.chains.add((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """A chain of attributes, from a name or from an expression."""
        attributes, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            attributes.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name):
            self.chains.add((value.id, *reversed(attributes)))
        else:
            self.words.update(attributes)
            self.visit(value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function but for its annotations."""
        self.words.add(node.name)
        for part in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, *node.body):
            if part is not None:
                self.visit(part)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """As any other."""
        self.visit_FunctionDef(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """An assignment but for its annotation."""
        for part in (node.target, node.value):
            if part is not None:
                self.visit(part)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """An import that is carried out when the definition runs."""
        self.imports.append(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """As any other."""
        self.imports.append(node)


class Module:
    """The definitions of a module, its imports, and what it does beside."""

    def __init__(self, name: str, is_package: bool, source: bytes):
        self.package = name if is_package else name.rpartition(".")[0]
        self.definitions: dict[str, Definition] = {}
        self.imports: dict[str, Import] = {}
        self.stars: set[str] = set()
        self.loads: set[Import] = set()  # what importing it imports
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError):  # nothing that runs can import it; it counts as it is
            body = [ast.Expr(ast.Name(hashlib.sha256(source).hexdigest()))]
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
            for name in dict.fromkeys(names if names_bound(statement) else [*names, WHOLE]):
                self.definitions.setdefault(name, Definition()).statements.append(statement)

    def bind(self, statement: ast.Import | ast.ImportFrom) -> None:
        """File what an import at the top binds."""
        found = imports_of(statement, self.package)
        self.loads.update(found.values())
        if isinstance(statement, ast.Import):
            self.loads.update((alias.name, None) for alias in statement.names)
        self.stars |= {where for name, (where, _) in found.items() if name == "*"}
        self.imports |= {name: one for name, one in found.items() if name != "*"}

    def has(self, name: str) -> bool:
        """Whether it has a name."""
        return name in self.definitions or name in self.imports

    @functools.cached_property
    def dynamic(self) -> bool:
        """Whether it looks names up in a way that cannot be followed."""
        found = [definition.found for definition in self.definitions.values()]
        chains = [chain for finder in found for chain in finder.chains]
        words = set().union(*(finder.words for finder in found), *chains)
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
    """Whether a statement does nothing at import: a docstring, a block for type checkers, or for scripts."""
    if isinstance(statement, ast.If) and not statement.orelse:
        return ast.unparse(statement.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'")
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def without_docstrings(statement: ast.stmt) -> ast.stmt:
    """A statement, in place, without strings that stand by themselves."""
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.body = [inner for inner in node.body if not is_idle(inner)] or [ast.Pass()]
    return statement
