"""python -m analysis --wandb: runs on W&B, from a recording of its API, and offline runs, written by W&B itself."""

import copy
import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pandas
import pytest
from fake_studies import edit_manifest, fabricate

from ablate import evidence
from ablate.config.errors import Refused
from ablate.execution.tracking.mirror import Mirror
from ablate.results.study import Study, load_study
from analysis.cli.main import main
from analysis.sources import Request, wandb_api
from analysis.sources.logged import study_of
from analysis.sources.wandb_api import logged_runs

RECORDED = Path(__file__).parents[2] / "recorded" / "wandb_runs.json"
GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


@pytest.fixture(autouse=True)
def wandb() -> Any:
    """The library, loaded by the test that comes first and not where tests are collected."""
    return pytest.importorskip("wandb")


class Api:
    """`wandb.Api` as far as it is used, answering from a recording; counts how many histories were asked for."""

    recorded: ClassVar[list[dict[str, Any]]] = []
    scanned: ClassVar[list[str]] = []

    def __init__(self, timeout: int | None = None):
        assert timeout is not None and timeout <= 60

    def runs(self, path: str, per_page: int = 50) -> list[SimpleNamespace]:
        """The runs of a project."""
        if path != "someone/glu":
            raise ValueError(f"Could not find project {path}")
        return [self.run(run) for run in Api.recorded]

    def run(self, recorded: dict[str, Any]) -> SimpleNamespace:
        """A run with its history."""
        told = copy.deepcopy(recorded)
        history = told.pop("history")

        def scan_history(page_size: int = 1000) -> list[dict[str, Any]]:
            Api.scanned.append(told["id"])
            return history

        attributes = {"heartbeatAt": told.pop("heartbeat_at")}
        return SimpleNamespace(**told, scan_history=scan_history, _attrs=attributes)


@pytest.fixture
def online(wandb: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A project `someone/glu` on W&B: the recorded runs, to be changed by a test."""
    monkeypatch.setattr(wandb, "Api", Api)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    Api.recorded, Api.scanned = json.loads(RECORDED.read_text(encoding="utf-8")), []
    return Api.recorded


def test_the_server_is_the_users_and_never_the_folders(online, tmp_path, monkeypatch):
    """W&B reads `wandb/settings` of the current folder when its API is made; what is kept goes where it should."""
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    monkeypatch.chdir(tmp_path)
    seen = []

    def api(timeout: int | None = None) -> Api:
        seen.append(Path("wandb/settings").exists())
        return Api(timeout)

    monkeypatch.setattr("wandb.Api", api)
    wandb_api.read_wandb("someone/glu", Request(), Path("results"))
    assert seen == [False] and len([*(tmp_path / "results" / "wandb").glob("someone-glu/*.json")]) == len(online)


def test_a_recorded_project(online: list[dict[str, Any]], tmp_path: Path) -> None:
    study = wandb_api.read_wandb("someone/glu", Request(), tmp_path)
    assert study.manifest.factors == {"ffn.kind": ["mlp", "swiglu"], "optim.lr": [0.001, 0.003]}
    assert study.manifest.endpoint == "test/loss" and study.manifest.seeds == [0, 1, 2]
    runs = {(*run["config"]["ffn"].values(), run["config"]["seed"]): run for run in online}
    one = study.runs[study.runs["path"].str.contains(online[0]["id"])].iloc[0]
    assert one["test/loss"] == online[0]["history"][-1]["test/loss"] and len(runs) == 6
    table = evidence.effects(study)
    ends = pandas.DataFrame(
        [run["config"]["ffn"] | {"seed": run["config"]["seed"], "y": run["history"][-1]["test/loss"]} for run in online]
    )
    means = ends.groupby("kind")["y"].mean()
    assert table["mean"].iloc[0] == pytest.approx(means["swiglu"] - means["mlp"], abs=1e-12)
    assert len(study.curves) == sum(len(run["history"]) for run in online)


def test_a_finished_run_is_fetched_once(online: list[dict[str, Any]], tmp_path: Path) -> None:
    first = wandb_api.read_wandb("someone/glu", Request(), tmp_path)
    assert sorted(Api.scanned) == sorted(run["id"] for run in online)
    Api.scanned.clear()
    again = wandb_api.read_wandb("someone/glu", Request(), tmp_path)
    assert Api.scanned == []
    pandas.testing.assert_frame_equal(evidence.effects(first), evidence.effects(again))
    online[3]["heartbeat_at"] = "2030-01-01T00:00:00"
    next((tmp_path / "wandb" / "someone-glu").glob(f"{online[5]['id']}.json")).write_text("{")
    wandb_api.read_wandb("someone/glu", Request(), tmp_path)
    assert Api.scanned == [online[3]["id"], online[5]["id"]]


def test_what_runs_ended_with(online: list[dict[str, Any]], tmp_path: Path) -> None:
    again = copy.deepcopy(online[0]) | {"id": "again", "created_at": "2030-01-01T00:00:00Z"}
    again["history"][-1]["test/loss"] = 1.5
    online[1]["state"], online[2]["state"] = "crashed", "running"
    online[4]["history"][-1]["test/loss"] = float("nan")
    del online[7]["config"]["seed"]
    online.append(again)
    study = wandb_api.read_wandb("someone/glu", Request(), tmp_path)
    by_id = {run["id"]: study.runs[study.runs["path"].str.contains(run["id"], regex=False)] for run in online}
    assert by_id[online[0]["id"]].empty and by_id["again"]["test/loss"].item() == 1.5
    assert [by_id[online[i]["id"]]["status"].item() for i in (1, 2, 4)] == ["failed", "missing", "diverged"]
    notes = "\n".join(study.notes)
    assert "1 run left out, whose cell and seed were run again" in notes and online[0]["id"] in notes
    assert "1 run without a seed left out" in notes and "not finite" in notes and "1 run without a row" in notes
    Api.scanned.clear()
    wandb_api.read_wandb("someone/glu", Request(), tmp_path)
    assert Api.scanned == [online[2]["id"]]  # the one that goes on


def test_nothing_prompts_hangs_or_crashes(online, tmp_path, monkeypatch, capsys):
    def refused(*arguments: str) -> str:
        assert main([*arguments, "--results-dir", str(tmp_path)]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        return said.err

    assert "could not be read (ValueError: Could not find project no/body)" in refused("--wandb", "no/body")
    assert "write ENTITY/PROJECT, or a folder" in refused("--wandb", "nowhere")
    assert "holds no runs of W&B" in refused("--wandb", str(tmp_path))
    assert "--group x: there is no such group; there are none" in refused("--wandb", "someone/glu", "--group", "x")
    online.clear()
    assert "there are no runs" in refused("--wandb", "someone/glu")
    import threading

    monkeypatch.setattr(Api, "runs", lambda *_, **__: threading.Event().wait())
    monkeypatch.setattr(wandb_api, "SILENCE", 0.2)
    assert "W&B did not answer within" in refused("--wandb", "someone/glu")
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "no key of W&B is found; set WANDB_API_KEY" in refused("--wandb", "someone/glu")


def test_offline_runs_of_our_mirror_give_the_same_evidence(wandb: Any, tmp_path: Path) -> None:
    results = tmp_path / "results"
    name = fabricate(results, GRID, seeds=(0, 1))
    track = {"_target_": "ablate.execution.tracking.wandb.WandB", "project": "ablate", "entity": None}
    edit_manifest(results, name, lambda manifest: [cell["config"].update(track=track) for cell in manifest["cells"]])
    mirror = Mirror(results, name)
    assert mirror.take(wait=False) and mirror.replay() == 8
    mirror.close()
    wandb.teardown()  # its service writes the last run to the end, as where a process of a mirror ends
    native = load_study(results, name)
    found = wandb_api.read_wandb(str(results / "wandb"), Request(), tmp_path)
    assert found.notes == []
    one, other = (evidence.effects(study).set_index("label").sort_index() for study in (native, found))
    assert one.pop("collapse_cost").notna().all() and other.pop("collapse_cost").isna().all()  # no yardsticks there
    assert one.pop("flops_ratio").eq(1).any() and other.pop("flops_ratio").isna().all()  # no steps there
    pandas.testing.assert_frame_equal(one, other, check_exact=True)  # in whatever order the runs ended
    assert len(found.curves) == len(native.curves)
    (file,) = list((results / "wandb").glob("offline-run-*/run-*.wandb"))[:1]
    file.write_bytes(file.read_bytes()[:3])
    torn = wandb_api.read_wandb(str(results / "wandb"), Request(), tmp_path)
    assert f"{file.parent.name}/{file.name} is no run that can be read" in torn.notes[0] and len(torn.runs) == 8


def offline(folder: Path, seed: int, norm: str, /, **odd: str) -> Path:
    """The file of an offline run; `odd` are texts of JSON in place of its config, its loss or its seed."""
    from wandb.proto import wandb_internal_pb2 as proto

    run, row, end = proto.Record(), proto.Record(), proto.Record()
    run.run.run_id = run.run.display_name = odd.get("name", f"{norm}{seed}")
    run.run.start_time.seconds = int(odd.get("time", 10**9))
    for key, text in (("seed", odd.get("seed", str(seed))), ("norm", odd.get("norm", f'"{norm}"'))):
        run.run.config.update.add(key=key, value_json=text)
    row.history.step.num = 5
    row.history.item.add(key=odd.get("key", "test/loss"), value_json=odd.get("loss", f"{1 + seed / 10}"))
    end.exit.exit_code = 0
    data = b":W&B123"
    for record in (run, row, end):
        data = framed(data, record.SerializeToString())
    file = folder / f"offline-run-{norm}{seed}" / f"run-{norm}{seed}.wandb"
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    return file


def test_damaged_offline_runs_are_named_and_stop_no_other(tmp_path: Path) -> None:
    for seed in range(3):
        for norm in ("ln", "rms"):
            offline(tmp_path / "runs", seed, norm)
    deep = "[" * 900 + "]" * 900
    odd = [{"loss": "{"}, {"loss": "9" * 5000}, {"loss": deep}, {"seed": "9" * 5000}, {"norm": deep}]
    odd += [{"time": str(10**15)}, {"time": str(-(10**15))}]
    bad = [offline(tmp_path / "runs", 3 + i, "rms", **each) for i, each in enumerate(odd)]
    found = wandb_api.read_wandb(str(tmp_path / "runs"), Request(), tmp_path)
    said = [f"{file.parent.name}/{file.name} is no run that can be read; left out" for file in bad]
    assert {*said} <= {*found.notes}
    assert (found.runs["status"] == "done").sum() == 6 and found.manifest.factors == {"norm": ["ln", "rms"]}


MISSING, BROKEN = "which is missing: pip install wandb", "which cannot be imported (ModuleNotFoundError"


@pytest.mark.parametrize(("broken", "said"), [("wandb", MISSING), ("wandb.proto", BROKEN)])
def test_a_wandb_that_cannot_be_imported_is_no_damage_of_the_runs(broken, said, tmp_path, monkeypatch):
    offline(tmp_path / "runs", 0, "ln")
    monkeypatch.setitem(sys.modules, broken, None)
    with pytest.raises(Refused, match=f"--wandb needs wandb, {re.escape(said)}"):
        wandb_api.read_wandb(str(tmp_path / "runs"), Request(), tmp_path)


def test_names_of_others_do_nothing_where_they_are_shown(wandb, tmp_path, capsys, undrawn):
    for seed in range(3):
        for norm in ("ln", "rms"):
            offline(tmp_path / "runs", seed, norm, name=f"\x1b[2J{norm}{seed}", loss="NaN" if seed else "1")
    offline(tmp_path / "runs", 7, "rms", seed="null", name="\x1b[31m")
    offline(tmp_path / "runs", 8, "rms", key="\x1b[31m/loss")
    main(["--wandb", str(tmp_path / "runs"), "--results-dir", str(tmp_path)])
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said and "Traceback" not in said and "\\x1b[31m" in said


def test_records_that_cross_blocks_and_torn_ends() -> None:
    pieces = [bytes([i % 256]) * size for i, size in enumerate((10, 32740, 0, 70000, 32768 - 7 - 7, 3, 5))]
    data = b":W&B123"
    for piece in pieces:
        data = framed(data, piece)
    assert list(wandb_api.records(data)) == pieces
    assert list(wandb_api.records(data[:-2])) == pieces[:-1]
    assert list(wandb_api.records(b"")) == []


def framed(data: bytes, piece: bytes) -> bytes:
    """A record after others, in pieces that no block's end crosses: checksum (left out), size, kind, bytes."""
    first = True
    while True:
        left = 32768 - len(data) % 32768
        if left < 7:
            data += b"\0" * left
            continue
        part, piece = piece[: left - 7], piece[left - 7 :]
        kind = (1 if first else 4) if not piece else (2 if first else 3)
        data += b"\0" * 4 + len(part).to_bytes(2, "little") + bytes([kind]) + part
        first = False
        if not piece:
            return data


PLAIN = {"ffn": ["mlp", "glu"]}


def read(settings: list[dict[str, Any]], asked: Request | None = None, **more: Any) -> Study:
    """The study of eight runs that logged two steps: of two cells, with four seeds where the settings do not say
    others."""
    runs = []
    for i, config in enumerate(settings):
        history = [{"_step": 0, "test/loss": 3.0}, {"_step": 5, "test/loss": 2 + 0.01 * i + 0.003 * (i * 7 % 3)}]
        run = {"id": f"id{i}", "name": f"r{i}", "group": "", "state": "finished", "created": f"2025-01-0{i + 1}"}
        runs.append(run | {"config": {"seed": i // 2} | config, "summary": {}, "history": history} | more)
    return study_of(logged_runs(runs, "", []), asked or Request(), "s", "W&B", "2025", "-")


def eight(**settings: list[Any]) -> list[dict[str, Any]]:
    return [{name: levels[i % len(levels)] for name, levels in settings.items()} for i in range(8)]


@pytest.mark.parametrize("name", ["params", "status", "step", "path", "tokens"])
def test_a_setting_called_as_a_column_of_ours_is_a_factor_all_the_same(name: str) -> None:
    study = read(eight(**{name: ["x", "y"]}))
    assert study.manifest.factors == {f"config.{name}": ["x", "y"]}
    assert evidence.effects(study)["n"].tolist() == [4] and set(study.runs["status"]) == {"done"}


def test_odd_facts_in_a_configuration_stop_nothing() -> None:
    odd = [{"params": "x", "batches": {}}, {"params": 10**400, "batches": 1}]
    study = read(eight(ablate=[{"levels": {"ffn": ffn}} | facts for ffn, facts in zip("ab", odd, strict=True)]))
    assert study.manifest.factors == {"ffn": ["a", "b"]} and study.runs["params"].isna().all()


@pytest.mark.parametrize("seed", [math.inf, 1.5, True, "x", None, 2**70])
def test_a_seed_that_is_none_is_left_out_and_said(seed: Any) -> None:
    settings = eight(**PLAIN)
    settings[7] |= {"seed": seed}
    study = read(settings)
    assert "1 run without a seed left out: r7 (id7)" in study.notes and evidence.effects(study)["n"].tolist() == [3]
    with pytest.raises(Refused, match="no run has a seed in its configuration"):
        read([each | {"seed": seed} for each in eight(**PLAIN)])


def test_a_seed_logged_as_text_is_one_and_an_unknown_state_is_said() -> None:
    study = read([each | {"seed": str(i // 2)} for i, each in enumerate(eight(**PLAIN))])
    assert study.manifest.seeds == [0, 1, 2, 3]
    study = read(eight(**PLAIN), state="preempted")
    assert set(study.runs["status"]) == {"missing"}
    assert study.notes == ["8 runs in the state preempted, counted as missing: r0, r1, r2, r3, r4, r5 and 2 more"]


@pytest.mark.parametrize("step", [None, "NaN", "x"])
def test_rows_without_a_step_are_counted(step: Any) -> None:
    history = [{"_step": step, "test/loss": value} for value in (3.0, 2.5)]
    study = read(eight(**PLAIN), history=history)
    assert study.curves["step"].tolist() == [0, 1] * 8 and set(study.runs["test/loss"]) == {2.5}
