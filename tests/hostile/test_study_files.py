"""Study files and folders of variants of somebody else execute nothing that the command line does not name."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.cli.main import command
from ablate.config.components import resolve
from ablate.config.errors import BadComponent, PlanError
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
    with pytest.raises(PlanError) as refused:
        plan_study((*overrides, "dry_run=true"), str(theirs) if theirs else None)
    found = [str(problem) for problem in refused.value.problems]
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
    for group in nodes(place):
        assert any(line.startswith(f"{group}._target_") for line in found), (group, found)
    (theirs / "preset").mkdir()
    whole = {"user": [PACKAGE], "norm": targets(place)["package"]["node"]}
    (theirs / "preset" / "evil.yaml").write_text(GLOBAL + yaml.safe_dump(whole))
    assert any(line.startswith(("norm", "preset")) for line in problems(theirs, "+preset=evil"))
    assert PACKAGE not in sys.modules


def test_packages_of_others_are_none_of_the_users(place: Path) -> None:
    reasons = {"belongs to Python": ["os", "subprocess", "builtins", "__main__", "importlib", "json"]}
    reasons["is a library that ablate needs"] = ["torch", "numpy", "hydra", "yaml", "wandb"]
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


def test_no_name_leads_out_of_a_package(place: Path) -> None:
    """A package that the command line names does not lend what it imports."""
    (place / "my_parts").mkdir()
    (place / "my_parts" / "__init__.py").write_text("import os\nfrom os import system\nfrom torch.nn import Linear\n")
    (place / "my_parts" / "norms.py").write_text("import os\n")
    try:
        for name in ("system", "Linear", "nothing", "os", "norms.os.system", "Norm.forward", "__class__"):
            with pytest.raises(BadComponent):
                resolve("norm", f"my_parts.{name}", ["my_parts"])
        [problem] = problems(None, "user=[my_parts]", "norm._target_=my_parts.norms.os.system")
        assert problem.startswith("norm._target_: ")
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
    for text in ("3", "text", "- 1", "[]"):
        (theirs / "norm" / "evil.yaml").write_text(text)
        [found] = problems(theirs, "norm=evil")
        assert "evil.yaml: must be a mapping" in found


def test_a_resolver_is_found_in_every_structure(place: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each kind of file that a folder of variants holds."""
    monkeypatch.setenv("SECRET", "hunter2")
    (theirs / "preset").mkdir()
    norm = ("norm/evil", "_target_: ablate.model.norm.LayerNorm\n_partial_: true\neps: ", "norm=evil")
    preset, study = ("preset/evil", GLOBAL + "norm: ", "+preset=evil"), ("experiment/evil", "ffn: ", "+experiment=evil")
    values = {"X": study, "!!pairs [a: X]": norm, "!!omap [a: X]": preset, "!!set {X}": study, "[{a: [X]}]": preset}
    for value, (file, content, choice) in (values | {"{? X : 1}": norm, "!mine X": study, "[X]": norm}).items():
        text = value.replace("X", "'${oc.env:SECRET}'")
        (theirs / f"{file}.yaml").write_text(f"{content}{text}\n")
        [found] = problems(theirs, choice)
        why = "is more than plain data" if value.startswith("!") else "calls a resolver"
        assert "evil.yaml" in found and why in found and "write the value" in found and "hunter2" not in found
        (theirs / f"{file}.yaml").unlink()


HYDRAS: dict[str, dict[str, Any]] = {
    "hydra/launcher/ablate.yaml": {"_target_": f"{PACKAGE}.Norm", "dim": 1},
    "hydra/job_logging/none.yaml": {"version": 1, "handlers": {"x": {"()": f"{PACKAGE}.Sink"}}},
    "schema.yaml": {"hydra": {"callbacks": {"x": {"_target_": f"{PACKAGE}.Sink"}}}},
    "config.yaml": {"hydra": {"callbacks": {"x": {"_target_": f"{PACKAGE}.Sink"}}}},
    "norm/evil.yaml": {"hydra": {"callbacks": {"x": {"_target_": f"{PACKAGE}.Sink"}}}},
}


def test_hydras_own_settings_belong_on_the_command_line(
    place: Path, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (file, content) in enumerate(HYDRAS.items()):
        (theirs / file).parent.mkdir(parents=True, exist_ok=True)
        (theirs / file).write_text(GLOBAL * (file == "norm/evil.yaml") + yaml.safe_dump(content))
        assert command([*(["--cfg", "job"] if number % 2 else ["dry_run=true"]), f"--config-dir={theirs}"]) == 2
        shown = capsys.readouterr().err
        assert shown.startswith("ablate: ") and str(theirs) in shown and shown.count("\n") == 1, (file, shown)
        shutil.rmtree(theirs / file.partition("/")[0]) if "/" in file else (theirs / file).unlink()


def test_a_variant_reaches_hydra_in_no_other_way(place: Path, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By another package, or a list of defaults: it is shown, and not executed."""
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
    allowed = ["mlp", "mlp@_here_", "_self_", {"/norm": "rms"}]
    (theirs / "ffn" / "mine.yaml").write_text(yaml.safe_dump({"defaults": allowed}))
    assert not any("its own folder" in found for found in problems(theirs, "ffn=mine", "norm=nil"))


# Files of variants that set a key of a study, and the key.
OF_STUDIES = {
    "norm": (GLOBAL + "keep: none", "keep"),
    "scale": (GLOBAL + "results_dir: elsewhere", "results_dir"),
    "track": (GLOBAL + "study: other", "study"),
    "position": (GLOBAL + f"user: [{PACKAGE}]", "user"),
    "residual": ("defaults: [{/preset@_global_: inner}]", "seeds"),
    "preset": ("# @package track\nproject: theirs", "track"),
}


def test_a_variant_sets_nothing_of_a_study(place: Path, theirs: Path) -> None:
    for folder in {*OF_STUDIES} - {"norm"}:
        (theirs / folder).mkdir()
    (theirs / "preset" / "inner.yaml").write_text(GLOBAL + "seeds: 7")
    for group, (text, _) in OF_STUDIES.items():
        (theirs / group / "evil.yaml").write_text(text)
    choices = [f"{group}=evil" for group in OF_STUDIES]
    more = ["user=[mine_alone]", "keep=all"]  # as well where the command line sets it
    found = problems(theirs, *choices[:-1], *more) + problems(theirs, choices[-1], *more)
    for choice, (_, key) in zip(choices, OF_STUDIES.values(), strict=True):
        assert f"{choice}: sets {key}, a key of a whole study; write it on the command line" in found, (choice, found)


def test_a_service_of_ones_own_is_chosen_on_the_command_line(place: Path, theirs: Path, untried: None) -> None:
    """Its file sets `track`, but no other key of a study, and nobody else's file chooses it."""
    for name in ("track", "preset"):
        (theirs / name).mkdir()
    (theirs / "track" / "mine.yaml").write_text("_target_: ablate.execution.tracking.wandb.WandB\nproject: mine\n")
    plan = plan_study(("track=mine", "norm=ln", "dry_run=true"), str(theirs))
    assert plan.manifest.cells[0].config.track["project"] == "mine"
    (theirs / "preset" / "evil.yaml").write_text(GLOBAL + "defaults: [override /track: mine]")
    assert "preset=evil: sets track" in "".join(problems(theirs, "+preset=evil", "track=wandb"))


def test_a_study_file_that_cannot_be_read_stops_no_other_sweep(place: Path, theirs: Path) -> None:
    (theirs / "experiment" / "broken.yaml").write_text("norm: [")
    [found] = problems(theirs, "norm=nil")
    assert "nil" in found
    [found] = problems(theirs, "+experiment=broken")
    assert "broken.yaml is not readable as YAML" in found


def test_a_study_file_sets_nothing_of_hydras(place: Path, theirs: Path) -> None:
    contents = [{key: f"{PACKAGE}.Sink"} for key in ("hydra", "hydra/launcher", "hydra.searchpath", "defaults")]
    key = "hydra.callbacks.x._target_"
    for content in (*contents, {key: f"{PACKAGE}.Sink"}, {"factors": {key: ["a", "b"]}}, {"tiers": {"x": {key: 1}}}):
        (theirs / "experiment" / "evil.yaml").write_text(yaml.safe_dump(content))
        assert "evil.yaml" in problems(theirs, "+experiment=evil")[0]


def test_yaml_below_the_current_folder_is_nobodys_business(place: Path, untried: None) -> None:
    (place / "notes").mkdir()
    (place / "notes" / "broken.yaml").write_text("a: [")
    assert plan_study(("dry_run=true", "norm=ln"), None).manifest.study
