"""Study files and folders of variants of somebody else execute nothing that the command line does not name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Cli

from ablate.cli.main import command
from ablate.config.errors import PlanError
from ablate.config.schema import VARIED
from ablate.planning.plan import plan_study
from hostile.arsenal import PACKAGE, tag, targets

SHOTS = list(targets(Path()).values())
GLOBAL = "# @package _global_\n"


@pytest.fixture
def theirs(place: Path) -> Path:
    """A folder of variants."""
    (place / "conf" / "norm").mkdir(parents=True)
    (place / "conf" / "experiment").mkdir()
    return place / "conf"


def problems(theirs: Path | None, *overrides: str) -> list[str]:
    """What a command line is refused for."""
    with pytest.raises(PlanError) as told:
        plan_study((*overrides, "dry_run=true"), str(theirs) if theirs else None)
    found = [str(problem) for problem in told.value.problems]
    assert not any("\n" in line for line in found)
    return found


def test_a_study_file_runs_nothing(place: Path, theirs: Path) -> None:
    """All attacks at once, each in another group."""
    users = [str(name) for shot in SHOTS for name in (shot["user"] if isinstance(shot["user"], list) else [7])]
    study = {"study": "evil", "user": users, "seeds": 1} | nodes(place)
    (theirs / "experiment" / "evil.yaml").write_text(yaml.safe_dump(study))
    found = problems(theirs, "+experiment=evil")
    assert any("evil.yaml: user: belongs on the command line" in line for line in found)
    assert PACKAGE not in sys.modules


def test_a_variant_runs_nothing(place: Path, theirs: Path) -> None:
    """Each attack as the variant of another group, and by a preset that would choose it."""
    for group, node in nodes(place).items():
        (theirs / group).mkdir(exist_ok=True)
        (theirs / group / "evil.yaml").write_text(yaml.safe_dump(node))
    found = problems(theirs, *(f"{group}=evil" for group in nodes(place)))
    assert {group for group in nodes(place) if any(line.startswith(f"{group}._target_") for line in found)} == {
        *nodes(place)
    }, found
    (theirs / "preset").mkdir()
    for attack in ("stdlib", "package"):
        shot = targets(place)[attack]
        whole = {"user": shot["user"], "norm": shot["node"]}
        (theirs / "preset" / f"{attack}.yaml").write_text(GLOBAL + yaml.safe_dump(whole))
        found = problems(theirs, f"+preset={attack}")
        assert any(line.startswith(("norm._target_", "norm", "+preset")) for line in found)
    assert PACKAGE not in sys.modules


def test_packages_of_others_are_none_of_the_users(place: Path) -> None:
    reasons = {"belongs to Python": ["os", "subprocess", "builtins", "__main__", "importlib", "json"]}
    reasons["is a library that ablate needs"] = ["torch", "numpy", "hydra", "yaml", "wandb", "sympy"]
    reasons["is ablate's own"] = ["ablate", "ablate.model", "analysis", "hydra_plugins"]
    reasons["is not the name of a package"] = ["..os", "a b", "os;x", "a..b"]
    packages = ",".join(f"'{name}'" for names in reasons.values() for name in names)
    found = problems(None, f"user=[{packages}]", "norm._target_=os.system")
    lines = [line for line in found if line.startswith("user: ")]
    for why, names in reasons.items():
        for name in names:
            assert any(name in line and why in line for line in lines), (name, lines)


def nodes(place: Path) -> dict[str, dict[str, Any]]:
    """The node of each attack, by another group."""
    shots = targets(place)
    return {group: shots[name]["node"] for group, name in zip((*VARIED, "data"), shots, strict=True)}


@pytest.mark.parametrize("name", ["system", "Linear", "nothing", "os", "norms.os.system", "Norm.forward", "__class__"])
def test_no_name_leads_out_of_a_package(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that the command line names does not lend what it imports."""
    (place / "my_parts").mkdir()
    (place / "my_parts" / "__init__.py").write_text("import os\nfrom os import system\nfrom torch.nn import Linear\n")
    (place / "my_parts" / "norms.py").write_text("import os\n")
    try:
        [told] = problems(None, "user=[my_parts]", f"norm._target_=my_parts.{name}")
        assert told.startswith("norm._target_: ")
    finally:
        for module in [module for module in sys.modules if module.partition(".")[0] == "my_parts"]:
            del sys.modules[module]


def test_yaml_makes_no_objects(place: Path, theirs: Path) -> None:
    (theirs / "experiment" / "evil.yaml").write_text(f"study: x\nquestion: {tag(place)}")
    assert "evil.yaml" in problems(theirs, "+experiment=evil")[0]
    (theirs / "experiment" / "evil.yaml").unlink()
    for text in (tag(place), f"eps: {tag(place)}", "a: &a [*a]", "eps: ${oc.env:HOME}", "eps: '${oc.${x}:HOME}'"):
        (theirs / "norm" / "evil.yaml").write_text(text)
        assert "evil.yaml" in problems(theirs, "norm=evil")[0]


@pytest.mark.parametrize("text", ["3", "text", "- 1", "[]"])
def test_a_variant_is_a_mapping(text: str, place: Path, theirs: Path) -> None:
    (theirs / "norm" / "odd.yaml").write_text(text)
    [found] = problems(theirs, "norm=odd")
    assert "odd.yaml: must be a mapping" in found


def test_study_files_read_nothing_of_the_machine(place: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    for key in ("study", "question", "ffn", "data", "seeds", "results_dir"):
        (theirs / "experiment" / "evil.yaml").write_text(f"{key}: ${{oc.env:SECRET}}\n")
        found = problems(theirs, "+experiment=evil")
        assert any("calls a resolver" in line for line in found) and not any("hunter2" in line for line in found)


@pytest.mark.parametrize(
    "value", ["!!pairs [a: X]", "!!omap [a: X]", "!!set {X}", "[{a: [X]}]", "{? X : 1}", "!mine X"]
)
def test_a_resolver_is_found_in_every_structure(
    value: str, place: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind of file that a folder of variants holds."""
    monkeypatch.setenv("SECRET", "hunter2")
    (theirs / "preset").mkdir()
    text = value.replace("X", "'${oc.env:SECRET}'")
    for file, content, choice in (
        ("norm/evil", "_target_: ablate.model.norm.LayerNorm\n_partial_: true\neps: ", "norm=evil"),
        ("preset/evil", GLOBAL + "norm: ", "+preset=evil"),
        ("experiment/evil", "norm: ln\nffn: ", "+experiment=evil"),
    ):
        (theirs / f"{file}.yaml").write_text(f"{content}{text}\n")
        [found] = problems(theirs, choice)
        assert "evil.yaml" in found and "write the value" in found and "hunter2" not in found
        (theirs / f"{file}.yaml").unlink()


HYDRAS: dict[str, dict[str, Any]] = {
    "hydra/launcher/ablate.yaml": {"_target_": f"{PACKAGE}.Norm", "dim": 1},
    "hydra/sweeper/ablate.yaml": {"_target_": f"{PACKAGE}.Norm", "dim": 1},
    "hydra/job_logging/none.yaml": {"version": 1, "handlers": {"x": {"()": f"{PACKAGE}.Sink"}}},
    "hydra/hydra_logging/none.yaml": {"version": 1, "handlers": {"x": {"()": f"{PACKAGE}.Sink"}}},
    "schema.yaml": {"hydra": {"callbacks": {"x": {"_target_": f"{PACKAGE}.Sink"}}}},
    "config.yaml": {"hydra": {"callbacks": {"x": {"_target_": f"{PACKAGE}.Sink"}}}},
    "norm/evil.yaml": {"hydra": {"callbacks": {"x": {"_target_": f"{PACKAGE}.Sink"}}}},
}


@pytest.mark.parametrize("file", HYDRAS)
@pytest.mark.parametrize("asked", ["dry_run=true", "--cfg"])
def test_hydras_own_settings_belong_on_the_command_line(
    file: str,
    asked: str,
    place: Path,
    theirs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (theirs / file).parent.mkdir(parents=True, exist_ok=True)
    (theirs / file).write_text("# @package _global_\n" * (file == "norm/evil.yaml") + yaml.safe_dump(HYDRAS[file]))
    arguments = [asked, *["job"] * (asked == "--cfg"), f"--config-dir={theirs}"]
    monkeypatch.setattr(sys, "argv", ["ablate", *arguments])
    assert command(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("ablate: ") and str(theirs) in line


def test_a_variant_reaches_hydra_in_no_other_way(place: Path, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a package of its own, or a list of defaults: it is shown, and not executed."""
    (theirs / "ffn").mkdir()
    (theirs / "norm" / "evil.yaml").write_text(f"# @package hydra.callbacks\nx: {{_target_: {PACKAGE}.Sink}}\n")
    (theirs / "ffn" / "evil.yaml").write_text("defaults: ['/norm/evil@_global_.hydra.callbacks']\n")
    for override in ("norm=evil", "ffn=evil"):
        command(["--cfg", "all", f"--config-dir={theirs}", override])
        assert "Traceback" not in capsys.readouterr().err


def test_a_variant_takes_nothing_from_where_none_lie(place: Path, theirs: Path) -> None:
    """Of such a file nobody would check what it asks for, nor see that it has changed since its study ended."""
    (theirs / "ffn" / "deep").mkdir(parents=True)
    (theirs / "ffn" / "deep" / "evil.yaml").write_text("mult: ${oc.env:SECRET}\n")
    for entry in ("deep/evil@_here_", "/ffn/deep/evil@_here_", {"deep@_here_": "evil"}, "../x"):
        (theirs / "ffn" / "mine.yaml").write_text(yaml.safe_dump({"defaults": ["mlp", entry]}))
        [found] = problems(theirs, "ffn=mine")
        assert "mine.yaml" in found and "its own folder" in found
    for allowed in ("mlp@_here_", "_self_", {"/norm": "rms"}):
        (theirs / "ffn" / "mine.yaml").write_text(yaml.safe_dump({"defaults": ["mlp", allowed]}))
        assert not any("its own folder" in found for found in problems(theirs, "ffn=mine", "norm=nil"))


OF_STUDIES = {  # by what is set: the file, its text, and the choice that takes it
    "results_dir": ("preset/evil", GLOBAL + "results_dir: elsewhere", "+preset=evil"),
    "keep": ("norm/evil", GLOBAL + "keep: none", "norm=evil"),
    "reuse": ("ffn/evil", GLOBAL + "reuse: any", "ffn=evil"),
    "allow_duplicates": ("scale/evil", GLOBAL + "allow_duplicates: true", "scale=evil"),
    "study": ("track/evil", GLOBAL + "study: other", "track=evil"),
    "track": ("preset/evil", "# @package track\nproject: theirs", "+preset=evil"),
    "user": ("preset/evil", GLOBAL + f"user: [{PACKAGE}]", "+preset=evil"),
    "dry_run": ("data/evil", GLOBAL + "dry_run: true", "data=evil"),
    "tune": ("preset/evil", GLOBAL + "tune: {key: optim.lr}", "+preset=evil"),
    "seeds": ("norm/evil", "defaults: [{/preset@_global_: inner}]", "norm=evil"),
}


@pytest.mark.parametrize("key", OF_STUDIES)
def test_a_variant_sets_nothing_of_a_study(key: str, place: Path, theirs: Path) -> None:
    file, text, choice = OF_STUDIES[key]
    for folder in ("preset", "ffn", "scale", "track", "data"):
        (theirs / folder).mkdir()
    (theirs / "preset" / "inner.yaml").write_text(GLOBAL + "seeds: 7")
    (theirs / f"{file}.yaml").write_text(text)
    more = ["user=[mine_alone]", "keep=all"] * (key in ("keep", "user"))  # as well where the command line sets it
    message = f"{choice}: sets {key}, a key of a whole study; write it on the command line"
    assert message in problems(theirs, choice, *more)


def test_a_service_of_ones_own_is_chosen_on_the_command_line(place: Path, theirs: Path) -> None:
    """Its file sets `track`, but no other key of a study, and nobody else's file chooses or changes it."""
    for name in ("track", "preset"):
        (theirs / name).mkdir()
    (theirs / "track" / "mine.yaml").write_text("_target_: ablate.execution.tracking.wandb.WandB\nproject: mine\n")
    plan = plan_study(("track=mine", "norm=ln", "dry_run=true"), str(theirs))
    assert plan.manifest.cells[0].config.track["project"] == "mine"
    for text in ("track: {project: theirs}", "defaults: [override /track: mine]"):
        (theirs / "preset" / "evil.yaml").write_text(GLOBAL + text)
        assert "+preset=evil: sets track" in "".join(problems(theirs, "+preset=evil", "track=wandb"))


def test_a_study_file_that_cannot_be_read_stops_no_other_sweep(place: Path, theirs: Path) -> None:
    (theirs / "experiment" / "broken.yaml").write_text("norm: [")
    [found] = problems(theirs, "norm=nil")
    assert "nil" in found
    [found] = problems(theirs, "+experiment=broken")
    assert "broken.yaml" in found and "cannot be read" in found


@pytest.mark.parametrize(
    "key", ["hydra", "hydra/launcher", "hydra.callbacks.x._target_", "hydra.searchpath", "defaults"]
)
def test_a_study_file_sets_nothing_of_hydras(key: str, place: Path, theirs: Path) -> None:
    for content in ({key: f"{PACKAGE}.Sink"}, {"factors": {key: ["a", "b"]}}, {"tiers": {"x": {key: 1}}}):
        (theirs / "experiment" / "evil.yaml").write_text(yaml.safe_dump(content))
        assert "evil.yaml" in problems(theirs, "+experiment=evil")[0]


def test_the_real_command_line_runs_nothing(
    cli: Cli, place: Path, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it at once, to be trained, with the package where Python finds it."""
    node = {"_target_": f"{PACKAGE}.Norm", "_partial_": True}
    (theirs / "norm" / "evil.yaml").write_text(
        "# @package _global_\n" + yaml.safe_dump({"user": [PACKAGE], "norm": node})
    )
    (theirs / "experiment" / "evil.yaml").write_text(yaml.safe_dump({"user": [PACKAGE], "norm": "evil"}))
    for asked in (["+experiment=evil"], ["norm=evil"], ["-m", "norm=ln,evil", "dry_run=true"]):
        assert command([*asked, "--config-dir", str(theirs)]) == 2
        assert capsys.readouterr().err.startswith("ablate: ")
    done = cli(*asked, "--config-dir", str(theirs), PYTHONPATH=str(place))
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr.startswith("ablate: ")
    assert not (place / "results").exists()


def test_yaml_below_the_current_folder_is_nobodys_business(place: Path) -> None:
    (place / "notes").mkdir()
    (place / "notes" / "broken.yaml").write_text("a: [")
    assert plan_study(("dry_run=true", "norm=ln"), None).manifest.study
