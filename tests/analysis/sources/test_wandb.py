"""python -m analysis --wandb: runs on W&B, from a recording of its API, and what our own sender uploads."""

import copy
import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pandas
import pytest
from analysed_studies import refused_line
from fake_studies import edit_manifest, fabricate
from wandb_files import read_back

from ablate import evidence
from ablate.config.errors import Refused
from ablate.execution.tracking.sender import Sender
from ablate.runs.study import load_study
from analysis.sources import Request, wandb_api
from analysis.sources.study import study_of
from analysis.sources.wandb_api import logged_runs

RECORDED = Path(__file__).parents[2] / "recorded" / "wandb_runs.json"
GRID = {"ffn": ["mlp", "swiglu"], "norm": ["ln", "rms"]}  # sorted, as W&B's reader prints them


@pytest.fixture(autouse=True)
def wandb() -> Any:
    """The library, loaded by the test that comes first and not where tests are collected."""
    return pytest.importorskip("wandb")


class Api:
    """`wandb.Api` as far as it is used, answering from a recording."""

    recorded: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, timeout: int | None = None):
        assert timeout is not None and timeout <= 60

    def runs(self, path: str, per_page: int = 50) -> list[SimpleNamespace]:
        """The runs of a project with their histories."""
        if path != "someone/glu":
            raise ValueError(f"Could not find project {path}")
        runs = []
        for run in copy.deepcopy(Api.recorded):
            history = run.pop("history")
            runs.append(SimpleNamespace(**run, scan_history=lambda page_size, history=history: history))
        return runs


@pytest.fixture
def online(wandb, monkeypatch) -> list[dict[str, Any]]:
    """A project `someone/glu` on W&B: the recorded runs, to be changed by a test."""
    monkeypatch.setattr(wandb, "Api", Api)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    Api.recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    return Api.recorded


def test_the_server_is_the_users_and_never_the_folders(online, tmp_path, monkeypatch):
    """W&B reads `wandb/settings` of the current folder when its API is made."""
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    monkeypatch.chdir(tmp_path)
    seen = []

    def api(timeout: int | None = None) -> Api:
        seen.append(Path("wandb/settings").exists())
        return Api(timeout)

    monkeypatch.setattr("wandb.Api", api)
    wandb_api.read_wandb("someone/glu", Request())
    assert seen == [False]


def test_a_recorded_project(online):
    study = wandb_api.read_wandb("someone/glu", Request())
    assert study.manifest.factors == {"ffn.kind": ["mlp", "swiglu"], "optim.lr": [0.001, 0.003]}
    assert study.manifest.endpoint == "test/loss"
    assert study.manifest.seeds == [0, 1, 2]
    ends: dict[str, list[float]] = {"mlp": [], "swiglu": []}
    for run in online:
        ends[run["config"]["ffn"]["kind"]].append(run["history"][-1]["test/loss"])
    expected = sum(ends["swiglu"]) / len(ends["swiglu"]) - sum(ends["mlp"]) / len(ends["mlp"])
    assert evidence.effects(study)["mean"].iloc[0] == pytest.approx(expected, abs=1e-12)
    first = study.runs[study.runs["path"].str.contains(online[0]["id"])]
    assert first["test/loss"].item() == online[0]["history"][-1]["test/loss"]
    assert len(study.curves) == sum(len(run["history"]) for run in online)


def test_what_runs_ended_with(online):
    again = copy.deepcopy(online[0]) | {"id": "again", "created_at": "2030-01-01T00:00:00Z"}
    again["history"][-1]["test/loss"] = 1.5
    online[1]["state"] = "crashed"
    online[2]["state"] = "running"
    online[3]["state"] = "hibernating"
    online[4]["history"][-1]["test/loss"] = float("nan")
    online[5]["config"]["seed"] = str(online[5]["config"]["seed"])
    online[6]["config"]["seed"] = True
    del online[7]["config"]["seed"]
    online.append(again)
    online.append(copy.deepcopy(online[4]) | {"id": "figures", "config": {"ablate": "figures"}})  # of a dashboard
    study = wandb_api.read_wandb("someone/glu", Request())
    runs = study.runs.set_index(study.runs["path"].str.extract(r"\((.*)\)", expand=False))
    assert runs.loc["again", "test/loss"] == 1.5
    assert not {"figures", online[0]["id"]} & {*runs.index}
    ended = [runs.loc[online[i]["id"], "status"] for i in range(1, 6)]
    assert ended == ["failed", "missing", "missing", "diverged", "done"]
    notes = "\n".join(study.notes)
    assert "1 run left out, whose configuration and seed were run again" in notes
    assert "2 runs without a seed left out" in notes
    assert "2 runs not ended, counted as missing" in notes


def test_what_cannot_be_read_is_one_line(online, tmp_path, monkeypatch, capsys):
    def refused(target: str, *words: str) -> str:
        return refused_line(capsys, "--wandb", target, *words)

    assert "could not be read (ValueError: Could not find project no/body)" in refused("no/body")
    for target in ("nowhere", str(tmp_path)):
        assert "write ENTITY/PROJECT; upload offline runs by `wandb sync` first" in refused(target)
    assert "--group x: there is no such group; there are none" in refused("someone/glu", "--group", "x")
    online.clear()
    assert "there are no runs" in refused("someone/glu")
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "no key of W&B is found; set WANDB_API_KEY" in refused("someone/glu")


def test_a_server_that_does_not_answer_ends_the_command(wandb, tmp_path, monkeypatch):
    """By the timeout of W&B's own library, which accepts connections here and waits."""
    monkeypatch.setattr(wandb_api, "TIMEOUT", 1)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Refused, match=r"--wandb someone/glu: W&B could not be read \(.*did not respond in time"):
            wandb_api.read_wandb("someone/glu", Request())
        wandb.teardown()


def test_what_our_sender_uploads_gives_the_same_evidence(wandb, tmp_path):
    name = fabricate(tmp_path, GRID, seeds=(0, 1))
    track = {"_target_": "ablate.execution.tracking.wandb.WandB", "project": "ablate", "entity": None}
    edit_manifest(tmp_path, name, lambda manifest: [cell["config"].update(track=track) for cell in manifest["cells"]])
    sender = Sender(tmp_path, name)
    sender.send_all()
    sender.close()
    assert sender.count.total() == 8
    uploaded = [as_fetched(read_back(folder)) for folder in (tmp_path / "wandb").glob("offline-run-*")]
    native = load_study(tmp_path, name)
    fetched = study_of(logged_runs(uploaded, ""), Request(), "s", "W&B", "2025")
    assert fetched.notes == []
    assert len(fetched.curves) == len(native.curves)
    ours = evidence.effects(native).set_index("label").sort_index()
    theirs = evidence.effects(fetched).set_index("label").sort_index()  # in whatever order the runs ended
    columns = ours.columns.difference(["flops_ratio"])  # there are no steps there
    pandas.testing.assert_frame_equal(ours[columns], theirs[columns], check_exact=True)


def as_fetched(run: dict[str, Any]) -> SimpleNamespace:
    """A run of an offline file as W&B's API would give it."""
    names = {"id": "run_id", "name": "display_name", "group": "run_group", "created_at": "start_time"}
    fetched = {name: run[key] for name, key in names.items()}
    fetched |= {name: run[name] for name in ("config", "summary")}
    fetched["state"] = "failed" if run["exit_code"] else "finished"
    return SimpleNamespace(**fetched, scan_history=lambda page_size: run["history"])


def test_a_wandb_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text("raise TypeError('descriptors cannot be created')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    said = r"--wandb someone/glu: wandb cannot be imported \(TypeError: descriptors cannot be created\)"
    with pytest.raises(Refused, match=said):
        wandb_api.read_wandb("someone/glu", Request())
