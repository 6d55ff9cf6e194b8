"""Tracking services: what arrives, that it arrives once, and that failures harm nothing."""

import contextlib
import http.server
import json
import math
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from asyncio import CancelledError
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from conftest import ROOT, read_terminal, run_fresh
from crashing_norm import wait_for
from fake_studies import edit_json, edit_manifest, fabricate, whole
from page_code import code
from wandb_files import read_back
from yaml import safe_load

from ablate.cli.sync import main
from ablate.config.errors import BadComponent
from ablate.config.extra import wandb_mode
from ablate.execution.tracking import sender as sender_module
from ablate.execution.tracking.sender import Sender, TrackedRun, make_tracker, tracking
from ablate.execution.tracking.wandb import WandB
from ablate.runs.files import read_json, write_json
from ablate.runs.folder import MetricsWriter, Run
from ablate.runs.manifest import read_manifest, study_folder

STUDY = "norm-3fa94c"
OWN: dict[str, Any] = {"norm": {"eps": 1e-5}, "optim": {"warmup": 40}, "train": {"steps": 40}, "seed": {"data": 7}}
GIT = {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False}
VERSIONS = {"python": "3.11.4", "torch": "2.6.1"}
WANDB = {"_target_": "ablate.execution.tracking.wandb.WandB", "project": "trial", "entity": None}
BOARD = {"_target_": "ablate.execution.tracking.tensorboard.TensorBoard"}
STATUSES = ("done", "diverged", "failed", "done")


@pytest.fixture(autouse=True)
def no_credentials(tmp_path, monkeypatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_IDENTITY_TOKEN_FILE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name in ("WANDB_SILENT", "WANDB_ERROR_REPORTING"):  # set for W&B in this process, until the end of a test
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def make_study(results: Path, seeds: int = 2, track: Any = WANDB) -> list[str]:
    """A study on disk with nothing trained; returns the paths of its runs."""
    command = {"command": "python -m ablate -m norm=ln,rms", "study": STUDY}
    fabricate(results, {"norm": ["ln", "rms"]}, range(seeds), status=lambda levels, seed: "missing", **command)

    def add_settings(manifest: dict[str, Any]) -> None:
        for cell in manifest["cells"]:
            norm = {"_target_": f"ablate.model.norm.{cell['label']}"}
            cell["config"] = whole(OWN, {"norm": norm}) | {"track": track, "seeds": 2}
            cell["levels"] |= {"optim.lr": 0.001, "model": "decoder"}
            cell["name"] = f"{cell['label']}-mlp-pre-rope-mha-gpt2"

    edit_manifest(results, STUDY, add_settings)
    return [run.path for run in read_manifest(results, STUDY).runs]


def log(results: Path, path: str, steps: range, loss: float = 4.0) -> None:
    """Write a run's metrics up to the last of `steps`, as training does."""
    writer = MetricsWriter(Run(results, path))
    for step in steps:
        writer.write({"step": step, "tokens": 64 * step, "seconds": step / 10, "train/loss": loss - step / 100})
    writer.close()


def end(results: Path, path: str, status: str = "done", ended: str = "2026-01-01T00:00:00") -> None:
    """End a run, with a loss that is not finite where it diverged."""
    loss = None if status == "diverged" else 3.6
    error = {"type": "ValueError", "message": "boom", "traceback": ""} if status == "failed" else None
    log(results, path, range(0, 50, 10))
    final = {} if status == "failed" else {"test/loss": loss}
    result = {"status": status, "final": final, "ended": ended, "error": error}
    result |= {"seconds": {"train": 5.5, "total": 7.25}, "device": "cpu x86_64", "host": "somewhere"}
    result |= {"versions": VERSIONS, "git": GIT, "steps": 40}
    write_json(Run(results, path).result_file, result)


def ended_study(results: Path, seeds: int = 2, track: Any = WANDB) -> list[str]:
    """A study whose runs have ended as `STATUSES` says; returns the paths of its runs."""
    paths = make_study(results, seeds, track)
    for path, status in zip(paths, STATUSES, strict=False):
        end(results, path, status)
    return paths


def sync(results: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_fresh("ablate", "sync", "--results-dir", str(results), cwd=Path.cwd(), **environment)


def synced(capfd: pytest.CaptureFixture[str], results: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    """What `ablate sync` prints, in this process."""
    assert main(["--results-dir", str(results), *arguments]) == code
    return capfd.readouterr()


def folders(results: Path) -> list[Path]:
    return sorted((results / "wandb").glob("*run-*"))


def sent(results: Path) -> dict[str, list[str]]:
    """By path, what tracked.json says of the runs that the only service has."""
    file = study_folder(results, STUDY) / "tracked.json"
    services = read_json(file)["services"] if file.exists() else {"": {}}
    [runs] = services.values()
    return dict(runs)


def test_an_offline_run_reads_back_with_all_that_it_was(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    ended_study(tmp_path)
    answer = sync(tmp_path, WANDB_RUN_ID="left-over", WANDB_SERVICE="left-over")
    assert answer.returncode == 0
    assert f"{STUDY} to wandb (offline): 4 uploaded now, 0 before, 0 not ended" in answer.stdout
    runs = {run["display_name"]: run for run in map(read_back, folders(tmp_path))}
    ends = {name: [run["exit_code"], run["summary"]["status"], *run["tags"][3:]] for name, run in runs.items()}
    assert ends == {
        "ln/s0": [0, "done"],
        "ln/s1": [2, "diverged", "diverged"],
        "rms/s0": [1, "failed", "failed"],
        "rms/s1": [0, "done"],
    }
    assert not list(elsewhere.iterdir())
    run = runs["ln/s0"]
    assert (run["project"], run["run_group"], run["job_type"]) == ("trial", STUDY, "ln")
    assert run["tags"] == ["norm=ln", "optim.lr=0.001", "model=decoder"] and run["git"] == {"commit": GIT["commit"]}
    config = run["config"]
    expected = {
        "norm": "ln",
        "optim.lr": 0.001,
        "cell": "ln",
        "seed": 0,
        "seed_data": 7,
        "versions": VERSIONS,
        "git": GIT,
    }
    budget = {"params": 123_456, "flops_per_token": 250_000, "params_vs_reference": 0.0, "shared_draws": 1.0}
    expected |= {"budget": budget}
    assert {name: config[name] for name in expected} == expected
    assert config["components"]["norm"] == {"_target_": "ablate.model.norm.ln", "eps": 1e-5}
    assert (config["model"]["variant"], config["model"]["dim"], config["optim"]["warmup"]) == ("decoder", 64, 40)
    assert config["study"].items() >= {"name": STUDY, "command": "python -m ablate -m norm=ln,rms", "seeds": 2}.items()
    logged = [{"step": n, "tokens": 64 * n, "seconds": n / 10, "train/loss": 4 - n / 100} for n in range(0, 50, 10)]
    for row, expected_row in zip(run["history"], logged, strict=True):
        assert row.items() >= expected_row.items() and row["_step"] == row["step"]
    duration = {"_runtime": 7.25, "_wandb": {"runtime": 7.25}, "_step": 40}
    assert run["summary"] == logged[-1] | duration | {"test/loss": 3.6, "status": "done"}
    assert run["axes"] == {"*": "step"}
    assert runs["ln/s1"]["summary"]["test/loss"] in (None, "NaN")
    assert runs["rms/s0"]["summary"]["error"] == "boom" and runs["rms/s0"]["summary"]["_runtime"] == 7.25


def test_a_killed_sender_leaves_no_duplicate(tmp_path):
    """Killed in the middle of its second run."""
    paths = ended_study(tmp_path, seeds=1)
    assert sync(tmp_path).returncode == 0
    second = next(folder for folder in folders(tmp_path) if read_back(folder)["display_name"] == "rms/s0")
    [half] = second.glob("run-*.wandb")
    os.truncate(half, half.stat().st_size // 2)
    tracked = study_folder(tmp_path, STUDY) / "tracked.json"
    edit_json(tracked, lambda content: [runs.pop(paths[1]) for runs in content["services"].values()])
    assert "1 uploaded now, 1 before" in sync(tmp_path).stdout
    runs = list(map(read_back, folders(tmp_path)))
    assert sorted((run["display_name"], len(run["history"])) for run in runs) == [("ln/s0", 5), ("rms/s0", 5)]


@contextlib.contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """A server that knows nobody: its address, and the keys that it was sent."""
    keys: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys.append(self.headers.get("Authorization", ""))
            self.send_error(401)

        do_GET = do_HEAD = do_POST

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", keys
        server.shutdown()


def test_the_server_is_the_users_and_never_the_folders(tmp_path, monkeypatch):
    """Seen from within results, whose `wandb/settings` names another, and whose defaults would be part of a run."""
    results = tmp_path / "results"
    end(results, make_study(results)[0])
    (results / "wandb").mkdir()
    (results / "config-defaults.yaml").write_text("planted: {value: 1}\n")
    (tmp_path / "home" / ".config" / "wandb").mkdir(parents=True)
    monkeypatch.chdir(results)
    with listening() as (users, kept), listening() as (folders_, stolen):
        (tmp_path / "home" / ".config" / "wandb" / "settings").write_text(f"[default]\nbase_url = {users}\n")
        (results / "wandb" / "settings").write_text(f"[default]\nbase_url = {folders_}\nproject = planted\n")
        online = sync(Path("."), WANDB_API_KEY="0" * 40)
        assert sync(Path("."), WANDB_MODE="offline").returncode == 0
    assert any(kept) and stolen == []
    assert (online.returncode, online.stderr.count("\n")) == (0, 1) and "tracking failed (WandB" in online.stderr
    [folder] = folders(results)
    assert read_back(folder)["project"] == "trial" and "planted" not in read_back(folder)["config"]


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize(("mode", "said"), [("", "W&B runs are offline"), ("online", "tracking failed (WandB")])
def test_without_a_key_a_terminal_is_never_asked(tmp_path, mode, said):
    end(tmp_path, make_study(tmp_path)[0])
    child, terminal = pty.fork()
    if child == 0:
        os.environ["WANDB_MODE"] = mode
        os.execv(sys.executable, [sys.executable, "-m", "ablate", "sync", "--results-dir", str(tmp_path)])
    shown = read_terminal(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, shown
    assert said in shown and "W&B account" not in shown
    if not mode:
        assert f"to upload them: wandb sync {tmp_path}/wandb/offline-run-*" in shown.replace("\r\n", "")


FAKE_WANDB = """
import json, os, time
class Settings:
    def __init__(self, **settings): pass
class Config(dict):
    def update(self, values, allow_val_change): write("config", "", values["versions"], values.get("device"))
class Run:
    def __init__(self, id, step):
        self.id, self.starting_step, self.summary, self.config = id, step, {}, Config()
    def define_metric(self, name, step_metric=None): pass
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "tags": write("tags", self.id, value)
    def log(self, row, step): write("log", self.id, step)
    def mark_preempting(self): write("preempting", self.id)
    def finish(self, exit_code): write("finish", self.id, exit_code)
def talk(): print("noise")
def fail(): raise OSError("the network\\nis down")
def interrupt(): raise KeyboardInterrupt
def crash(): os._exit(3)
def hang(): time.sleep(1000)
def write(*event):
    with open(os.environ["EVENTS"], "a") as file:
        file.write(json.dumps(event) + "\\n")
def init(*, mode, id, resume, **rest):
    globals()[os.environ.get("AT_INIT", "talk")]()
    with open(os.environ["EVENTS"], "a+") as file:
        file.seek(0)
        steps = [event[2] for event in map(json.loads, file) if event[0] == "log" and event[1] == id]
    write("init", id, mode, resume)
    return Run(id, max(steps) + 1 if resume and steps else 0)
"""


@pytest.fixture
def server(tmp_path, monkeypatch) -> Path:
    """A stand-in for wandb and its server; the file of what happened."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "wandb.py").write_text(FAKE_WANDB)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'fake'}{os.pathsep}{ROOT}")
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "wandb")
    monkeypatch.setenv("EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    return tmp_path / "events"


def events(server: Path) -> list[list[Any]]:
    """The calls of the stand-in, without the run."""
    lines = server.read_text().splitlines() if server.exists() else []
    return [[kind, *rest] for kind, _, *rest in map(json.loads, lines)]


def test_a_sender_follows_a_sweep_and_ends_with_it(tmp_path, server, capfd):
    paths = make_study(tmp_path)
    remarks: list[str] = []
    with tracking(tmp_path, STUDY, [], remarks.append):
        end(tmp_path, paths[0])
        wait_for(lambda: len(sent(tmp_path)) == 1)
        assert "another process is uploading it" in synced(capfd, tmp_path)[0]
        with tracking(tmp_path, STUDY, [], remarks.append):  # a second sweep of this study: its sender waits
            end(tmp_path, paths[1])
            wait_for(lambda: len(sent(tmp_path)) == 2)
        assert remarks == [f"another process sends the runs of {STUDY}; `ablate sync {STUDY}` sends what it may miss"]
        end(tmp_path, paths[2])  # in the last moment
    assert len(remarks) == 1 and list(sent(tmp_path)) == paths[:3]


@pytest.mark.parametrize(
    ("at_init", "said"),
    [
        ("talk", []),
        ("fail", ["tracking failed (WandB: OSError: the network is down); nothing is lost"]),
        ("interrupt", ["tracking stopped (KeyboardInterrupt: )"]),
        ("crash", ["tracking has not finished; to upload the rest"]),
    ],
)
def test_no_error_of_wandb_reaches_a_sweep(at_init, said, tmp_path, server, monkeypatch):
    monkeypatch.setenv("AT_INIT", at_init)
    end(tmp_path, make_study(tmp_path)[0])
    remarks = list[str]()
    with tracking(tmp_path, STUDY, [], remarks.append):
        pass
    assert len(remarks) == len(said)
    for line, start in zip(remarks, said, strict=True):
        assert line.startswith(start) and f"ablate sync {STUDY}" in line


@pytest.mark.parametrize(("limit", "signals"), [("DRAIN", []), ("HURRY", [signal.SIGINT])])
def test_a_sweep_waits_for_its_sender_for_a_limited_time(limit, signals, tmp_path, server, monkeypatch):
    monkeypatch.setenv("AT_INIT", "hang")
    monkeypatch.setattr(sender_module, limit, 3.0)
    monkeypatch.setattr(sender_module, "received", signals)
    end(tmp_path, make_study(tmp_path)[0])
    started = time.monotonic()
    remarks: list[str] = []
    with pytest.raises(ZeroDivisionError), tracking(tmp_path, STUDY, [], remarks.append):
        raise ZeroDivisionError
    assert remarks == [f"tracking has not finished; to upload the rest: ablate sync {STUDY}"]
    assert 2 < time.monotonic() - started < 20


def test_a_sender_ends_soon_after_its_sweep_was_killed(tmp_path, server):
    [path, *_] = make_study(tmp_path)
    code = "import time; from ablate.execution.tracking.sender import tracking\n"
    code += f"with tracking({str(tmp_path)!r}, {STUDY!r}, [], print):\n    time.sleep(1000)\n"
    sweep = subprocess.Popen([sys.executable, "-c", code], env=os.environ)
    wait_for(lambda: bool(children(sweep.pid)))
    [sender] = children(sweep.pid)
    command = Path(f"/proc/{sender}/cmdline")
    wait_for(lambda: b"sender import main" in command.read_bytes())  # which is empty while the program is loaded, too
    end(tmp_path, path)
    sweep.kill()
    sweep.wait()
    wait_for(lambda: not command.exists() or command.read_bytes() == b"")  # empty where nobody has waited for it
    assert list(sent(tmp_path)) == [path], "what had ended is sent"


def test_online_runs_are_live_and_resumed_ones_repeat_no_step(tmp_path, server, capfd):
    path = make_study(tmp_path)[0]
    sender = Sender(tmp_path, STUDY)
    for steps in (30, 20, 40):  # killed and continued from a checkpoint, so the file is shorter for a while
        log(tmp_path, path, range(0, steps, 10))
        sender.send_all()
    sender.close()
    end(tmp_path, path)
    assert "wandb (online): 1 uploaded now" in synced(capfd, tmp_path)[0]
    assert events(server) == [
        ["init", "online", "allow"],
        *(["log", step] for step in (0, 10, 20, 30)),
        ["preempting"],
        ["finish", 1],
        ["init", "online", "allow"],
        ["log", 40],
        ["finish", 0],
    ]


def test_the_mode_is_decided_without_wandb(tmp_path, monkeypatch):
    assert wandb_mode() == "offline"
    netrc = tmp_path / "netrc"
    netrc.touch(mode=0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for host, mode in {"api.wandb.ai": "online", "api.forge.coreweave.com": "online", "a.org": "offline"}.items():
        netrc.write_text(f"machine {host}\n  login user\n  password {'0' * 40}\n")
        assert wandb_mode() == mode
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert wandb_mode() == "online"
    for mode, expected in (("offline", "offline"), ("disabled", "disabled"), ("online", "online"), ("of", "offline")):
        monkeypatch.setenv("WANDB_MODE", mode)
        assert wandb_mode() == expected


def test_an_unknown_study_is_one_line_and_a_damaged_run_is_skipped(tmp_path, capfd):
    for arguments in ((), ("nothing",)):
        out, err = synced(capfd, tmp_path / "results", *arguments, code=2)
        assert (out, err.count("\n")) == ("", 1)
    paths = ended_study(tmp_path)
    Run(tmp_path, paths[0]).result_file.write_text("{")
    out, err = synced(capfd, tmp_path)
    assert "3 uploaded now" in out and err.count("not uploaded, and trained again") == 1


class Service:
    """A tracking service in this process: which runs it was sent, and how they ended."""

    def __init__(self, name: str, mode: str = "online", error: BaseException | None = None):
        self.name = name
        self.mode = mode
        self.error = error
        self.rows = dict[str, int]()
        self.ended = list[tuple[str, str | None, dict[str, Any]]]()
        self.tries = 0

    def log(self, run: TrackedRun, rows: list[dict[str, Any]]) -> None:
        self.rows[run.cell] = len(rows)

    def finish(self, run: TrackedRun, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        self.tries += 1
        if self.error:
            raise self.error
        self.ended.append((run.cell, run.status, summary))

    def close(self) -> None:
        if self.error:
            raise self.error


@pytest.mark.parametrize("error", [OSError("no way in"), SystemExit("no way in"), CancelledError("no way in")])
def test_a_service_that_fails_stops_no_other_and_gets_later_what_it_lacks(error, tmp_path, monkeypatch, capfd):
    services = {"mine.first": Service("first", error=error), "mine.second": Service("second")}
    monkeypatch.setattr(sender_module, "make_tracker", lambda track, user: services[track["_target_"]])
    ended_study(tmp_path, seeds=1, track=[{"_target_": target} for target in services])
    out, err = synced(capfd, tmp_path)
    assert "to first (online): 0 uploaded now" in out and "to second (online): 2 uploaded now" in out
    why = f"tracking failed (first: {type(error).__name__}: no way in); nothing is lost"
    assert err == f"ablate: {why}, `ablate sync {STUDY}` sends the rest\n"
    services["mine.first"].error = None
    out = synced(capfd, tmp_path)[0]
    assert "to first (online): 2 uploaded now" in out and "to second (online): 0 uploaded now, 2 before" in out
    assert [len(service.ended) for service in services.values()] == [2, 2]


def send_to(service: Service, results: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many runs a new sender sends to their end."""
    monkeypatch.setattr(sender_module, "make_tracker", lambda track, user: service)
    sender = Sender(results, STUDY)
    assert sender.lock()
    sender.send_all()
    sender.send_all()  # what has not changed on disk is not looked at again
    sender.close()
    assert sender.count.total() == len(service.ended)
    return len(service.ended)


@pytest.mark.parametrize(
    "modes",
    [{"offline": 2, "offline again": 0, "online": 2, "online again": 0}, {"disabled": 0, "online": 2, "offline": 0}],
)
def test_what_was_sent_online_is_not_sent_again_and_what_was_kept_offline_is(modes, tmp_path, monkeypatch):
    paths = ended_study(tmp_path, seeds=1)
    for mode, count in modes.items():
        assert send_to(Service("mine", mode.split()[0]), tmp_path, monkeypatch) == count, mode
    end(tmp_path, paths[1], "done", "2026-01-02T00:00:00")  # trained again
    assert send_to(Service("mine", "offline"), tmp_path, monkeypatch) == 1
    write_json(Run(tmp_path, paths[0]).evaluation_file, {"metrics": {"test/loss@8": 2.5}})  # tested at a new length
    service = Service("mine", "offline")
    assert send_to(service, tmp_path, monkeypatch) == 1 and service.ended[0][2]["test/loss@8"] == 2.5
    assert send_to(Service("mine", "offline"), tmp_path, monkeypatch) == 0


def test_a_service_is_made_of_its_settings_and_nothing_else_is_one():
    service = make_tracker(WANDB | {"entity": "we"})
    assert isinstance(service, WandB) and (service.project, service.entity) == ("trial", "we")
    with pytest.raises(ValueError, match=r"track\.project: .*without / "):
        make_tracker(WANDB | {"project": "a/b"})
    with pytest.raises(BadComponent, match="the methods that track needs"):
        make_tracker({"_target_": "ablate.execution.tracking.sender.describe"})


def board(folder: Path) -> tuple[dict[str, dict[int, float]], list[Any]]:
    """What tensorboard's own reader finds in a run: the value of each scalar at each step, and its hparams."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    events = reader.EventAccumulator(str(folder)).Reload()
    scalars = {}
    for tag in events.Tags()["scalars"]:
        points = events.Scalars(tag)
        scalars[tag] = {event.step: event.value for event in points}
        assert len(points) == len(scalars[tag]), "a point is there twice"
    contents = events.PluginTagToContent("hparams")  # of the start, and of the end if there is one
    return scalars, [
        HParamsPluginData.FromString(contents[name]) for name in sorted(contents, reverse=True) if "session" in name
    ]


LOGGED = {"train/loss", "tokens", "seconds"}
NO_TENSORBOARD = "tensorboard is not installed: pip install -e '.[tensorboard]'"


def test_event_files_read_back_with_every_point_once(tmp_path, capfd):
    pytest.importorskip("tensorboard", reason=NO_TENSORBOARD)
    paths = make_study(tmp_path, track=[BOARD])
    folder = tmp_path / "tensorboard" / STUDY
    for steps in (30, 20, 40):  # killed and continued from a checkpoint; then its sender is killed, too
        sender = Sender(tmp_path, STUDY)
        for last in (20, steps):
            log(tmp_path, paths[0], range(0, last, 10))
            sender.send_all()
    scalars, [start] = board(folder / "ln-s0")
    assert scalars["train/loss"] == pytest.approx({step: 4 - step / 100 for step in range(0, 40, 10)})
    ended_study(tmp_path, track=[BOARD])
    assert f"ablate: TensorBoard: tensorboard --logdir {folder}\n" == synced(capfd, tmp_path)[1]
    assert sorted(each.name for each in folder.iterdir()) == ["ln-s0", "ln-s1", "rms-s0", "rms-s1"]
    scalars, [start, stop] = board(folder / "ln-s0")
    assert scalars["train/loss"] == pytest.approx({step: 4 - step / 100 for step in range(0, 50, 10)})
    assert scalars["test/loss"] == {40: pytest.approx(3.6)} and scalars.keys() - LOGGED == {"test/loss"}
    levels = dict(start.session_start_info.hparams)
    assert (levels["norm"].string_value, levels["optim.lr"].number_value) == ("ln", 0.001)
    scalars, [_, diverged] = board(folder / "ln-s1")
    assert (stop.session_end_info.status, diverged.session_end_info.status) == (1, 2), "success, failure"
    assert math.isnan(scalars["test/loss"][40])


def test_event_files_stay_in_the_results_whatever_a_study_names(tmp_path, capfd):
    pytest.importorskip("tensorboard", reason=NO_TENSORBOARD)
    results = tmp_path / "results"
    elsewhere = tmp_path / "elsewhere"
    ended_study(results, seeds=1, track=BOARD)
    edit_manifest(results, STUDY, lambda manifest: manifest["cells"][0].update(label="../../../data/a%b"))
    Sender(results, STUDY).send_all()
    folder = results / "tensorboard" / STUDY
    assert {each.name for each in folder.iterdir()} == {"..%2F..%2F..%2Fdata%2Fa%25b-s0", "rms-s0"}
    elsewhere.mkdir()
    (elsewhere / "events.out.tfevents.1").touch()
    shutil.rmtree(folder / "rms-s0")
    (folder / "rms-s0").symlink_to(elsewhere)
    Sender(results, STUDY).send_all()
    assert [each.name for each in elsewhere.iterdir()] == ["events.out.tfevents.1"]
    assert "a link leads" in capfd.readouterr().err


def test_the_service_of_the_page_brings_runs_to_mlflow(tmp_path, monkeypatch, capfd):
    [written] = code("tracking.md", "python")
    [yaml] = code("tracking.md", "yaml")
    client = mock.MagicMock()  # of MLflow, as far as the page uses it
    client.create_run.side_effect = lambda experiment, run_name, tags: mock.Mock(info=mock.Mock(run_id=run_name))
    client.search_runs.return_value = []
    metric = namedtuple("Metric", "name value timestamp step")
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda uri: client))
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Metric=metric))
    monkeypatch.delitem(sys.modules, "my_tracking", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_tracking.py").write_text(written)
    paths = ended_study(tmp_path, track=[safe_load(yaml)])
    write_json(Run(tmp_path, paths[0]).evaluation_file, {"metrics": {"test/loss@8": 2.5}})
    assert "add user=[my_package]" in synced(capfd, tmp_path)[1]
    for count in (4, 0):
        out, err = synced(capfd, tmp_path, "user=[my_tracking]")
        assert f"to mlflow (offline): {count} uploaded now" in out and not err
    ended = [call.args for call in client.set_terminated.mock_calls]
    assert ended == [("ln/s0", "FINISHED"), ("ln/s1", "FAILED"), ("rms/s0", "FAILED"), ("rms/s1", "FINISHED")]
    losses = []
    for call in client.log_batch.mock_calls:
        if call.args[0] == "ln/s0":
            losses += [tuple(point) for point in call.args[1] if "loss" in point.name]
    logged = [("train/loss", 4 - step / 100, 100 * step, step) for step in range(0, 50, 10)]
    assert losses == [*logged, ("test/loss", 3.6, 7250, 40), ("test/loss_8", 2.5, 7250, 40)]
