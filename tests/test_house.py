"""The rules of the house, each as a test."""

from __future__ import annotations

import ast
import graphlib
import importlib
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run_module

from ablate.catalogue import CONF, groups
from ablate.schema import COMPONENTS

# What each part may import of the package, in the order in which data flow.
LAYERS = [
    {"catalogue", "schema", "designs", "source", "code", "files", "fork", "manifests", "overfit", "state", "stop"}
    | {"checksum", "damage", "logged", "numerals", "streams", "targets", "words"},
    {"margins", "plain", "variants"},
    {"relations"},
    {"grammar"},
    {"lease", "tidy"},
    {"model", "data", "optim", "average"},
    {"apart", "build", "metrics"},
    {"accumulate", "decode", "recalibrate"},
    {"endpoint", "budget", "results", "units"},
    {"diagnose", "lengths", "load", "command"},
    {"identity", "gate", "compose", "train", "history", "match", "evidence", "settings", "card"},
    {"factors", "copies", "dials", "hold", "questions"},
    {"cells", "claims", "experiment", "reuse", "probe"},
    {"grid", "looks", "pool", "nursery", "shares"},
    {"exchange", "placebo", "tunable", "tuning", "memory"},
    {"rounds", "trials"},
    {"plan", "worker", "sync"},
    {"preview", "summary", "pace", "watched", "progress", "track"},
    {"standing", "litter"},
    {"sweep", "evaluate", "status", "diff", "clean"},
    {"__main__", "__init__"},
]
ALLOWED = {
    "model": {"model"},
    "data": {"data", "checksum"},
    "results": {"files", "lease", "tidy", "damage", "logged", "manifests"},
    "tidy": {"files", "plain", "words"},
    "evidence": {"results", "evidence", "words", "margins", "relations", "grammar"},
}
ALLOWED |= {
    "schema": set(),
    "catalogue": set(),
    "sync": {"card", "command", "files", "lease", "results", "streams", "targets"},
    "card": {"schema"},
    "command": {"results", "targets"},
}
# How a study is chosen and how a command refuses is the same for the analysis and the commands that need no torch.
ALLOWED |= {"analysis": {"results", "evidence", "command", "streams", "words"}}


def part(name: str) -> str:
    """The part of the package that a dotted name or a file belongs to."""
    return name.split(".")[1] if name.count(".") else "__init__"


def imports(file: Path) -> set[str]:
    """Parts of `ablate` that a file imports anywhere, inside functions, too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ablate":
            found |= {part(node.module)} if "." in node.module else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {part(alias.name) for alias in node.names if alias.name.split(".")[0] == "ablate"}
    return found


def sources(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("file", sources("ablate"), ids=lambda file: str(file.relative_to(ROOT)))
def test_data_flow_one_way(file):
    here = file.relative_to(ROOT / "ablate").parts[0].removesuffix(".py")
    level = {name: i for i, names in enumerate(LAYERS) for name in names}
    assert here in level, f"{here} has no place in the order of parts"
    for other in imports(file) - {here}:
        if here == "__init__":
            continue
        assert level[other] <= level[here], f"{here} must not import {other}"
    if here in ALLOWED:
        assert imports(file) - {here} <= ALLOWED[here]


@pytest.mark.parametrize("file", sources("analysis"), ids=lambda file: file.name)
def test_analysis_imports_little_of_the_package(file):
    assert imports(file) <= ALLOWED["analysis"]


def test_no_file_of_the_analysis_imports_itself_by_way_of_others():
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in sources("analysis")}
    modules = {name.removesuffix(".__init__"): file for name, file in modules.items()}

    def needed(file: Path) -> set[str]:
        found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        names = {(node.module, f"{node.module}.{alias.name}") for node in found for alias in node.names}
        return {inner if inner in modules else outer for outer, inner in names} & modules.keys()

    graphlib.TopologicalSorter({name: needed(file) for name, file in modules.items()}).prepare()


def test_no_part_imports_another_that_imports_it():
    graph: dict[str, set[str]] = {}
    for file in sources("ablate"):
        here = file.relative_to(ROOT / "ablate").parts[0].removesuffix(".py")
        graph.setdefault(here, set()).update(imports(file) - {here})

    def reach(name: str, seen: set[str]) -> set[str]:
        for other in graph.get(name, set()) - seen:
            seen |= {other} | reach(other, seen | {other})
        return seen

    for name in graph:
        assert name not in reach(name, set()), f"{name} imports itself by way of others"


@pytest.mark.parametrize(
    "module",
    [
        "analysis.__main__",
        "ablate.results",
        "ablate.evidence",
        "ablate.summary",
        "ablate.progress",
        "ablate.track",
        "ablate.sync",
        "ablate.evaluate",
        "ablate.status",
        "ablate.diff",
        "ablate.clean",
        "ablate.schema",
        "ablate",
    ],
)
def test_no_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0, f"{module} loads torch"


def test_components_take_plain_arguments():
    for file in (ROOT / "ablate" / "model").glob("*.py"):
        module = importlib.import_module(f"ablate.model.{file.stem}") if file.stem != "__init__" else None
        for _, found in inspect.getmembers(module, inspect.isclass) if module else []:
            if (
                found.__module__ == module.__name__
                and not getattr(found, "_is_protocol", False)
                and "__init__" in vars(found)
            ):
                for parameter in inspect.signature(found.__init__).parameters.values():
                    assert parameter.kind is not parameter.VAR_KEYWORD, f"{found.__name__} swallows arguments"
                    assert parameter.name not in ("config", "cfg"), f"{found.__name__} takes a configuration"
        assert "omegaconf" not in file.read_text() and "hydra" not in file.read_text()


@pytest.mark.parametrize("group", COMPONENTS)
def test_a_variant_is_one_yaml_that_names_its_source(group):
    variants = groups()[group]
    assert variants
    for name, file in variants.items():
        text = file.read_text()
        assert text.startswith("# "), f"{file} does not say what it is"
        assert any(str(year) in text.splitlines()[0] for year in range(1986, 2030)), f"{file} names no paper"
        assert f"_target_: ablate.model.{group}." in text, f"{name} is not in its component's module"


def test_files_and_functions_stay_small():
    for file in sources("ablate") + sources("analysis") + sources("hydra_plugins"):
        text = file.read_text()
        assert text.count("\n") <= 330, f"{file} is too long to read"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{file.name}: {node.name} is too long to read"


def test_yaml_defaults_are_the_only_ones():
    """A constructor's own settings have no defaults in code: they would hide what a study trained."""
    import yaml

    from ablate.build import SHAPE, WIRING, parameters_of, resolve

    for group in COMPONENTS:
        for file in groups()[group].values():
            node = yaml.safe_load(file.read_text())
            target = resolve(group, node["_target_"])
            own = [p for p in parameters_of(target).values() if p.name not in (*SHAPE, *WIRING)]
            assert {p.name for p in own} == node.keys() - {"_target_", "_partial_"}
            assert all(p.default is p.empty for p in own), f"{target.__name__} has defaults beside its YAML's"


def test_a_new_variant_is_one_class_and_one_yaml_and_nothing_else(tmp_path):
    for folder in ("ablate", "conf", "hydra_plugins"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    with open(tmp_path / "ablate" / "model" / "norm.py", "a") as file:
        file.write(
            "\n\nclass MaxNorm(nn.Module):\n"
            "    def __init__(self, dim: int, floor: float):\n"
            "        super().__init__()\n"
            "        self.floor, self.weight = floor, nn.Parameter(torch.ones(dim))\n\n"
            "    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:\n"
            "        return x / x.abs().amax(-1, keepdim=True).clamp(min=self.floor) * self.weight\n"
        )
    yaml = "# MaxNorm: x / max|x| · g.\n_target_: ablate.model.norm.MaxNorm\n_partial_: true\nfloor: 1.0e-5\n"
    (tmp_path / "conf" / "norm" / "max.yaml").write_text(yaml)
    environment = {"PYTHONPATH": ""}  # the copy, not the checkout
    shown = run_module("ablate", "--help", cwd=tmp_path, **environment).stdout
    assert "MaxNorm: x / max|x| · g." in shown
    swept = run_module("ablate", "-m", "norm=ln,max", "ffn=mlp,gelu", "dry_run=true", cwd=tmp_path, **environment)
    assert swept.returncode == 0 and "max + gelu" in swept.stdout, swept.stderr


def test_conf_is_found_next_to_the_package():
    assert CONF == ROOT / "conf"
