"""The code of this package that a run uses: the training loop, its components, and every definition they refer to.

A definition is a top-level function, class or assignment.  It refers to every definition that one of its identifiers
names in its module, directly or by an import.  Identifiers are not resolved by scope, so that a local variable with
the name of a function counts as a reference: too much code may count, never too little.  Comments, docstrings,
formatting and the place of a definition do not count.

Sources are read when this module is imported, so that the digest is of the code that runs, even if files are edited
meanwhile.  Nothing here needs torch.
"""

import ast
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
LOOP = ("ablate.training.trainer.Trainer", "ablate.training.trainer.new_trainer")
# Definitions that change no numbers, each of a name of its own: the base schema (settings count by their values), what
# finds components and checks their arguments, and what writes results.  References to these are not followed.
NEUTRAL = {"Config", "Seed", "stored", "typed", "resolve", "chosen_class", "argument_problems", "BadComponent"}
NEUTRAL |= {"code_of_part", "compiled_code", "is_foreign", "record", "optional", "MetricsWriter", "write_atomic"}
NEUTRAL |= {"set_aside", "digest", "SEAL", "seal_of", "write_sealed", "sum_of", "open_archive"}

SOURCES = {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}


class Module:
    """The definitions and imports of one source file."""

    def __init__(self, name: str, source: bytes, is_package: bool):
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, str] = {}  # the qualified name behind each local name
        self.effects: list[ast.stmt] = []  # statements that may change what definitions compute when it is imported
        self.package = name if is_package else name.rpartition(".")[0]
        for statement in ast.parse(source).body:
            self.add(statement)

    def add(self, statement: ast.stmt) -> None:
        """Index one top-level statement."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports |= imports_of(node, self.package)
        names = defined_names(statement)
        for name in names:
            self.definitions.setdefault(name, []).append(statement)
        is_registered = isinstance(statement, ast.FunctionDef) and bool(statement.decorator_list)
        if is_registered or not (names or is_idle(statement)):
            self.effects.append(statement)


def imports_of(node: ast.Import | ast.ImportFrom, package: str) -> dict[str, str]:
    """The qualified name behind each name that an import binds."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
    above = package.split(".")[: -(node.level - 1) or None] if node.level else []
    origin = ".".join([*above, *filter(None, [node.module])])
    return {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in node.names}


def defined_names(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return []
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    names = []
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
    return names


def is_idle(statement: ast.stmt) -> bool:
    """Whether a statement only imports, documents, or runs as a script or for type checkers."""
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Import | ast.ImportFrom)


class Sources:
    """The modules of this package; `edited` replaces sources, by path."""

    def __init__(self, edited: Mapping[str, bytes] | None = None):
        self.sources = {**SOURCES, **(edited or {})}
        self.module = functools.cache(self.read_module)
        self.closure = functools.cache(self.find_closure)

    def read_module(self, name: str) -> Module | None:
        """A module of this package, by its dotted name; None for other names."""
        path = name.replace(".", "/")
        for file in (f"{path}/__init__.py", f"{path}.py"):
            if file in self.sources:
                return Module(name, self.sources[file], is_package=file.endswith("/__init__.py"))
        return None

    def find_closure(self, root: str) -> dict[str, str]:
        """The source of every definition that a qualified name needs, by qualified name."""
        sources: dict[str, str] = {}
        todo = [root]
        while todo:
            qualified = todo.pop()
            owner, _, name = qualified.rpartition(".")
            module = self.module(owner)
            if module is None or qualified in sources or name in NEUTRAL:
                continue
            if name in module.definitions:
                statements = [*module.definitions[name], *module.effects]
                sources[qualified] = "\n".join(source_of(statement) for statement in statements)
                todo += self.references(owner, module, statements)
            elif name in module.imports:
                todo.append(module.imports[name])
        return sources

    def references(self, owner: str, module: Module, statements: Iterable[ast.stmt]) -> list[str]:
        """The qualified names that identifiers of some statements of a module may mean."""
        identifiers: set[str] = set()
        for statement in statements:
            identifiers |= identifiers_of(statement)
        names = [f"{owner}.{name}" for name in identifiers & module.definitions.keys()]
        for name in identifiers & module.imports.keys():
            target = module.imports[name]
            names.append(target)
            if self.module(target):  # its definitions are used as attributes
                names += [f"{target}.{attribute}" for attribute in identifiers]
        return names

    def used(self, roots: Iterable[str]) -> dict[str, str]:
        """The source of every definition that some qualified names need."""
        sources: dict[str, str] = {}
        for root in roots:
            sources |= self.closure(root)
        return sources


@functools.cache
def source_of(statement: ast.stmt) -> str:
    """A statement without docstrings, comments and formatting."""
    for node in ast.walk(statement):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body[0] = ast.Pass()
    return ast.unparse(statement)


@functools.cache
def identifiers_of(statement: ast.stmt) -> set[str]:
    """Every name and attribute in a statement."""
    identifiers = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            identifiers.add(node.id)
        elif isinstance(node, ast.Attribute):
            identifiers.add(node.attr)
    return identifiers


SOURCES_AS_IMPORTED = Sources()


def digest_of(sources: Iterable[str]) -> str:
    """A digest of sources that does not depend on their order and place."""
    return hashlib.sha256(json.dumps(sorted(set(sources))).encode()).hexdigest()


def code_of_part(target: str) -> str:
    """A digest of the code that one `_target_` of this package depends on, without the training loop."""
    return digest_of(SOURCES_AS_IMPORTED.used([target]).values())
