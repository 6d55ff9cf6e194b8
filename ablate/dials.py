"""Dead dials: settings that nothing reads, and cells that are one network, or one set of data, under two names."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ablate.apart import Described, beside
from ablate.build import RESERVED, BadComponent, build_task, resolve
from ablate.gate import Checked
from ablate.identity import numbers
from ablate.schema import COMPONENTS, PlanError, Problem

Row = dict[str, Any]
Pair = tuple[int, int]
Signature = list[list[float]] | None  # of a copy: of each of its outputs the size, then projections
ROUNDING = 1e-10  # of the size: in float64 what sums in another order leave, and far below what float32 can tell


def unread(config: dict[str, Any]) -> list[list[str]]:
    """Settings of a cell's components and data that their code never reads, as [key, message]."""
    found = []
    for group in (*COMPONENTS, "data"):
        node, user = config[group], config["user"]
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


def refuse_equal(rows: list[Row], checked: list[Checked], allowed: bool) -> list[str]:
    """Raise PlanError for cells that are the same in all that a run's numbers depend on.

    Cells that differ in a component that has no place are told in notes where they are allowed.
    """
    seen: dict[str, int] = {}
    problems, notes = [], []
    for i, (row, cell) in enumerate(zip(rows, checked, strict=True)):
        used = {key: value for key, value in numbers(cell.config).items() if key not in cell.budget.unused}
        first = seen.setdefault(json.dumps([used, row["task"]], sort_keys=True), i)
        if first == i:
            continue
        why = "".join(f", which has no place for a {group}" for group in cell.budget.unused)
        said = f"{row['label']} is the same cell as {rows[first]['label']}{why}"
        if allowed and row["id"] != rows[first]["id"]:
            notes.append(f"{said}; allow_duplicates=true trains both")
        else:
            problems.append(Problem("", f"{said}; leave one of them out"))
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))
    return notes


def same_networks(
    checked: list[Checked], signatures: list[Signature], confirm: Callable[[int], Signature]
) -> Iterator[Pair]:
    """Pairs of cells that differ in components or the model's keys alone and whose copies agree but for rounding.

    `confirm` gives a cell's signature at its own sizes: what is small can be equal for being small.
    """
    seen: dict[str, list[int]] = {}
    for i, cell in enumerate(checked):
        rest = without(cell.config, (*COMPONENTS, "model"))
        late = beside(cell.config, partial(late_settings, cell.config))
        others = seen.setdefault(json.dumps([rest, cell.task.fingerprint, late], sort_keys=True), [])
        first = next((j for j in others if alike(signatures[j], signatures[i])), None)
        if first is None:
            others.append(i)
            continue
        used = [without(checked[j].config, checked[j].budget.unused) for j in (first, i)]
        # Those that use the same settings have been told, or are allowed.
        if used[0] != used[1] and alike(confirm(first), confirm(i)):
            yield first, i


def alike(first: Signature, second: Signature) -> bool:
    """Whether two copies agree but for rounding: the same numbers, computed in another order, are one network."""
    if first is None or second is None or len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(abs(x - y) <= ROUNDING * abs(one[0]) for one, other in pairs for x, y in zip(one, other, strict=True))


def late_settings(config: dict[str, Any]) -> list[Any]:
    """Settings that need not act in two steps: those that a component's class names in `late`."""
    found = []
    for group in COMPONENTS:
        target = resolve(group, config[group]["_target_"], config["user"])
        found += [[group, key, config[group].get(key)] for key in getattr(target, "late", ())]
    return found


def same_data(checked: list[Checked]) -> Iterator[Pair]:
    """Pairs of cells that differ in keys of data alone and get the same batches and held-out examples all the same."""
    strata: dict[str, list[int]] = {}
    for i, cell in enumerate(checked):
        strata.setdefault(json.dumps(without(cell.config, ("data",)), sort_keys=True), []).append(i)
    for members in strata.values():
        seen: dict[str, int] = {}
        for i in members if len(members) > 1 else []:
            first = seen.setdefault(beside(checked[i].config, partial(contents, checked[i])), i)
            if numbers(checked[first].config) != numbers(checked[i].config):
                yield first, i


def contents(cell: Checked) -> str:
    """Hash of a cell's first batches, its held-out examples, and what else its task is to a model."""
    task = build_task(cell.config, cell.config["user"]) if isinstance(cell.task, Described) else cell.task
    size, tokens = cell.config["train"]["batch_size"], cell.config["eval"]["tokens"]
    parts = [task.batch(0, step, size) for step in range(3)]
    parts += [task.held_out(split, tokens) for split in ("val", "test")]
    found = hashlib.sha256(json.dumps([task.kind, task.vocab, task.outputs, task.context, task.metrics]).encode())
    for part in parts:
        for name, tensor in [*sorted(part.inputs.items()), ("targets", part.targets)]:
            found.update(f"{name} {tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def without(config: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """What a run's numbers depend on, but for some keys."""
    return {key: value for key, value in numbers(config).items() if key not in keys}


def names(rows: list[Row], pair: Pair) -> tuple[str, str]:
    """Two cells by the keys in which they differ."""
    first, second = (rows[i]["levels"] for i in pair)
    keys = [key for key in first if first[key] != second[key]]
    left, right = (" + ".join(f"{key}={typed(levels[key])}" for key in keys) for levels in (first, second))
    return left or rows[pair[0]]["label"], right or rows[pair[1]]["label"]


def typed(value: Any) -> str:
    """A value as people type it."""
    return value if isinstance(value, str) else json.dumps(value)
