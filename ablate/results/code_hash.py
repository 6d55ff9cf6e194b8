"""What code a run passes through: the definitions that it uses, each with a digest of its normalised source.

A definition is a function, class or assigned name at the top of a module.  It uses those that its names resolve to,
through imports, re-exports and attributes of modules; a class counts as a whole.  Comments, docstrings and formatting
do not count, annotations count as text and lead nowhere.  Beside definitions count what the modules on the way do when
they are imported: their other statements, and whatever one of our own decorators is put on.

What cannot be known without running counts as a whole: a module used as a value, or imported by a star; and all of
another package that looks names up by string (`globals`, `importlib`) or lists subclasses.  An attribute of an object
that is looked up by string leads nowhere.  Sources are read once per process, those of this package when this module
is imported: a process goes by the code that it runs, whatever is edited meanwhile.  Nothing here needs torch.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

from ablate.results.code_index import WHOLE, Chain, Module, imports_of, parse

PACKAGE = Path(__file__).parents[1]
LOOP = (
    "ablate.training.trainer.Trainer",
    "ablate.training.trainer.new_trainer",
)  # what every run's numbers pass through
KEEPING = (
    "ablate.results.run",
    "ablate.results.manifest",
    "ablate.results.study",
    "ablate.results.atomic",
    "ablate.results.lease",
    "ablate.results.metrics_writer",
    "ablate.results.checksum",
    "ablate.results.damage",
)  # where numbers are put: it changes none
VERSIONED = ("torch", "numpy")  # by their versions, in a run's key
INSTALLED = {"site-packages", "dist-packages"}

Node = tuple[str, str]  # module, definition


@functools.cache
def read(path: Path) -> bytes:
    """A source file as it was when this process first read it."""
    return path.read_bytes()


for _file in PACKAGE.rglob("*.py"):
    read(_file)


class Use(NamedTuple):
    """What a definition uses: definitions, and what each imported name of it stands for."""

    nodes: frozenset[Node]
    names: tuple[str, ...]


class Sources:
    """The modules of some packages; `packages` gives the folders, or the one file, of each.

    Packages that these import belong to them, unless they are installed.  `edited` holds sources to go by instead of
    those on disk.
    """

    def __init__(self, packages: Mapping[str, Iterable[Path]], edited: Mapping[Path, bytes] | None = None):
        self.packages = {name: list(places) for name, places in packages.items()}
        self.edited = dict(edited or {})
        self.modules: dict[str, Module | None] = {}
        self.used: dict[Node, Use] = {}
        self.digests: dict[Node, str] = {}
        self.reached: dict[str, set[str]] = {}
        self.needed: dict[str, set[Node]] = {}

    def closure(self, roots: Iterable[str]) -> dict[str, str]:
        """Digest of every definition that these need, by its qualified name."""
        nodes: set[Node] = set().union(*(self.need(root) for root in roots))
        return {".".join(node): self.digest(node) for node in sorted(nodes)}

    def need(self, root: str) -> set[Node]:
        """Every definition that a qualified name needs, and what the modules of these do when they are imported."""
        if root in self.needed:
            return self.needed[root]
        todo, seen, modules = self.follow_name(root), set[Node](), set[str]()
        while todo:
            node = todo.pop()
            if node not in seen and node[0] not in KEEPING:
                seen.add(node)
                todo += self.use(node).nodes
                fresh = self.reach(node[0]) - modules
                modules |= fresh
                todo += [effect for name in fresh for effect in self.effects(name)]
        self.needed[root] = seen
        return seen

    def module(self, name: str) -> Module | None:
        """A module of these packages, or None."""
        if name not in self.modules:
            self.modules[name] = self.find(name)
        return self.modules[name]

    def find(self, name: str) -> Module | None:
        """Read a module from where its package lies; a folder without `__init__.py` is an empty one."""
        top, *rest = name.split(".")
        if top not in self.packages:  # of one's own, too, unless it is installed
            self.packages[top] = [place for place in places(top) if not INSTALLED.intersection(place.parts)]
        for place in self.packages[top]:
            base = place.joinpath(*rest)
            for path in (base / "__init__.py", base.with_name(f"{base.name}.py") if rest else base):
                if path in self.edited or path.is_file():
                    source = self.edited[path] if path in self.edited else read(path)
                    return parse(name, path.name == "__init__.py", source)
            if base.is_dir():
                return parse(name, True, b"")
        return None

    def follow_name(self, dotted: str) -> list[Node]:
        """What a `_target_` names: the longest module that there is, and what it has."""
        parts = dotted.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            if self.module(".".join(parts[:cut])):
                return self.follow(".".join(parts[:cut]), tuple(parts[cut:]))
        return []

    def follow(self, name: str, rest: Chain, seen: frozenset[tuple[str, Chain]] = frozenset()) -> list[Node]:
        """The definitions that attributes of a module stand for; all of the module where that is not to be known."""
        module = self.module(name)
        if module is None or (name, rest) in seen:
            return []
        seen |= {(name, rest)}
        if not rest:
            return [(name, definition) for definition in module.definitions]
        where, what = module.imports.get(rest[0], ("", None))
        if module.has(rest[0]) and (where, what) != (name, rest[0]):  # a package that imports its own module
            found = [(name, rest[0])] if rest[0] in module.definitions else []
            return found + self.follow(where, (what, *rest[1:]) if what else rest[1:], seen)
        if self.module(f"{name}.{rest[0]}"):
            return self.follow(f"{name}.{rest[0]}", rest[1:], seen)
        stars = [star for star in module.stars if (of := self.module(star)) and of.has(rest[0])]
        return self.follow(stars[0], rest, seen) if stars else self.follow(name, (), seen)

    def use(self, node: Node) -> Use:
        """What a definition uses; an imported name by what it stands for in the end."""
        if node not in self.used:
            name, definition = node
            found = self.modules[name].definitions[definition].found  # type: ignore[union-attr]
            self.used[node] = self.resolve(name, found.chains, found.imports)
        return self.used[node]

    def resolve(self, name: str, chains: Iterable[Chain], inner: Iterable[ast.Import | ast.ImportFrom] = ()) -> Use:
        """What chains of names in a module stand for, by imports inside the definition first."""
        module = self.modules[name]
        assert module
        own = {alias: one for statement in inner for alias, one in imports_of(statement, module.package).items()}
        nodes = {node for star in module.stars for node in self.follow(star, ())}
        names = set()
        for root, *rest in chains:
            if root in module.definitions:
                nodes.add((name, root))
            if place := own.get(root) or module.imports.get(root):
                found = self.follow(place[0], (place[1], *rest) if place[1] else tuple(rest))
                nodes.update(found)
                exact = found[0] if len(found) == 1 else (place[0], *filter(None, place[1:]))
                names.add(f"{root}={'.'.join(exact)}")
        return Use(frozenset(nodes), tuple(sorted(names)))

    def reach(self, name: str) -> set[str]:
        """A module, and all of these packages that importing it imports: the packages above each, too."""
        if name not in self.reached:
            found: set[str] = set()
            todo = [name]
            while todo:
                one = todo.pop()
                module = None if one in found else self.module(one)
                if module:
                    found.add(one)
                    todo += [one.rpartition(".")[0]] * ("." in one)
                    todo += [
                        part for where, what in module.loads for part in (where, *([f"{where}.{what}"] * bool(what)))
                    ]
            self.reached[name] = found
        return self.reached[name]

    def effects(self, name: str) -> list[Node]:
        """What a module does when it is imported; all of a package that looks names up by string."""
        module, top = self.modules[name], name.partition(".")[0]
        if module is None or name in KEEPING:
            return []
        if module.dynamic and top != PACKAGE.name:
            return [node for one in self.names_below(top) for node in self.follow(one, ())]
        return [
            (name, key)
            for key, definition in module.definitions.items()
            if key == WHOLE or (definition.decorators and self.resolve(name, definition.decorators).nodes)
        ]

    def names_below(self, top: str) -> Iterator[str]:
        """Every module of a package."""
        for place in self.packages[top]:
            for file in sorted(place.rglob("*.py")):
                parts = file.relative_to(place).with_suffix("").parts
                yield ".".join((top, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            if place.is_file():
                yield top

    def digest(self, node: Node) -> str:
        """Digest of a definition: its text, and what its imported names stand for."""
        if node not in self.digests:
            definition = self.modules[node[0]].definitions[node[1]]  # type: ignore[union-attr]
            content = "\n".join((definition.text, *self.use(node).names))
            self.digests[node] = hashlib.sha256(content.encode()).hexdigest()[:16]
        return self.digests[node]


def targets_of(value: Any) -> Iterator[str]:
    """Every `_target_` of a configuration."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        if key == "_target_":
            yield str(item)
        yield from targets_of(item)


def is_foreign(config: dict[str, Any]) -> bool:
    """Whether any part of a configuration is code from outside this package."""
    return any(not target.startswith(f"{PACKAGE.name}.") for target in targets_of(config))


def definitions(targets: Iterable[str], user: Iterable[str] = ()) -> dict[str, str]:
    """Digest of every definition that a run with these `_target_`s passes through, by its qualified name."""
    tops = tuple(sorted({package.partition(".")[0] for package in user}))
    return dict(_definitions(tuple(sorted(set(targets))), tops))


@functools.lru_cache(maxsize=1024)
def _definitions(targets: tuple[str, ...], packages: tuple[str, ...]) -> dict[str, str]:
    return sources(packages).closure((*LOOP, *targets))


@functools.cache
def sources(packages: tuple[str, ...]) -> Sources:
    """The sources of this package and of the user's, where they can be found."""
    return Sources({PACKAGE.name: [PACKAGE]} | {package: places(package) for package in packages})


def places(package: str) -> list[Path]:
    """The folders, or the file, of a package; none for one that cannot be found or counts by its version."""
    if package in VERSIONED or package in sys.stdlib_module_names:
        return []
    spec = find(package)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []


def find(package: str) -> ModuleSpec | None:
    """Where Python finds a package, or None."""
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None


def not_found(targets: Iterable[str], user: Iterable[str]) -> list[str]:
    """The packages of the user's own that `_target_`s are from and that Python does not find here."""
    tops = {target.partition(".")[0] for target in targets} & {package.partition(".")[0] for package in user}
    return sorted(top for top in tops if find(top) is None)
