"""The mirror to W&B and other services: what arrives, that it arrives once, and that failures harm nothing."""

import contextlib
import http.server
import io
import json
import math
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import pytest
from conftest import importing, read_terminal, run_module
from crashing_norm import wait_for
from fake_studies import a_cell, edit_json, edit_manifest, whole
from wandb_files import read_back
from warm_python import Copy
from yaml import safe_load

from ablate.cli.sync import main
from ablate.config.errors import BadComponent
from ablate.config.extra import wandb_mode
from ablate.config.import_path import program
from ablate.config.schema import STUDY_KEYS, VARIED
from ablate.config.typed_json import stored
from ablate.execution.tracking import mirror as mirror_module
from ablate.execution.tracking.mirror import Card, Mirror, card_of, settings
from ablate.planning.checks.child import parents
from ablate.results.atomic import write_json
from ablate.results.manifest import read_manifest, study_folder
from ablate.results.records import Result
from ablate.results.run import MetricsWriter, Run

ROOT = Path(__file__).resolve().parents[2]
STUDY = "norm-3fa94c"
OWN: dict[str, Any] = {"norm": {"eps": 1e-5}, "optim": {"warmup": 40}, "train": {"steps": 40}, "seed": {"data": 7}}
GIT = {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False}
VERSIONS = {"python": "3.11.4", "torch": "2.6.1"}
ASKED = ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_IDENTITY_TOKEN_FILE", "NETRC")


@pytest.fixture(autouse=True)
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ASKED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


TRACK = {"_target_": "ablate.execution.tracking.wandb.WandB", "project": "trial", "entity": None}


def make_study(results: Path, seeds: int = 2, track: Any = TRACK) -> list[str]:
    """A study on disk with nothing trained; returns the paths of its runs."""
    cells, runs = [], []
    for i, norm in enumerate(("ln", "rms")):
        cell: dict[str, Any] = {"id": f"c{i}", "name": f"{norm}-mlp-pre-rope-mha-gpt2", "label": norm}
        cell |= {"levels": {"norm": norm, "optim.lr": 0.001, "model": "decoder"}, "reference": i == 0}
        cell |= {"params": 1000 + i, "flops_per_token": 6000, "params_vs_reference": i / 1000, "shared_draws": 1.0}
        own = whole(OWN, {"norm": {"_target_": f"ablate.model.norm.{norm}"}})
        cells.append(cell | {"batches": "b0", "task": "f0", "config": own | {"track": track, "seeds": 2}})
        runs += [{"cell": f"c{i}", "seed": seed, "path": f"{cell['name']}/s{seed}-{i}{seed}"} for seed in range(seeds)]
    manifest = {"study": STUDY, "cells": cells, "runs": runs, "seeds": list(range(seeds)), "looks": []}
    manifest |= {"command": "python -m ablate -m norm=ln,rms", "versions": {"torch": "2.6.0"}}
    manifest |= {"factors": {"norm": ["ln", "rms"]}, "components": ["norm"], "reference": {"norm": "ln"}}
    manifest |= {"tasks": {"f0": {"metrics": {"loss": "min"}}}}
    write_json(study_folder(results, STUDY) / "manifest.json", manifest)
    return [run["path"] for run in runs]


def log(results: Path, path: str, steps: range, loss: float = 4.0) -> None:
    """Write a run's metrics up to the last of `steps`, as training does."""
    writer = MetricsWriter(Run(results, path).metrics_file)
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


def sync(results: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_module("ablate", "sync", "--results-dir", str(results), cwd=Path.cwd(), **environment)


def shown(capfd: pytest.CaptureFixture[str], results: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    """What `ablate sync` prints, in this process."""
    assert main(["--results-dir", str(results), *arguments]) == code
    return capfd.readouterr()


def start_mirror(results: Path, **environment: str) -> subprocess.Popen[str]:
    first = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # where a stand-in for wandb is
    with mock.patch.object(sys, "path", [*filter(None, first), *sys.path]):
        command = [*program("ablate.execution.tracking.mirror"), STUDY, str(results)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=os.environ | environment)


def folders(results: Path) -> list[Path]:
    return sorted((results / "wandb").glob("*run-*"))


def mirrored(results: Path) -> list[dict[str, Any]]:
    file = results / "studies" / STUDY / "mirror.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_an_offline_run_reads_back_with_all_that_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, elsewhere = make_study(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for path, status in zip(paths, ("done", "diverged", "failed", "done"), strict=True):
        end(tmp_path, path, status)
    answer = sync(tmp_path, WANDB_RUN_ID="left-over", WANDB_SWEEP_ID="left-over", WANDB_SERVICE="left-over")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert f"{STUDY} to wandb (offline): 4 uploaded now, 0 before, 0 not ended" in answer.stdout
    runs = {run["display_name"]: run for run in map(read_back, folders(tmp_path))}
    assert sorted(runs) == ["ln/s0", "ln/s1", "rms/s0", "rms/s1"] and not list(elsewhere.iterdir())
    assert len({run["run_id"] for run in runs.values()}) == 4
    assert [run["exit_code"] for _, run in sorted(runs.items())] == [0, 2, 1, 0]
    assert [run["summary"]["status"] for _, run in sorted(runs.items())] == ["done", "diverged", "failed", "done"]
    assert [run["tags"][3:] for _, run in sorted(runs.items())] == [[], ["diverged"], ["failed"], []]
    run, config = runs["ln/s0"], stored(whole(OWN)).as_json()
    parts = {name: config[name] for name in VARIED}
    assert (run["project"], run["run_group"], run["job_type"]) == ("trial", STUDY, "ln")
    assert run["tags"] == ["norm=ln", "optim.lr=0.001", "model=decoder"] and run["git"] == {"commit": GIT["commit"]}
    assert {name: value for name, value in run["config"].items() if name != "_wandb"} == {
        **{"norm": "ln", "ffn": "mlp", "residual": "pre", "position": "rope", "attention": "mha", "init": "gpt2"},
        "components": {**parts, "norm": {"_target_": "ablate.model.norm.ln", "eps": 1e-5}},
        "model": {**config["model"], "variant": "decoder"},
        **{name: config[name] for name in ("data", "train", "optim", "eval")},
        "optim.lr": 0.001,
        **{"seed": 0, "seed_data": 7, "timing": "shared", "cell": "ln"},
        **{"cross_attention": "same", "embedding": "learned", "objective": "cross_entropy", "schedule": "cosine"},
        **{"parametrization": "standard", "step": "default"},
        "budget": {"params": 1000, "flops_per_token": 6000, "params_vs_reference": 0.0, "shared_draws": 1.0},
        "ablate": {
            "levels": {"model": "decoder", "norm": "ln", "optim.lr": 0.001},
            **{"reference": True, "batches": "b0", "params": 1000},
        },
        "study": {"name": STUDY, "command": "python -m ablate -m norm=ln,rms"}
        | {name: config[name] for name in STUDY_KEYS if name not in ("study", "user")}
        | {"seeds": 2, "track": TRACK},
        **{"device": "cpu x86_64", "host": "somewhere", "versions": VERSIONS, "git": GIT},
    }
    shown = ("_step", "step", "tokens", "seconds", "train/loss")
    assert all(row.keys() == {*shown, "_timestamp", "_runtime"} for row in run["history"])
    history = [{name: row[name] for name in shown} for row in run["history"]]
    logged = [{"step": n, "tokens": 64 * n, "seconds": n / 10, "train/loss": 4 - n / 100} for n in range(0, 50, 10)]
    assert history == [{"_step": row["step"]} | row for row in logged]
    took = {"_runtime": 7.25, "_wandb": {"runtime": 7.25}, "_step": 40}
    assert run["summary"] == logged[-1] | took | {"test/loss": 3.6, "status": "done"}
    over = {"train/*": "step", "val/*": "step", "test/*": "step", "diag/*": "step", "lr": "step", "grad_norm": "step"}
    assert run["axes"] == over | {"step": None, "tokens": None, "seconds": None}
    assert runs["rms/s1"]["config"]["norm"] == "rms" and runs["rms/s1"]["config"]["budget"]["params"] == 1001
    assert runs["ln/s1"]["summary"]["test/loss"] in (None, "NaN")
    assert runs["rms/s0"]["summary"]["error"] == "boom" and runs["rms/s0"]["summary"]["_runtime"] == 7.25


def test_a_sweep_names_user_packages_to_its_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, mirrors = SimpleNamespace(wait=lambda seconds: 0, kill=lambda: None), list[Mirror]()

    def popen(command: list[str], stdout: int, **_: Any) -> Any:
        assert stdout == subprocess.DEVNULL, "what a service prints disturbs the live view"
        monkeypatch.setattr(sys, "argv", command[3:])
        return started

    monkeypatch.setattr(mirror_module.subprocess, "Popen", popen)
    for started.returncode in (0, -signal.SIGKILL, None):
        started.stdin, remarks = io.BytesIO(), list[str]()
        with mirror_module.mirrored(tmp_path, STUDY, ["mine"], remarks.append):
            pass
        assert len(remarks) == (started.returncode != 0), "one that was killed is reported"
    monkeypatch.setattr(mirror_module, "follow", mirrors.append)
    monkeypatch.setattr(mirror_module.os, "nice", lambda _: None)
    mirror_module.main()
    assert (mirrors[0].study, mirrors[0].user) == (STUDY, ["mine"])


def test_a_killed_mirror_leaves_no_duplicate(tmp_path: Path) -> None:
    """Killed in the middle of its second run, and of the mark of that run."""
    for path in make_study(tmp_path, seeds=1):
        end(tmp_path, path)
    assert sync(tmp_path).returncode == 0
    second = next(folder for folder in folders(tmp_path) if read_back(folder)["display_name"] == "rms/s0")
    (half,) = second.glob("run-*.wandb")
    os.truncate(half, half.stat().st_size // 2)
    marks = tmp_path / "studies" / STUDY / "mirror.jsonl"
    marks.write_text(marks.read_text().splitlines(keepends=True)[0] + '{"path": "torn')
    answer = sync(tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "") and "1 uploaded now" in answer.stdout
    runs = list(map(read_back, folders(tmp_path)))
    assert {run["display_name"]: len(run["history"]) for run in runs} == {"ln/s0": 5, "rms/s0": 5}
    assert all(run["summary"]["status"] == "done" for run in runs) and len(runs) == 2


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


def test_the_server_is_the_users_and_never_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        answer = sync(Path("."), WANDB_API_KEY="0" * 40)
    assert any(kept) and stolen == []
    assert (answer.returncode, answer.stderr.count("\n")) == (0, 1) and "cannot be reached" in answer.stderr, (
        answer.stderr
    )
    run = read_back(folders(results)[0])
    assert run["project"] == "trial" and "planted" not in run["config"]


def test_a_crash_of_wandbs_own_process_is_one_line_and_costs_one_run(tmp_path: Path) -> None:
    paths = make_study(tmp_path, seeds=1)
    for path in paths:
        end(tmp_path, path)
    log(tmp_path, paths[0], range(4000))
    syncing = Copy(["ablate", "sync", "--results-dir", str(tmp_path)], Path.cwd(), importing())
    written = (tmp_path / "wandb").glob
    wait_for(lambda: any(file.stat().st_size > 30_000 for file in written("*run-*/run-*.wandb")))
    for pid, parent in parents():
        if parent == syncing.pid:
            os.kill(pid, signal.SIGABRT)  # on which a program in Go prints what all of its threads do
    out, err = syncing.communicate(timeout=120)
    assert (syncing.returncode, err.count("\n")) == (0, 1) and "tracking failed" in err, err
    assert "1 uploaded now" in out and len(mirrored(tmp_path)) == 1


def test_without_a_key_a_terminal_is_never_asked(tmp_path: Path) -> None:
    end(tmp_path, make_study(tmp_path)[0])
    child, terminal = pty.fork()
    if child == 0:
        os.environ["WANDB_MODE"] = "online"
        os.execv(sys.executable, [sys.executable, "-m", "ablate", "sync", "--results-dir", str(tmp_path)])
    shown = read_terminal(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, shown
    assert "offline" in shown and "W&B account" not in shown and len(folders(tmp_path)) == 1
    assert "cannot be reached" in shown


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
def write(*event):
    with open(os.environ["EVENTS"], "a") as file:
        file.write(json.dumps(event) + "\\n")
def init(*, mode, id, resume, **rest):
    if os.environ["EVENTS"].endswith(mode + "-fails"):
        raise OSError("the network\\nis down")
    with open(os.environ["EVENTS"], "a+") as file:
        file.seek(0)
        steps = [event[2] for event in map(json.loads, file) if event[0] == "log" and event[1] == id]
    write("init", id, mode, resume)
    return Run(id, max(steps) + 1 if resume and steps else 0)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for wandb and its server; the file of what happened."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "wandb.py").write_text(FAKE_WANDB)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'fake'}{os.pathsep}{ROOT}")
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    monkeypatch.setattr(os, "environ", os.environ.copy())  # which W&B's settings would stay in
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "wandb")
    monkeypatch.setenv("EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    return tmp_path / "events"


def events(server: Path) -> list[list[Any]]:
    """The calls of the stand-in, without the run."""
    lines = server.read_text().splitlines() if server.exists() else []
    return [[kind, *rest] for kind, _, *rest in map(json.loads, lines)]


def test_a_mirror_follows_a_sweep_and_ends_with_it(tmp_path: Path, server: Path, capfd: Any) -> None:
    paths = make_study(tmp_path)
    mirror = start_mirror(tmp_path)
    end(tmp_path, paths[0])
    wait_for(lambda: len(mirrored(tmp_path)) == 1)
    assert "another process is uploading it" in shown(capfd, tmp_path)[0]
    second = start_mirror(tmp_path)  # a second sweep of this study: its mirror waits
    end(tmp_path, paths[1])
    wait_for(lambda: len(mirrored(tmp_path)) == 2)
    end(tmp_path, paths[2])  # in the last moment
    assert mirror.communicate(timeout=120) == ("", "")
    assert mirror.returncode == 0 and len(mirrored(tmp_path)) == 3
    end(tmp_path, paths[3])
    assert second.communicate(timeout=120) == ("", "")
    assert second.returncode == 0 and [line["path"] for line in mirrored(tmp_path)] == paths


def test_online_runs_are_live_and_resumed_ones_repeat_no_step(tmp_path: Path, server: Path, capfd: Any) -> None:
    path = make_study(tmp_path)[0]
    mirror = Mirror(tmp_path, STUDY)
    for steps in (30, 20, 40):  # killed and continued from a checkpoint, so the file is shorter for a while
        log(tmp_path, path, range(0, steps, 10))
        mirror.replay()
    mirror.close()
    end(tmp_path, path)
    assert "wandb (online): 1 uploaded now" in shown(capfd, tmp_path)[0]
    assert events(server) == [
        ["init", "online", "allow"],
        *(["log", step] for step in (0, 10, 20, 30)),
        ["preempting"],
        ["finish", 1],
        ["init", "online", "allow"],
        ["log", 40],
        ["finish", 0],
    ]


def test_a_run_that_ends_while_it_is_shown_gets_what_only_its_end_tells(tmp_path: Path, server: Path) -> None:
    path = make_study(tmp_path)[0]
    log(tmp_path, path, range(0, 30, 10))
    mirror = Mirror(tmp_path, STUDY)
    mirror.replay()
    end(tmp_path, path, "diverged")
    mirror.replay()
    later = events(server)[events(server).index(["log", 20]) + 1 :]
    tags = ["norm=ln", "optim.lr=0.001", "model=decoder", "diverged"]
    assert later == [["config", VERSIONS, "cpu x86_64"], ["tags", tags], ["log", 30], ["log", 40], ["finish", 2]]


def test_names_that_a_cell_does_not_tell_apart_are_left_out() -> None:
    own = {"norm": {"_target_": "mine.Norm"}, "seed": {"init": 3}}
    config = stored(whole(own) | {"data": {"path": "x"}, "reuse": "none"})
    levels = {"norm": "my-norm", "data": "text"}
    cell = a_cell(name="my-norm-mlp-pre-rope-mha-gpt2", levels=levels, config=config)
    found = settings(cell)
    assert found["norm"] == "my-norm" and "ffn" not in found and "reuse" not in found and found["seed_init"] == 3
    assert found["data"] == {"path": "x", "variant": "text"} and cell.config.data == {"path": "x"}


def test_an_error_online_turns_to_offline_and_says_so_once(tmp_path, server, capfd, monkeypatch) -> None:
    paths = make_study(tmp_path)
    end(tmp_path, paths[0])
    end(tmp_path, paths[1])
    monkeypatch.setenv("EVENTS", f"{server}-online-fails")
    message = "ablate: W&B cannot be reached; runs are logged offline from now on (OSError: the network is down)\n"
    assert shown(capfd, tmp_path)[1] == message
    assert [line["mode"] for line in mirrored(tmp_path)] == ["offline", "offline"]
    monkeypatch.setenv("EVENTS", str(server))
    monkeypatch.setenv("WANDB_MODE", "online")
    assert "wandb (online): 2 uploaded now" in shown(capfd, tmp_path)[0], "a key and a network later"


def test_a_wandb_that_is_broken_harms_nothing(tmp_path, server, capfd, monkeypatch) -> None:
    (tmp_path / "fake" / "wandb.py").write_text("raise ImportError('no such thing')")
    for path in make_study(tmp_path):
        end(tmp_path, path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    err = shown(capfd, tmp_path)[1]
    assert err.count("\n") == 1 and "nothing is lost" in err
    assert mirrored(tmp_path) == []


def test_a_wandb_that_hangs_ends_with_the_grace_of_the_mirror(tmp_path: Path, server: Path) -> None:
    (tmp_path / "fake" / "wandb.py").write_text("import time\ntime.sleep(1000)")
    end(tmp_path, make_study(tmp_path)[0])
    start = "from ablate.execution.tracking import mirror; mirror.GRACE = 0.5; mirror.main()"
    command = [sys.executable, "-c", start, STUDY, str(tmp_path)]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0 and f"`ablate sync {STUDY}` mirrors the rest" in answer.stderr


def test_the_mode_is_decided_without_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wandb_mode() == "offline"
    netrc = tmp_path / "netrc"
    netrc.touch(mode=0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for host in ("api.wandb.ai", "api.forge.coreweave.com"):
        netrc.write_text(f"machine {host}\n  login user\n  password {'0' * 40}\n")
        assert wandb_mode() == "online"
    netrc.write_text("machine example.org login user password x\n")
    assert wandb_mode() == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert wandb_mode() == "online"
    for mode in ("offline", "disabled", "online"):
        monkeypatch.setenv("WANDB_MODE", mode)
        assert wandb_mode() == mode


@pytest.mark.parametrize(
    ("track", "message"),
    [(None, ""), ({}, ""), ({"_target_": "os.system", "command": "false"}, "'os.system' is not in ablate.execution")],
)
def test_without_a_service_nothing_is_mirrored(tmp_path, track, message, capsys) -> None:
    end(tmp_path, make_study(tmp_path, track=track)[0])
    assert Mirror(tmp_path, STUDY).replay() == 0 and not (tmp_path / "wandb").exists()
    assert message in capsys.readouterr().err


def test_an_unknown_study_is_one_line_and_a_damaged_run_is_skipped(tmp_path: Path, capfd: Any) -> None:
    for arguments in ((), ("nothing",)):
        out, err = shown(capfd, tmp_path / "results", *arguments, code=2)
        assert (out, err.count("\n")) == ("", 1)
    run = Run(tmp_path, make_study(tmp_path)[0])
    assert STUDY in shown(capfd, tmp_path, "nothing", code=2)[1]
    run.folder.mkdir(parents=True)
    run.result_file.write_text("{")
    assert Mirror(tmp_path, STUDY).replay() == 0


class Shown:
    """A tracking service in this process: which runs it was given, and how they ended."""

    name = "shown"

    def __init__(self, mode: str):
        self.mode, self.rows, self.ended = mode, dict[str, int](), list[tuple[str, str, dict[str, Any]]]()

    def log(self, card: Card, rows: list[dict[str, Any]]) -> None:
        self.rows[card.name] = len(rows)

    def finish(self, card: Card, rows: list[dict[str, Any]], status: str, summary: dict[str, Any]) -> None:
        self.ended.append((card.name, status, summary))

    def close(self) -> None:
        self.rows.clear()


def test_a_service_that_fails_stops_no_other_and_gets_later_what_it_lacks(tmp_path, monkeypatch, capsys) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no way in")

    def leave(*_: Any) -> None:
        sys.exit("no way in")

    sinks = {name: Shown("online") for name in ("first", "second", "third")}
    for name, sink in sinks.items():
        sink.name = name
    sinks["first"].finish, sinks["third"].log, sinks["third"].close = fail, leave, leave  # type: ignore[method-assign]
    monkeypatch.setattr(mirror_module, "make_sink", lambda track, user: sinks[track["_target_"].partition(".")[2]])
    paths = make_study(tmp_path, seeds=1, track=[{"_target_": f"mine.{name}"} for name in sinks])
    end(tmp_path, paths[0])
    log(tmp_path, paths[1], range(0, 30, 10))
    assert main(["--results-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    for name, count in {"first": 0, "second": 1, "third": 1}.items():
        assert f"{STUDY} to {name} (online): {count} uploaded now, 0 before, 1 not ended" in out.splitlines()
    assert [line["sink"] for line in mirrored(tmp_path)] == ["second", "third"] and sinks["second"].rows == {}
    assert err.splitlines() == [
        f"ablate: tracking failed ({how}: no way in); nothing is lost, `ablate sync {STUDY}` tries again"
        for how in ("first: OSError", "third: SystemExit")
    ]
    del sinks["first"].finish, sinks["third"].close
    end(tmp_path, paths[1])
    assert main(["--results-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert (
        "to first (online): 2 uploaded now, 0 before" in out and "to second (online): 1 uploaded now, 1 before" in out
    )
    assert [len(sink.ended) for sink in sinks.values()] == [2, 2, 2]


BOARD = {"_target_": "ablate.execution.tracking.tensorboard.TensorBoard"}


def board(folder: Path) -> tuple[dict[str, dict[int, float]], list[Any]]:
    """What tensorboard's own reader finds in a run: the value of each scalar at each step, and its hparams."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = reader.EventAccumulator(str(folder)).Reload()
    points = {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert all(len(dict(each)) == len(each) for each in points.values()), "a point is there twice"
    hparams = found.PluginTagToContent("hparams")
    kinds = ("_hparams_/session_start_info", "_hparams_/session_end_info")
    data = [HParamsPluginData.FromString(hparams[kind]) for kind in kinds if kind in hparams]
    return {tag: dict(each) for tag, each in points.items()}, data


def test_event_files_read_back_with_every_point_once(tmp_path: Path, capfd: Any) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install -e '.[tensorboard]'")
    paths, folder = make_study(tmp_path, track=[BOARD]), tmp_path / "tensorboard" / STUDY
    for steps in (30, 20, 40):  # killed and continued from a checkpoint; then its mirror is killed, too
        mirror = Mirror(tmp_path, STUDY)
        log(tmp_path, paths[0], range(0, 20, 10))
        mirror.replay()
        log(tmp_path, paths[0], range(0, steps, 10))
        mirror.replay()
    scalars, [start] = board(folder / "ln-s0")
    assert scalars["train/loss"] == pytest.approx({step: 4 - step / 100 for step in range(0, 40, 10)})
    for path, status in zip(paths, ("done", "diverged", "failed", "done"), strict=True):
        end(tmp_path, path, status)
    edit_json(Run(tmp_path, paths[0]).result_file, lambda result: result["final"].update({"train/loss": 3.6}))
    mirror.replay()
    mirror.close()
    (tmp_path / "studies" / STUDY / "mirror.jsonl").unlink()  # replayed again
    for count in (4, 0):
        assert f"to tensorboard (online): {count} uploaded now" in shown(capfd, tmp_path)[0]
    assert sorted(each.name for each in folder.iterdir()) == ["ln-s0", "ln-s1", "rms-s0", "rms-s1"]
    scalars, [start, stop] = board(folder / "ln-s0")
    logged = {step: pytest.approx(4 - step / 100) for step in range(0, 50, 10)}
    assert scalars.pop("train/loss") == logged and scalars.pop("test/loss") == {40: pytest.approx(3.6)}
    assert scalars.keys() == {"tokens", "seconds"} and scalars["tokens"][40] == 64 * 40
    levels = dict(start.session_start_info.hparams)
    assert (levels["norm"].string_value, levels["optim.lr"].number_value) == ("ln", 0.001)
    assert start.session_start_info.group_name == board(folder / "ln-s1")[1][0].session_start_info.group_name
    info = stop.session_end_info
    assert info.end_time_secs - start.session_start_info.start_time_secs == pytest.approx(7.25)
    statuses = [board(folder / name)[1][1].session_end_info.status for name in ("ln-s0", "ln-s1", "rms-s0")]
    assert statuses == [1, 2, 2], "success, failure, failure"
    assert math.isnan(board(folder / "ln-s1")[0]["test/loss"][40])


def test_event_files_stay_in_the_results_whatever_a_study_names(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install -e '.[tensorboard]'")
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    for path in make_study(results, seeds=1, track=BOARD):
        end(results, path)
    edit_manifest(results, STUDY, lambda manifest: manifest["cells"][0].update(label="../../../data/a%b"))
    assert Mirror(results, STUDY).replay() == 2
    folder = results / "tensorboard" / STUDY
    assert {each.name for each in folder.iterdir()} == {"..%2F..%2F..%2Fdata%2Fa%25b-s0", "rms-s0"}
    elsewhere.mkdir()
    (elsewhere / "events.out.tfevents.1").touch()
    shutil.rmtree(folder / "rms-s0")
    (folder / "rms-s0").symlink_to(elsewhere)
    assert Mirror(results, STUDY).replay() == 1 and [each.name for each in elsewhere.iterdir()] == [
        "events.out.tfevents.1"
    ]
    assert "a link leads" in capsys.readouterr().err


def test_neither_torch_nor_tensorflow_is_loaded_for_tensorboard() -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install -e '.[tensorboard]'")
    code = (
        "import sys; from ablate.execution.tracking import tensorboard; print({*sys.modules} & {'torch', 'tensorflow'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


class MlflowClient:
    """MLflow's own client, as far as the page uses it, with the rules of its server."""

    experiments: ClassVar[dict[str, list[Any]]] = {}

    def __init__(self, uri: str):
        assert uri.startswith("http")

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        self.experiments[name] = []
        return name

    def search_runs(self, experiments: list[str], wanted: str) -> list[Any]:
        key, _, value = wanted.removeprefix("tags.").partition(" = ")
        return [run for name in experiments for run in self.experiments[name] if run.tags[key] == value.strip("'")]

    def delete_run(self, run: Any) -> None:
        for runs in self.experiments.values():
            runs[:] = [each for each in runs if each is not run]

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        run = SimpleNamespace(name=run_name, tags=tags, params={}, metrics={}, status="RUNNING")
        run.info = SimpleNamespace(run_id=run)
        self.experiments[experiment].append(run)
        return run

    def log_param(self, run: Any, name: str, value: Any) -> None:
        run.params[name] = str(value)

    def log_batch(self, run: Any, metrics: list[tuple[str, float, int, int]]) -> None:
        for name, value, timestamp, step in metrics:
            assert re.fullmatch(r"[\w./: -]+", name) and isinstance(value, int | float) and isinstance(timestamp, int)
            run.metrics.setdefault(name, {})[step] = value

    def set_terminated(self, run: Any, status: str) -> None:
        assert status in ("FINISHED", "FAILED", "KILLED")
        run.status = status


def test_the_service_of_the_page_brings_runs_to_mlflow(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    page = (ROOT / "docs" / "how-to" / "tracking.md").read_text()
    [written], [yaml] = (
        re.findall(rf"^```{kind}\n(.*?)^```", page, re.DOTALL | re.MULTILINE) for kind in ("python", "yaml")
    )
    assert len(written.splitlines()) <= 30
    entities = SimpleNamespace(Metric=lambda *values: values)
    for name, module in {"mlflow": SimpleNamespace(MlflowClient=MlflowClient), "mlflow.entities": entities}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "my_tracking", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_tracking.py").write_text(written)
    paths = make_study(tmp_path, track=[safe_load(yaml)])
    for path, status in zip(paths, ("done", "diverged", "failed", "done"), strict=True):
        end(tmp_path, path, status)
    write_json(Run(tmp_path, paths[0]).evaluation_file, {"metrics": {"test/loss@8": 2.5}})
    assert "write 'user=[my_tracking]'" in shown(capfd, tmp_path, "user=my_tracking", code=2)[1]
    for count in (4, 0):
        assert "add user=[my_package]" in shown(capfd, tmp_path)[1]
        out, err = shown(capfd, tmp_path, "user=[my_tracking]")
        assert f"to mlflow (offline): {count} uploaded now" in out and not err
    end(tmp_path, paths[2], "done", "2026-01-02T00:00:00")  # trained again
    assert "to mlflow (offline): 1 uploaded now" in shown(capfd, tmp_path, "user=[my_tracking]")[0]
    runs = {run.name: run for run in MlflowClient.experiments[STUDY]}
    assert {name: run.status for name, run in runs.items()} == {
        **{"ln/s0": "FINISHED", "ln/s1": "FAILED", "rms/s0": "FINISHED", "rms/s1": "FINISHED"}
    }
    assert len(MlflowClient.experiments[STUDY]) == 4
    assert runs["ln/s0"].params == {"norm": "ln", "optim.lr": "0.001", "model": "decoder", "seed": "0"}
    assert runs["ln/s0"].metrics["train/loss"] == {step: 4 - step / 100 for step in range(0, 50, 10)}
    assert runs["ln/s0"].metrics["test/loss"] == {40: 3.6} and runs["ln/s0"].metrics["test/loss_8"] == {40: 2.5}
    assert math.isnan(runs["ln/s1"].metrics["test/loss"][40])


def replayed(results: Path, sink: Shown, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many runs a new mirror replays to their end."""
    monkeypatch.setattr(mirror_module, "make_sink", lambda track, user: sink)
    mirror = Mirror(results, STUDY)
    assert mirror.take(wait=False)
    found = mirror.replay()
    assert mirror.replay() == 0, "what has not changed on disk is not looked at again"
    assert mirror.locked
    mirror.locked.close()
    return found


@pytest.mark.parametrize(
    "modes",
    [{"offline": 2, "offline again": 0, "online": 2, "online again": 0}, {"disabled": 0, "online": 2, "offline": 0}],
)
def test_what_was_shown_online_is_not_shown_again_and_what_was_kept_offline_is(modes, tmp_path, monkeypatch) -> None:
    paths = make_study(tmp_path, seeds=1)
    end(tmp_path, paths[0])
    end(tmp_path, paths[1], "diverged")
    for mode, count in modes.items():
        sink = Shown(mode.split()[0])
        assert replayed(tmp_path, sink, monkeypatch) == len(sink.ended) == count, mode
    end(tmp_path, paths[1], "done", "2026-01-02T00:00:00")  # trained again
    assert replayed(tmp_path, Shown("offline"), monkeypatch) == 1
    write_json(Run(tmp_path, paths[0]).evaluation_file, {"metrics": {"test/loss@8": 2.5}})  # tested at a new length
    sink = Shown("offline")
    assert [replayed(tmp_path, sink, monkeypatch) for _ in range(2)] == [1, 0]
    [(_, _, shown)] = sink.ended
    assert shown["test/loss@8"] == 2.5


def test_runs_that_go_on_are_shown_online_alone(tmp_path: Path, monkeypatch: Any) -> None:
    (path, other) = make_study(tmp_path, seeds=1)
    log(tmp_path, path, range(0, 30, 10))
    for mode, shown in (("online", {"ln/s0": 3}), ("offline", {})):
        sink = Shown(mode)
        assert replayed(tmp_path, sink, monkeypatch) == 0 and sink.rows == shown and not sink.ended
    write_json(Run(tmp_path, path).evaluation_file, {"metrics": {"test/loss@8": 2.5}})
    end(tmp_path, path)
    end(tmp_path, other, "failed")
    sink = Shown("online")
    assert replayed(tmp_path, sink, monkeypatch) == 2
    ended = [("ln/s0", "done", {"test/loss": 3.6, "test/loss@8": 2.5}), ("rms/s0", "failed", {"error": "boom"})]
    assert sink.ended == ended


def test_a_card_says_what_a_run_is_and_of_which_study(tmp_path: Path) -> None:
    make_study(tmp_path)
    manifest = read_manifest(tmp_path, STUDY)
    planned, result = manifest.runs[3], Result(status="diverged", final={}, seconds={"total": 7.25})
    card = card_of(tmp_path, manifest, manifest.cells[1], planned, result)
    assert (card.group, card.job_type, card.name) == (STUDY, "rms", "rms/s1")
    assert card.tags == ["norm=rms", "optim.lr=0.001", "model=decoder", "diverged"] and card.seconds == 7.25
    assert card_of(tmp_path, manifest, manifest.cells[1], planned, None).seconds is None
    ids = {card_of(tmp_path, manifest, manifest.cells[1], run, None).id for run in manifest.runs}
    ids |= {card_of(tmp_path, replace(manifest, study="other"), manifest.cells[1], planned, None).id}
    assert len(ids) == len(manifest.runs) + 1, "a study that shares a run is another"
    assert {len(each) for each in ids} == {16}


def test_a_service_is_made_of_its_settings_and_nothing_else_is_one() -> None:
    ours = "ablate.execution.tracking.wandb"
    sink = mirror_module.make_sink({"_target_": f"{ours}.WandB", "project": "trial", "entity": "we"})
    assert (sink.name, sink.project, sink.entity) == ("wandb", "trial", "we")
    with pytest.raises(BadComponent, match="no tracking service: a class with log, finish and close"):
        mirror_module.make_sink({"_target_": "ablate.execution.tracking.mirror.card_of"})
