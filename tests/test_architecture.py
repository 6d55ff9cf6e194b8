"""The rules of the house, each as a test."""

import ast
import functools
import re
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

from ablate.config.citations import entries
from ablate.config.groups import CONF, comment_words, groups
from ablate.config.schema import COMPONENTS
from ablate.config.targets import LIBRARIES, OWN_PACKAGES

# What each package may import, in the order in which data flow; what it is for, its docstring says.
ABLATE = {
    "formatting": "",
    "config": "formatting",
    "runs": "formatting config",
    "program": "formatting config runs",
    "model": "config",
    "data": "formatting config runs",
    "training": "config runs model data",
    "evidence": "formatting config runs",
    "execution": "formatting config runs program model data training",
    "planning": "formatting config runs program model data training evidence execution",
    "api": "config runs planning execution",
    "cli": "__init__ formatting config runs program data evidence execution planning api",
    "python": "formatting config runs training evidence execution planning api cli",
    "pair": "",
}
ANALYSIS = {
    "sources": "",
    "case": "",
    "figures": "case",
    "writing": "case figures",
    "cli": "sources case writing figures",
    "dashboard": "sources case writing cli",
}
FREE_OF_TORCH = "formatting config runs program evidence"  # what the analysis may import of ablate
DOORS = ("__init__", "__main__")  # of python -m


def modules(package: str) -> dict[str, Path]:
    """Every module of a package by its dotted name."""
    named = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in (ROOT / package).rglob("*.py")}
    return {name.removesuffix(".__init__"): file for name, file in named.items()}


MODULES = modules("ablate") | modules("analysis")


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


@functools.cache
def names_taken(module: str) -> list[tuple[str, list[str]]]:
    """Whence a module takes which names anywhere, inside functions, too."""
    nodes = [*ast.walk(tree(module))]
    taken = [(node.module, node.names) for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    taken += [(alias.name, []) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return [(whence, [alias.name for alias in names]) for whence, names in taken]


def imports(module: str) -> set[str]:
    """Modules of `ablate` and `analysis` that a module imports."""
    found = set()
    for whence, names in names_taken(module):
        found |= {f"{whence}.{name}" for name in names} & MODULES.keys() or {whence}
    return {name for name in found if name.split(".")[0] in ("ablate", "analysis")}


def place(module: str) -> tuple[str, str]:
    """The top package of a module, and the package below it that it belongs to."""
    top, _, rest = module.partition(".")
    return top, rest.partition(".")[0] or "__init__"


@pytest.mark.parametrize("top, table", [("ablate", ABLATE), ("analysis", ANALYSIS)])
def test_packages_say_what_they_are_for_and_import_what_their_row_says(top, table):
    unused = {package: set(row.split()) for package, row in table.items()}
    for module, file in modules(top).items():
        _, package = place(module)
        if package in DOORS:
            continue
        assert package in table, f"{file} stands in no package of the table"
        for other in imports(module):
            other_top, other_package = place(other)
            if other_top == top:
                allowed = {package, *table[package].split()}
                unused[package].discard(other_package)
            else:
                allowed = set(FREE_OF_TORCH.split()) if top == "analysis" else set()
            assert other_package in allowed, f"{module} must not import {other}"
    for package in table:
        assert ast.get_docstring(tree(f"{top}.{package}")), f"{top}/{package} does not say what it is for"
        assert not unused[package], f"the table allows {package} what it does not need: {unused[package]}"


WITHOUT_TORCH = ["ablate", "ablate.config.schema", "ablate.runs", "ablate.evidence", "ablate.python"]
WITHOUT_TORCH += [f"ablate.cli.{name}" for name in ("summary", "status", "main")]
WITHOUT_TORCH += ["ablate.planning.measured", "ablate.execution.tracking.tensorboard"]
WITHOUT_TORCH += ["ablate.execution.tracking.wandb", "analysis.cli.main", "analysis.writing.output"]
WITHOUT_TORCH += ["analysis.dashboard"]


def imported_at_once(module: str) -> set[str]:
    """What a module imports when it is imported, not inside of functions."""
    names = set()
    for node in tree(module).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_components_read_no_configuration():
    """All but build.py, which builds the components of a configuration."""
    for file in {*(ROOT / "ablate" / "model").rglob("*.py")} - {ROOT / "ablate" / "model" / "build.py"}:
        assert not re.search("omegaconf|hydra", file.read_text()), file


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_no_torch(module):
    todo, seen = [module], set()
    while todo:
        name = todo.pop()
        assert name.partition(".")[0] != "torch", f"{module} loads torch"
        if name in MODULES and name not in seen:
            seen.add(name)
            packages = [name.rsplit(".", i)[0] for i in range(1, name.count(".") + 1)]
            todo += [*imported_at_once(name), *packages]


# Beside the module that is named as the group.
MORE = {"attention": ("ablate.model.mixers",), "cross_attention": ("ablate.model.attention",)}
MORE["embedding"] = ("ablate.model.vectors",)


@pytest.mark.parametrize("group", COMPONENTS)
def test_a_variant_is_one_yaml_that_names_its_source(group):
    variants = groups()[group]
    assert variants
    for file in variants.values():
        text = file.read_text()
        example = "write a first line such as: # RMSNorm: x / √(mean x² + ε) · g."
        assert text.startswith("# "), f"{file} does not say what it is: {example}"
        keys, known = comment_words(file, "cite"), entries(CONF)
        assert keys, f"{file} names no paper: write a line # cite: KEY below the first, and the entry KEY in papers.bib"
        for key in keys:
            wanted = f"write @misc{{{key}, author = …, title = …, year = …}} there"
            assert key in known, f"{file} cites {key}, but ablate/conf/papers.bib has no such entry: {wanted}"
        module = f"ablate.model.{group}"
        own = f"_target_: {module}." in text or any(f"_target_: {other}." in text for other in MORE.get(group, ()))
        assert own, f"{file}: its class belongs in {module}; write _target_: {module}.NAME"
        assert "\n_partial_: true\n" in text, f"{file}: write _partial_: true below _target_"


def test_yaml_defaults_are_the_only_ones():
    """A constructor's own settings have no defaults in code: they would hide what a study trained.

    But for options: a YAML may leave them out, and the default, None, changes nothing.
    """
    import yaml

    from ablate.config.components import offered_names, parameters_of, resolve

    for group in COMPONENTS:
        for file in groups()[group].values():
            node = yaml.safe_load(file.read_text())
            target = resolve(group, node["_target_"])
            own = [p for p in parameters_of(target).values() if p.name not in offered_names(group)]
            defaults = {p.name: p.default for p in own if p.default is not p.empty}
            assert set(defaults.values()) <= {None}, f"{target.__name__} has defaults beside its YAML's"
            written = node.keys() - {"_target_", "_partial_"}
            assert {p.name for p in own} - defaults.keys() <= written <= {p.name for p in own}


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for group in extras for name in group)]
    names = {re.split(r"[\[<>=]", each)[0] for each in wanted} - {project["name"]}
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {name.lower() for name in names} <= pinned, "constraints.txt has a version of each"


def test_no_library_that_is_imported_can_be_a_users_package():
    imported = {whence.partition(".")[0] for module in MODULES for whence, _ in names_taken(module)}
    assert imported - sys.stdlib_module_names <= {*LIBRARIES, *OWN_PACKAGES}
