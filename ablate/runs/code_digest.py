"""The code of this package that a run uses: the training loop, its components, and every definition they refer to.

A definition is a top-level function, class or assignment.  It refers to every definition that one of its identifiers
names in its module, directly or by an import.  Identifiers are not resolved by scope, so that a local variable with
the name of a function counts as a reference: too much code may count, never too little.  Annotations are not followed.
Comments, docstrings, formatting and the place of a definition do not count.

Sources are read when this module is imported, so that the digest is of the code that runs, even if files are edited
meanwhile.  Nothing here needs torch.
"""

import ast
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
LOOP = ("ablate.training.trainer.Trainer", "ablate.training.trainer.new_trainer")
# Definitions that change no numbers, each of a name of its own: the base schema (settings count by their values), what
# finds components and checks their arguments, and what writes results.  References to these are not followed.
NEUTRAL = {"Config", "Seed", "stored", "typed", "resolve", "chosen_class", "argument_problems", "BadComponent"}
NEUTRAL |= {"code_of_part", "compiled_code", "is_foreign", "record", "optional", "MetricsWriter", "write_atomic"}
NEUTRAL |= {"set_aside", "digest", "SEAL", "seal_of", "sum_of"}
IMPORT = "<import>"  # the name of the statements of a module that define nothing

SOURCES = {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}


@dataclasses.dataclass(frozen=True)
class Definition:
    """A digest of a definition's own source and of the names in it, and the qualified names that it refers to."""

    digest: str
    references: list[str]


@dataclasses.dataclass(frozen=True)
class Code:
    """The code that a run depends on: a digest of all of it, and one of each definition by qualified name."""

    content: str
    definitions: dict[str, str]


class Module:
    """The definitions and imports of one source file."""

    def __init__(self, source: bytes):
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, list[str]] = {}  # the qualified names behind each local name
        for statement in ast.parse(source).body:
            for node in statements_in(statement):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    for local, target in imports_of(node):
                        self.imports.setdefault(local, []).append(target)
            if not is_idle(statement):
                for defined in defined_names(statement) or [IMPORT]:
                    self.definitions.setdefault(defined, []).append(statement)
        self.at_import = [name for name in self.definitions if name == IMPORT or self.is_registered(name)]

    def is_registered(self, name: str) -> bool:
        """Whether a function has a decorator of this package, which may call it or keep it somewhere."""
        own = {*self.definitions, *(local for local, targets in self.imports.items() if is_own(targets[0]))}
        for statement in self.definitions[name]:
            decorators = statement.decorator_list if isinstance(statement, ast.FunctionDef) else []
            if any(identifiers_of(decorator) & own for decorator in decorators):
                return True
        return False


read_module = functools.lru_cache(maxsize=1000)(Module)  # sources that are edited in memory share the other modules


def is_own(qualified: str) -> bool:
    """Whether a qualified name is of this package."""
    return qualified.startswith("ablate.")


def imports_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, with the qualified name behind it.  No module of this package has a relative
    import."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield alias.asname or alias.name.partition(".")[0], alias.name
        else:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def statements_in(statement: ast.AST) -> Iterator[ast.AST]:
    """A statement and all statements inside of it; expressions, which hold none, are not searched."""
    yield statement
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(statement, field, []):
            yield from statements_in(inner)


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
    if isinstance(statement, ast.If) and not statement.orelse:
        return ast.unparse(statement.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)


@functools.cache
def source_of(statement: ast.stmt) -> str:
    """A statement without docstrings, comments, formatting and imports."""
    for node in statements_in(statement):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if block:
                setattr(node, field, [inner for inner in block if not is_idle(inner)] or [ast.Pass()])
    return ast.unparse(statement)


@functools.cache
def identifiers_of(node: ast.AST) -> frozenset[str]:
    """Every name and attribute in a part of a syntax tree, but for annotations."""
    identifiers = set()
    todo = [node]
    while todo:
        inner = todo.pop()
        if isinstance(inner, ast.Name):
            identifiers.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            identifiers.add(inner.attr)
        annotations = [getattr(inner, "annotation", None), getattr(inner, "returns", None)]
        todo += [child for child in ast.iter_child_nodes(inner) if child not in annotations]
    return frozenset(identifiers)


class Sources:
    """The modules of this package; `edited` replaces sources, by path."""

    def __init__(self, edited: Mapping[str, bytes] | None = None):
        self.sources = {**SOURCES, **(edited or {})}
        self.module = functools.cache(self.find_module)
        self.definition = functools.cache(self.find_definition)
        self.code_of = functools.cache(self.find_code)

    def find_module(self, name: str) -> Module | None:
        """A module of this package, by its dotted name; None for other names."""
        path = name.replace(".", "/")
        source = self.sources.get(f"{path}/__init__.py") or self.sources.get(f"{path}.py")
        return None if source is None else read_module(source)

    def resolve(self, qualified: str) -> list[str]:
        """The definitions that a qualified name means, through imports; those of a whole module for its name."""
        whole = self.module(qualified)
        if whole:
            return [f"{qualified}.{name}" for name in whole.definitions]
        owner, _, name = qualified.rpartition(".")
        module = self.module(owner)
        if module is None or name in NEUTRAL:
            return []
        if name in module.definitions:
            return [qualified]
        targets = [target for target in module.imports.get(name, []) if target != qualified and not self.module(target)]
        return [definition for target in targets for definition in self.resolve(target)]

    def find_definition(self, qualified: str) -> Definition:
        """A definition by its qualified name."""
        owner, _, name = qualified.rpartition(".")
        module = self.module(owner)
        assert module
        statements = module.definitions[name]
        identifiers = sorted(frozenset[str]().union(*map(identifiers_of, statements)))
        meanings = []
        references = [f"{owner}.{effect}" for effect in module.at_import]
        for identifier in identifiers:
            targets = [f"{owner}.{identifier}"] if identifier in module.definitions else []
            for target in module.imports.get(identifier, []):
                if self.module(target):  # its definitions are used as attributes
                    targets += [f"{target}.{attribute}" for attribute in identifiers]
                else:
                    targets.append(target)
            for target in targets:
                references += self.resolve(target)
                meanings.append([identifier, target.rpartition(".")[2] if is_own(target) else target])
        content = digest_of([[source_of(statement) for statement in statements], meanings])
        return Definition(content[:16], references)

    def walk(self, roots: Iterable[str]) -> dict[str, Definition]:
        """Every definition that some qualified names need."""
        definitions: dict[str, Definition] = {}
        todo = [definition for root in roots for definition in self.resolve(root)]
        while todo:
            qualified = todo.pop()
            if qualified not in definitions:
                definitions[qualified] = self.definition(qualified)
                todo += definitions[qualified].references
        return definitions

    def resolve_longest(self, qualified: str) -> list[str]:
        """The definitions that the longest beginning of a qualified name means; of a package, those of its modules."""
        while qualified and not self.module(qualified) and not self.resolve(qualified):
            qualified = qualified.rpartition(".")[0]
        folder = qualified.replace(".", "/")
        if f"{folder}/__init__.py" not in self.sources:
            return self.resolve(qualified)
        files = [file for file in self.sources if file.startswith(f"{folder}/")]
        modules = sorted({file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files})
        return [definition for module in modules for definition in self.resolve(module)]

    def find_code(self, parts: tuple[tuple[str, str], ...], more: tuple[str, ...] = ()) -> Code:
        """The code of a run with these `_target_`s, each with its path in the configuration, and of `more` names."""
        further = [definition for name in more for definition in self.resolve_longest(name)]
        definitions = self.walk([*LOOP, *(target for _, target in parts), *further])
        digests = {qualified: definitions[qualified].digest for qualified in sorted(definitions)}
        chosen = [[path, target.rpartition(".")[2]] for path, target in parts]
        return Code(digest_of([sorted(digests.values()), chosen]), digests)


def digest_of(value: object) -> str:
    """A digest of plain values."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


AS_IMPORTED = Sources()


def code_of(parts: Mapping[str, str], more: Iterable[str] = ()) -> Code:
    """The code of a run with these `_target_`s, by path in the configuration, and of `more` qualified names."""
    return AS_IMPORTED.code_of(tuple(sorted(parts.items())), tuple(sorted(more)))


def part_digest(target: str) -> str:
    """A digest of the code of this package that one `_target_` depends on, without the training loop."""
    return digest_of(sorted(definition.digest for definition in AS_IMPORTED.walk([target]).values()))
