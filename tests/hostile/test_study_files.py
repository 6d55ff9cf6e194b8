"""Study files and folders of variants of somebody else execute nothing that the command line does not name."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import command
from ablate.config.components import resolve
from ablate.config.errors import BadComponent, PlanError
from ablate.config.schema import VARIED
from ablate.planning.plan import plan_study
from hostile.arsenal import PACKAGE, attacks, firing_yaml

GLOBAL = "# @package _global_\n"
SINK = {"callbacks": {"x": {"_target_": f"{PACKAGE}.Sink"}}}


@pytest.fixture
def theirs(place) -> Path:
    """A folder of variants."""
    (place / "conf" / "norm").mkdir(parents=True)
    (place / "conf" / "experiment").mkdir()
    return place / "conf"


def write(folder: Path, name: str, content: Any) -> None:
    """A YAML file of a folder of variants, from its text or from what it holds."""
    file = folder / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))


def problems(folder: Path | None, *words: str) -> list[str]:
    """What a command line is refused for, a line each."""
    with pytest.raises(PlanError) as refused:
        plan_study((*words, "dry_run=true"), str(folder) if folder else None)
    lines = [str(problem) for problem in refused.value.problems]
    assert not any("\n" in line for line in lines)
    return lines


def nodes(place: Path) -> dict[str, dict[str, Any]]:
    """The node of each attack, as a variant of another group."""
    groups = ("norm", "ffn", "data", *VARIED[2:])
    return {group: node for group, (_, node) in zip(groups, attacks(place).values(), strict=False)}


def test_a_study_file_runs_nothing(place, theirs):
    """All attacks at once, each in another group."""
    packages = []
    for user, _ in attacks(place).values():
        packages += user
    write(theirs, "experiment/evil", {"study": "evil", "user": packages, "seeds": 1} | nodes(place))
    lines = problems(theirs, "+experiment=evil")
    assert any("evil.yaml: user: belongs on the command line" in line for line in lines)
    assert PACKAGE not in sys.modules


def test_a_variant_runs_nothing(place, theirs):
    """Each attack as the variant of another group."""
    for group, node in nodes(place).items():
        write(theirs, f"{group}/evil", node)
    lines = problems(theirs, *(f"{group}=evil" for group in nodes(place)))
    for group in nodes(place):
        assert any(line.startswith(f"{group}._target_") for line in lines), (group, lines)
    assert PACKAGE not in sys.modules


NO_PACKAGES = {
    "belongs to Python, to ablate, or to what it needs": [
        *("os", "builtins", "__main__", "json", "torch", "hydra", "yaml", "ablate", "ablate.model", "analysis"),
        "hydra_plugins",
    ],
    "is not the name of a package": ["..os", "a b", "os;x"],
}


def test_packages_of_others_are_not_the_users():
    names = [name for group in NO_PACKAGES.values() for name in group]
    lines = problems(None, f"user={names}")
    for reason, refused in NO_PACKAGES.items():
        for name in refused:
            assert any(line.startswith("user: ") and name in line and reason in line for line in lines), (name, lines)


@pytest.fixture
def my_parts(place) -> Iterator[None]:
    """A package of the user's, which imports what is not its own."""
    (place / "my_parts").mkdir()
    (place / "my_parts" / "__init__.py").write_text("import os\nfrom os import system\nfrom torch.nn import Linear\n")
    (place / "my_parts" / "norms.py").write_text("import os\n")
    yield
    for module in ("my_parts", "my_parts.norms"):
        sys.modules.pop(module, None)


@pytest.mark.usefixtures("my_parts")
@pytest.mark.parametrize("name", ["system", "Linear", "norms.os.system"])
def test_a_package_does_not_lend_what_it_imports(name):
    with pytest.raises(BadComponent):
        resolve("norm", f"my_parts.{name}", ["my_parts"])


def test_yaml_makes_no_objects_and_reads_no_environment(place, theirs):
    write(theirs, "experiment/evil", f"study: x\nquestion: {firing_yaml(place)}")
    assert "evil.yaml" in problems(theirs, "+experiment=evil")[0]
    for text in (firing_yaml(place), f"eps: {firing_yaml(place)}", "a: &a [*a]", "eps: '${oc.${x}:HOME}'", "3"):
        write(theirs, "norm/evil", text)
        assert "evil.yaml" in problems(theirs, "norm=evil")[0], text


# Files with settings of Hydra, which would make objects.
HYDRAS: dict[str, Any] = {
    "hydra/launcher/ablate": {"_target_": f"{PACKAGE}.Norm", "dim": 1},
    "hydra/job_logging/none": {"version": 1, "handlers": {"x": {"()": f"{PACKAGE}.Sink"}}},
    "schema": {"hydra": SINK},
    "config": {"hydra": SINK},
    "norm/evil": GLOBAL + yaml.safe_dump({"hydra": SINK}),
}


def test_hydras_settings_belong_on_the_command_line(theirs, capsys):
    for name, content in HYDRAS.items():
        write(theirs, name, content)
        assert command(["dry_run=true", f"--config-dir={theirs}"]) == 2, name
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("ablate: ") and str(theirs) in line, line
        shutil.rmtree(theirs)


@pytest.mark.parametrize("entry", ["deep/evil@_here_", {"deep@_here_": "evil"}, "../x"])
def test_a_variant_takes_no_file_from_where_no_variants_lie(entry, theirs):
    """Of such a file nobody would check what it asks for, nor see that it has changed since its study ended."""
    write(theirs, "ffn/deep/evil", "mult: ${oc.env:SECRET}\n")
    write(theirs, "ffn/mine", {"defaults": ["mlp", entry]})
    [line] = problems(theirs, "ffn=mine")
    assert "mine.yaml" in line and "its own folder" in line


# Files of variants that set a key of a study, and the key.


CALLBACK = "hydra.callbacks.x._target_"
SETTINGS = [
    {"defaults": ["ln"]},
    {CALLBACK: f"{PACKAGE}.Sink"},
    {"factors": {CALLBACK: ["a", "b"]}},
    {"tiers": {"x": {CALLBACK: 1}}},
]


@pytest.mark.parametrize("content", SETTINGS)
def test_a_study_file_sets_nothing_of_hydras(content, theirs):
    write(theirs, "experiment/evil", content)
    assert "evil.yaml" in problems(theirs, "+experiment=evil")[0]
