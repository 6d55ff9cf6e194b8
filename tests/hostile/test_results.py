"""A results folder of somebody else executes nothing that the person at the keyboard did not name."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from one_run import train, write_plan

import ablate
from ablate.config.components import resolve
from ablate.config.errors import BadComponent, Corrupt
from ablate.config.schema import COMPONENTS
from ablate.execution.tracking import sender
from ablate.execution.tracking.sender import Sender
from ablate.runs.folder import Run
from ablate.runs.manifest import study_folder
from hostile.arsenal import PACKAGE, bullet, edit_json, edit_yaml, forget, tag, targets
from hostile.conftest import STUDY, Tried

GROUPS = (*COMPONENTS, "data", "model", "optim", "track")
BUILT = ("norm", "ffn", "residual", "position", "attention", "data", "model")  # with a model
ATTACKS = list(targets(Path()))


def test_targets_in_a_results_folder_run_nothing(place: Path, folders: list[Path]) -> None:
    """In a run's configuration, loaded and built: every attack in one group, and one attack in every group."""
    file = folders[0] / "config.yaml"
    honest = file.read_text()
    for attack, group in [*((attack, "norm") for attack in ATTACKS), *(("package", group) for group in GROUPS)]:
        shot = targets(place)[attack]
        file.write_text(honest)
        framed = group in ("model", "optim")  # whose other keys every file has

        def poison(config: dict[str, Any], shot: Any = shot, group: str = group, framed: bool = framed) -> None:
            config.update({"user": shot["user"], group: (config[group] if framed else {}) | shot["node"]})

        edit_yaml(file, poison)
        loaded = ablate.load(folders[0])
        assert loaded.config.user == []
        with pytest.raises(BadComponent):
            resolve(group, shot["node"]["_target_"], loaded.config.user)
        if group in BUILT:
            with pytest.raises((BadComponent, ValueError)):
                loaded.model()
        forget()
    edit_yaml(file, lambda config: config["optim"].update(_target_=7))
    with pytest.raises(Corrupt):  # the frame says that it is a text
        ablate.load(folders[0])


def test_no_command_runs_what_a_configuration_names(
    place: Path, results: Path, folders: list[Path], tried: Tried, undrawn: None
) -> None:
    shots = [targets(place)[attack] for attack in ("package", "walk")]

    def poison(config: dict[str, Any], shot: dict[str, Any]) -> None:
        config.update(user=shot["user"], track=shot["node"], **dict.fromkeys(COMPONENTS, shot["node"]))

    def poison_all(manifest: dict[str, Any]) -> None:
        for cell, shot in zip(manifest["cells"], shots, strict=True):
            poison(cell["config"], shot)

    for folder, shot in zip(folders, shots, strict=True):
        edit_yaml(folder / "config.yaml", lambda config, shot=shot: poison(config, shot))
    edit_json(study_folder(results, STUDY) / "manifest.json", poison_all)
    tried()


def test_a_tracking_service_is_one_that_the_command_names(place: Path, results: Path, tried: Tried) -> None:
    names = (f"{PACKAGE}.Sink", "ablate.execution.tracking.sender.main", "os.system")
    for shot in (*({"_target_": name} for name in names), 7):

        def poison(manifest: dict[str, Any], shot: Any = shot) -> None:
            for cell in manifest["cells"]:
                cell["config"].update(track=shot, user=[PACKAGE])

        edit_json(study_folder(results, STUDY) / "manifest.json", poison)
        assert "tracking failed" in tried("sync")["sync"][1]
        other = Sender(results, STUDY, [PACKAGE + "_of_mine"])
        other.send_all()
        assert other.count.total() == 0


def test_yaml_that_is_no_configuration_is_named(place: Path, folders: list[Path]) -> None:
    for content in (tag(place), "a: &a [*a]\n", "[1, 2]", "", "{" * 5000):
        for folder in folders:
            (folder / "config.yaml").write_text(content)
            with pytest.raises(Corrupt, match=r"config\.yaml"):
                ablate.load(folder)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]  # a billion values
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    for folder in folders:
        (folder / "config.yaml").write_text("\n".join(lines))
        with pytest.raises(Corrupt, match="more than a file can hold"):
            ablate.load(folder)


def test_weights_and_checkpoints_are_tensors_only(place: Path, folders: list[Path], tried: Tried) -> None:
    for folder in folders:
        (folder / "weights.safetensors").write_bytes(bullet(place))
        (folder / "checkpoint.pt").write_bytes(bullet(place))
        with pytest.raises(Corrupt, match=r"weights\.safetensors"):
            ablate.load(folder).model()
    tried("status", "clean")


def test_a_checkpoint_that_fires_is_set_aside(place: Path, plan: Any) -> None:
    """The run of a checkpoint that somebody else has put there is trained from its start."""
    planned = plan("seeds=1")
    folder = planned.results / "runs" / planned.manifest.runs[0].path
    folder.mkdir(parents=True)
    (folder / "checkpoint.pt").write_bytes(bullet(place))
    write_plan(planned)
    assert train(planned)[0] == "done"


@pytest.mark.parametrize("what", ["cell", "run", "runs", "figures"])
def test_links_that_lead_out_of_the_results_are_not_followed(
    what: str, place: Path, results: Path, folders: list[Path], tried: Tried
) -> None:
    inner = {"cell": folders[0].parent, "run": folders[0], "runs": results / "runs"}
    inner = inner.get(what, results / "figures" / STUDY)
    shutil.move(inner, place / "outside")
    inner.symlink_to(place / "outside")
    before = sorted((file, file.stat().st_mtime_ns) for file in (place / "outside").rglob("*"))
    reading = ("status", "sync", "analysis")
    found = tried(*(("analysis", "analysis export") if what == "figures" else reading))
    for command, (code, said) in found.items():
        assert code == 2 and re.search("link (that )?leads out of", said), command
    assert sorted((file, file.stat().st_mtime_ns) for file in (place / "outside").rglob("*")) == before


def test_nothing_is_written_through_a_link(
    place: Path, results: Path, folders: list[Path], tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the sender, which writes two files, nor by what locks runs."""
    stub = SimpleNamespace(name="stub", mode="online", finish=lambda *_: None, close=lambda: None)
    monkeypatch.setattr(sender, "make_tracker", lambda track, user: stub)
    manifest = study_folder(results, STUDY) / "manifest.json"
    edit_json(
        manifest, lambda content: [cell["config"].update(track={"_target_": "stub"}) for cell in content["cells"]]
    )
    (place / "precious").write_text("mine")
    for name in ("tracking.lock", "tracked.json"):
        (study_folder(results, STUDY) / name).unlink(missing_ok=True)
        (study_folder(results, STUDY) / name).symlink_to(place / "precious")
        tried("sync")
        (study_folder(results, STUDY) / name).unlink()
    assert "2 uploaded now" in tried("sync")["sync"][1], "without a link it is written"
    for folder in folders:
        (folder / "lock").unlink(missing_ok=True)
        (folder / "lock").symlink_to(place / "precious")
        run = Run(results, f"{folder.parent.name}/{folder.name}")
        with pytest.raises(OSError), run.lock(lambda: False):
            pass
    tried("clean")
    assert (place / "precious").read_text() == "mine"
