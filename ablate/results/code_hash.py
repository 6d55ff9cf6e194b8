"""The code that a run depends on: the definitions that it uses, each with a digest of its normalised source.

A definition is a top-level function, class or assigned name.  It uses the definitions that its names resolve to,
through imports, re-exports and attributes of modules; a class counts as a whole.  Comments, docstrings and formatting
do not count; annotations count as text and are not followed.  Side effects of importing the modules involved count,
too: their other statements, and every definition with a decorator from these packages.

The module of a definition and the imports that lead to it do not count: each reference is replaced by the name of its
target, so that code can be moved, and modules renamed, split and joined.

What cannot be resolved statically counts as a whole: a module used as a value or imported by a star, and all of a user
package that looks names up by string (`globals`, `importlib`) or lists subclasses.  `getattr` on an object is not
followed.  Sources are read once per process, those of this package when this module is imported, so that the digest is
of the code that runs, even if files are edited meanwhile.  Nothing here needs torch.
"""

import functools
import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ablate.results.code_index import MARK, WHOLE, Chain, Import, Module, imports_of, parse

PACKAGE = Path(str(files(__name__.partition(".")[0])))
# Definitions of this package, in any module; each name is unique.  LOOP: code that every run's numbers depend on.
LOOP = ("Trainer", "new_trainer")
# NEUTRAL: code that changes no numbers: the base schema (settings count by their values), code that finds components
# and checks their arguments, and code that writes results.
NEUTRAL: tuple[str, ...] = ("Config", "Seed", "stored", "typed", "resolve", "chosen_class")
NEUTRAL += ("argument_problems", "BadComponent", "code_of_part", "compiled_code", "is_foreign")
NEUTRAL += ("record", "optional", "MetricsWriter", "write_atomic", "set_aside", "digest")
NEUTRAL += ("SEAL", "seal_of", "sum_of")
DEPTH = 8  # a digest includes the texts of references up to this depth
VERSIONED = ("torch", "numpy")  # count by version in a run's key, not by source
INSTALLED = {"site-packages", "dist-packages"}

Node = tuple[str, str]  # module, definition
Found = list[tuple[Node, Chain]]  # definitions, and the attributes looked up in each


@functools.cache
def read(path: Path) -> bytes:
    """A source file as it was when this process first read it."""
    return path.read_bytes()


AS_IMPORTED = {file: read(file) for file in PACKAGE.rglob("*.py")}


class Use(NamedTuple):
    """The definitions that a definition uses, its source with resolved references, and the targets of these."""

    nodes: frozenset[Node]
    text: str
    references: dict[str, list[Node]]


class Code(NamedTuple):
    """The code that a run depends on: a digest of all of it, and one of each definition by qualified name."""

    content: str
    definitions: dict[str, str]


class Sources:
    """The modules of this and other packages, by their folders or single file, and of those that these import unless
    installed.  `edited` holds sources that replace those on disk."""

    def __init__(self, packages: Mapping[str, Iterable[Path]], edited: Mapping[Path, bytes] | None = None):
        self.packages = {PACKAGE.name: [PACKAGE]} | {name: list(places) for name, places in packages.items()}
        self.edited = dict(edited or {})
        # Each is computed once per argument.
        self.module = functools.cache(self.find)
        self.needed_by = functools.cache(self.need)
        self.use = functools.cache(self.resolve)
        self.effects = functools.cache(self.find_effects)
        self.digest = functools.cache(self.digest_of)
        self.code_of = functools.cache(lambda parts: self.code(dict(parts)))
        named = self.definitions_named((*LOOP, *NEUTRAL))
        self.loop = [".".join(node) for node in named if node[1] in LOOP]
        self.neutral = {node for node in named if node[1] in NEUTRAL}  # references to these are not followed

    def code(self, parts: Mapping[str, str]) -> Code:
        """The code of a run whose parts are these `_target_`s."""
        own = self if self.edited else sources()  # read once by a process that forks others
        roots = (*self.loop, *parts.values())
        needed = [(own if root.startswith(f"{PACKAGE.name}.") else self).needed_by(root) for root in roots]
        used = sorted({digest for one in needed for digest in one.values()})
        chosen = {part: sorted(self.digest(node, DEPTH) for node, _ in self.follow_name(parts[part])) for part in parts}
        content = hashlib.sha256(json.dumps([used, chosen], sort_keys=True).encode()).hexdigest()
        return Code(content, {".".join(node): self.digest(node) for node in sorted(set[Node]().union(*needed))})

    def definitions_named(self, names: Iterable[str], top: str = PACKAGE.name) -> list[Node]:
        """The definitions of a package that have these names."""
        pattern = re.compile(rf"^(?:(?:class|def) +)?({'|'.join(names)})\b *[(:=]".encode(), re.MULTILINE)
        files = ((name, self.source(file)) for name, file in self.files_below(top))
        return [(name, match[1].decode()) for name, source in files for match in pattern.finditer(source)]

    def need(self, root: str) -> dict[Node, str]:
        """Every definition that a qualified name needs, with its digest.  A definition needs what importing its module
        does: the effects of the module, of those that it imports, and of their parent packages."""
        todo, seen, loaded = [node for node, _ in self.follow_name(root)], set[Node](), set[str]()
        while todo:
            node = todo.pop()
            if node not in seen and node not in self.neutral:
                seen.add(node)
                todo += self.use(node).nodes
                names = [node[0]]
                while names:
                    name = names.pop()
                    if name not in loaded and (module := self.module(name)):
                        loaded.add(name)
                        names += [name.rpartition(".")[0], *module.loaded]
                        todo += self.effects(name)
        return {node: self.digest(node, DEPTH) for node in seen}

    def find(self, name: str) -> Module | None:
        """Read a module of these packages; a folder without `__init__.py` is an empty module."""
        top, *rest = name.split(".")
        if top not in self.packages:  # user code, too, unless it is installed
            self.packages[top] = [place for place in places(top) if not INSTALLED.intersection(place.parts)]
        for place in self.packages[top]:
            base = place.joinpath(*rest)
            for path in (base / "__init__.py", base.with_name(f"{base.name}.py") if rest else base):
                if path in self.edited or path.is_file():
                    return parse(name, path.name == "__init__.py", self.source(path))
            if base.is_dir():
                return parse(name, True, b"")
        return None

    def source(self, path: Path) -> bytes:
        """The source of a file, from `edited` if it is there."""
        return self.edited[path] if path in self.edited else read(path)

    def follow_name(self, dotted: str) -> Found:
        """The definitions that a `_target_` names: the longest prefix that is a module, then its attributes."""
        parts = dotted.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            if self.module(".".join(parts[:cut])):
                return self.follow(".".join(parts[:cut]), tuple(parts[cut:]))
        return []

    def follow(self, name: str, rest: Chain, seen: frozenset[tuple[str, Chain]] = frozenset()) -> Found:
        """The definitions that attributes of a module refer to; all of the module if they cannot be resolved."""
        module = self.module(name)
        if module is None or (name, rest) in seen:
            return []
        seen |= {(name, rest)}
        if not rest:
            return [((name, definition), ()) for definition in module.definitions]
        where, what = module.imports.get(rest[0], ("", None))
        itself = (where, what) == (name, rest[0])  # a package that imports its own module
        if (where or rest[0] in module.definitions) and not itself:
            found: Found = [((name, rest[0]), rest[1:])] if rest[0] in module.definitions else []
            return found + self.follow(where, (what, *rest[1:]) if what else rest[1:], seen)
        if self.module(f"{name}.{rest[0]}"):
            return self.follow(f"{name}.{rest[0]}", rest[1:], seen)
        stars = [star for star in module.stars if (of := self.module(star)) and rest[0] in of.definitions | of.imports]
        return self.follow(stars[0], rest, seen) if stars else self.follow(name, (), seen)

    def resolve(self, node: Node) -> Use:
        """What a definition uses: the targets of its names, its own imports first."""
        name, definition = node
        module = self.module(name)
        assert module
        parts = [statement.normal for statement in module.definitions[definition]]
        inner = [one for part in parts for one in part.imports]
        own = {alias: place for one in inner for alias, place in imports_of(one, module.package).items()}
        chains = set[Chain]().union(*(part.chains for part in parts))
        idle = {(alias,) for alias in own} - {chain[:1] for chain in chains}  # imported for side effects
        meant = {".".join(chain): self.meaning(name, chain, own) for chain in chains | idle}
        nodes = {found for star in module.stars for found, _ in self.follow(star, ())}
        references: dict[str, list[Node]] = {}
        for found, written in meant.values():
            references.setdefault(written, []).extend(node for node, _ in found)
        names = {chain: written for chain, (_, written) in meant.items()}
        text = MARK.sub(lambda mark: names.get(mark[1], mark[0]), "\n".join(part.text for part in parts))
        more = sorted(names[".".join(chain)] for chain in idle)
        return Use(frozenset(nodes.union(*references.values())), "\n".join((text, *more)), references)

    def meaning(self, name: str, chain: Chain, own: Mapping[str, Import]) -> tuple[Found, str]:
        """The definitions that a name in a module refers to, and how it is written independently of their modules."""
        module = self.module(name)
        assert module
        root, *rest = chain
        found: Found = [((name, root), tuple(rest))] if root in module.definitions and root not in own else []
        where, what = own.get(root) or module.imports.get(root) or ("", None)
        if where:
            found += self.follow(where, (what, *rest) if what else tuple(rest))
        if found:
            return found, "|".join(sorted({".".join((node[1], *more)) for node, more in found}))
        return [], ".".join((where, *filter(None, [what]), *rest) if where and not self.module(where) else chain)

    def find_effects(self, name: str) -> list[Node]:
        """A module's definitions that act on import; those of the whole package if it looks names up by string."""
        module, top = self.module(name), name.partition(".")[0]
        if module is None:
            return []
        if top != PACKAGE.name and module.dynamic:
            return [node for one, _ in self.files_below(top) for node, _ in self.follow(one, ())]
        acting = [WHOLE] if WHOLE in module.definitions else []
        for key, statements in module.definitions.items():
            found = (self.meaning(name, chain, {})[0] for one in statements for chain in one.decorators)
            if any(node not in self.neutral for nodes in found for node, _ in nodes):  # it may register them
                acting.append(key)
        return [(name, key) for key in acting]

    def files_below(self, top: str) -> Iterator[tuple[str, Path]]:
        """Every module of a package, and its file."""
        for place in self.packages[top]:
            for file in sorted(place.rglob("*.py")):
                parts = file.relative_to(place).with_suffix("").parts
                yield ".".join((top, *(parts[:-1] if parts[-1] == "__init__" else parts))), file
            if place.is_file():
                yield top, place

    def digest_of(self, node: Node, depth: int = 0) -> str:
        """Digest of a definition: its text, and the texts of the definitions it refers to, `depth` references deep."""
        use = self.use(node)
        inner = {
            written: sorted({self.digest(found, depth - 1) for found in nodes if found not in self.neutral})
            for written, nodes in (use.references.items() if depth else ())
        }
        return hashlib.sha256(json.dumps([use.text, inner], sort_keys=True).encode()).hexdigest()[:16]


def code_of(parts: Mapping[str, str], user: Iterable[str] = ()) -> Code:
    """The code of a run with these `_target_`s; `parts` is keyed by path in the configuration."""
    return sources(user).code_of(frozenset(parts.items()))


def code_of_part(target: str, user: Iterable[str] = ()) -> str:
    """A digest of the code that one `_target_` depends on, without the training loop."""
    return hashlib.sha256(json.dumps(sorted({*sources(user).needed_by(target).values()})).encode()).hexdigest()


def sources(user: Iterable[str] = ()) -> Sources:
    """The sources of this package and of the user packages that can be found; read once per process."""
    return _sources(frozenset(package.partition(".")[0] for package in user))


@functools.cache
def _sources(tops: frozenset[str]) -> Sources:
    return Sources({package: places(package) for package in tops})


def places(package: str) -> list[Path]:
    """The folders, or the file, of a package; empty if it cannot be found or counts by its version."""
    if package in {*VERSIONED, *sys.stdlib_module_names} or not (spec := find(package)):
        return []
    if spec.submodule_search_locations is not None:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []


def find(package: str) -> ModuleSpec | None:
    """The spec with which Python would import a package, or None."""
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
