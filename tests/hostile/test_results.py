"""A results folder of somebody else executes nothing that the person at the keyboard did not name."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_studies import edit_manifest
from one_run import train, write_plan

import ablate
from ablate.config.components import resolve
from ablate.config.errors import BadComponent, Corrupt
from ablate.config.schema import COMPONENTS
from ablate.execution.tracking import sender
from ablate.execution.tracking.sender import Sender
from ablate.runs.manifest import study_folder
from hostile.arsenal import PACKAGE, STUDY, attacks, edit_yaml, firing_pickle, forget_package

GROUPS = (*COMPONENTS, "data", "model", "optim", "track")
BUILT = ("norm", "ffn", "residual", "position", "attention", "data", "model")  # with a model
# Every attack in one group, and one attack in every group.
POISONS = [*((attack, "norm") for attack in attacks(Path())), *(("package", group) for group in GROUPS)]


def test_no_target_in_a_configuration_is_called_when_its_run_is_loaded(place, folders):
    file = folders[0] / "config.yaml"
    original = file.read_text()
    for attack, group in POISONS:
        user, node = attacks(place)[attack]

        def poison(config, user=user, node=node, group=group):
            config["user"] = user
            if group in ("model", "optim"):  # whose other keys every file has
                config[group].update(node)
            else:
                config[group] = node

        file.write_text(original)
        edit_yaml(file, poison)
        loaded = ablate.load(folders[0])
        assert loaded.config.user == []
        with pytest.raises(BadComponent):
            resolve(group, node["_target_"], loaded.config.user)
        if group in BUILT:
            with pytest.raises((BadComponent, ValueError)):
                loaded.model()
        forget_package()


@pytest.mark.usefixtures("undrawn")
def test_no_command_calls_what_a_configuration_names(place, results, folders, run_commands):
    def poison(config):
        user, node = attacks(place)["package"]
        config.update(user=user, track=node, **dict.fromkeys(COMPONENTS, node))

    def poison_cells(manifest):
        for cell in manifest["cells"]:
            poison(cell["config"])

    for folder in folders:
        edit_yaml(folder / "config.yaml", poison)
    edit_manifest(results, STUDY, poison_cells)
    run_commands()


def set_track(results: Path, track: Any) -> None:
    """Have every cell of the study name a tracking service."""

    def change(manifest: dict[str, Any]) -> None:
        for cell in manifest["cells"]:
            cell["config"].update(track=track, user=[PACKAGE])

    edit_manifest(results, STUDY, change)


@pytest.mark.parametrize("track", [{"_target_": f"{PACKAGE}.Sink"}, {"_target_": "os.system"}, 7])
def test_a_tracking_service_is_one_that_the_command_names(track, results, run_commands):
    set_track(results, track)
    assert "tracking failed" in run_commands("sync")["sync"][1]
    other = Sender(results, STUDY, [PACKAGE + "_of_mine"])
    other.send_all()
    assert other.count.total() == 0


def test_weights_and_checkpoints_are_tensors_only(place, folders, run_commands):
    for name in ("weights.safetensors", "checkpoint.pt"):
        (folders[0] / name).write_bytes(firing_pickle(place))
    with pytest.raises(Corrupt, match=r"weights\.safetensors"):
        ablate.load(folders[0]).model()
    run_commands("status", "clean")


def test_a_run_whose_checkpoint_would_fire_is_trained_from_its_start(place, plan, untried):
    planned = plan("seeds=1")
    folder = planned.results / "runs" / planned.manifest.runs[0].path
    folder.mkdir(parents=True)
    (folder / "checkpoint.pt").write_bytes(firing_pickle(place))
    write_plan(planned)
    assert train(planned)[0] == "done"


def stamps(folder: Path) -> list[tuple[Path, int]]:
    return sorted((file, file.stat().st_mtime_ns) for file in folder.rglob("*"))


@pytest.mark.parametrize("what", ["cell", "run", "runs", "figures"])
def test_links_that_lead_out_of_the_results_are_not_followed(what, place, results, folders, run_commands):
    inner = {
        "cell": folders[0].parent,
        "run": folders[0],
        "runs": results / "runs",
        "figures": results / "figures" / STUDY,
    }
    outside = place / "outside"
    shutil.move(inner[what], outside)
    inner[what].symlink_to(outside)
    before = stamps(outside)
    reading = ["analysis", "analysis export"] if what == "figures" else ["status", "sync", "analysis"]
    for command, (code, printed) in run_commands(*reading).items():
        assert code == 2, command
        assert re.search("link (that )?leads out of", printed), command
    assert stamps(outside) == before


def test_the_sender_writes_through_no_link(place, results, run_commands, monkeypatch):
    stub = SimpleNamespace(name="stub", mode="online", finish=lambda *_: None, close=lambda: None)
    monkeypatch.setattr(sender, "make_tracker", lambda track, user: stub)
    set_track(results, {"_target_": "stub"})
    (place / "precious").write_text("mine")
    for name in ("tracking.lock", "tracked.json"):
        file = study_folder(results, STUDY) / name
        file.unlink(missing_ok=True)
        file.symlink_to(place / "precious")
        run_commands("sync")
        file.unlink()
    assert (place / "precious").read_text() == "mine"
    assert "2 uploaded now" in run_commands("sync")["sync"][1], "without a link it is written"
