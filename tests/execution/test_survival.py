"""Nothing is lost, and nothing takes others down, at whatever moment a sweep is killed, stopped or out of space."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, latest
from crashing_norm import hazard, kill_session, processes, session_is_gone, start, training, wait_for
from one_run import carry_out, sweep_here

from ablate import api
from ablate.results import lease as leases
from ablate.results.run import Run

SWEEP = ["-m", "norm=ln,bn", "train.steps=150", "train.eval_every=50", "train.checkpoint_seconds=0.1", "seeds=2"]
VOLATILE = ("seconds",)


def numbers(results: Path) -> dict[str, tuple]:
    """All that a sweep has measured, by run."""
    found = {}
    for path in results.glob("runs/*/*/result.json"):
        run = Run(results, str(path.parent.relative_to(results / "runs")))
        rows, torn = run.metrics()
        assert not torn
        result = run.result()
        rows = [{key: value for key, value in row.items() if key not in VOLATILE} for row in rows]
        found[run.path] = result.status, result.final, result.documents, rows
    return found


def logged(results: Path) -> tuple[int, int]:
    """How many rows there are in all, and how many results."""
    rows = sum(path.read_bytes().count(b"\n") for path in results.glob("runs/*/*/metrics.jsonl"))
    return rows, len(list(results.glob("runs/*/*/result.json")))


def wait_until(moment: str, process: subprocess.Popen, results: Path, pick: random.Random) -> None:
    """Wait for a moment of a sweep, or until it has ended by itself."""
    rows, ended = logged(results)
    going = {
        "start": lambda: False,
        "training": lambda: logged(results)[0] <= rows and logged(results)[1] == ended,
        "result": lambda: logged(results)[1] == ended,
    }[moment]
    while process.poll() is None and going():
        time.sleep(0.005)
    time.sleep(pick.uniform(0, {"start": 2, "training": 1, "result": 0.1}[moment]))


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_kill_9_at_any_moment_loses_nothing_but_time(kills, small, tmp_path):
    results, whole, pick = tmp_path / "results", tmp_path / "whole", random.Random(kills)
    few = [*small, *SWEEP, *(["seeds=3"] if kills > 2 else ["seeds=1", "train.parallel=1"])]
    for i in range(kills):
        process = start(*few, cwd=tmp_path)
        wait_until(("training", "result", "start", "training")[i % 4], process, results, pick)
        if i % 2:
            kill_session(process.pid)
        elif process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # not the workers: they have to end by themselves
        process.communicate()
    last = start(*few, cwd=tmp_path)
    out, err = last.communicate(timeout=600)
    assert last.returncode == 0 and "norm: bn − ln" in out, out + err
    assert sweep_here(*latest(*few, f"results_dir={whole}")) == 0
    assert len(numbers(whole)) == (6 if kills > 2 else 2) and numbers(results) == numbers(whole)
    wait_for(lambda: session_is_gone(last.pid), 30)


@pytest.mark.slow
def test_kill_9_while_a_model_is_compiled_loses_nothing_but_time(small, tmp_path, monkeypatch):
    few = [*small, *SWEEP, "seeds=1", "train.parallel=1", "train.compile=true", "train.steps=20"]
    for cache in ("killed", "killed again", "whole"):  # the second time some kernels are there, and one may be torn
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / cache.removesuffix(" again")))
        process = start(*few, f"results_dir={tmp_path / cache.removesuffix(' again')}", cwd=tmp_path)
        if cache != "whole":
            wait_for(lambda process=process: compilers(process.pid) or process.poll() is not None)
            assert process.poll() is None, "it compiled nothing"
            kill_session(process.pid)
            wait_for(lambda process=process: session_is_gone(process.pid), 30)
        process.communicate(timeout=600)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "killed"))
    last = start(*few, f"results_dir={tmp_path / 'killed'}", cwd=tmp_path)
    out, err = last.communicate(timeout=600)
    assert last.returncode == 0, out + err
    assert len(numbers(tmp_path / "whole")) == 2 and numbers(tmp_path / "killed") == numbers(tmp_path / "whole")


def compilers(session: int) -> list[str]:
    """The C++ compilers that run in a session."""
    listed = subprocess.run(["ps", "-eo", "sid,comm"], capture_output=True, text=True).stdout.splitlines()[1:]
    return [line for line in listed if line.split()[0] == str(session) and line.split()[1] in ("cc1plus", "g++", "ld")]


STOPS = [("start", signal.SIGTERM), ("training", signal.SIGHUP), ("result", signal.SIGINT)]
MORE = [(moment, number) for moment, number in STOPS * 4]


@pytest.mark.parametrize(
    ("moment", "number", "seed"),
    [(*STOPS[0], 0), *(pytest.param(*stop, i + 1, marks=pytest.mark.slow) for i, stop in enumerate(MORE))],
)
def test_a_signal_at_any_moment_ends_a_sweep_with_its_exit_code(moment, number, seed, small, tmp_path):
    process = start(*small, *SWEEP, "train.steps=1000", cwd=tmp_path)
    time.sleep(0.5)  # for Python itself to start
    wait_until(moment, process, tmp_path / "results", random.Random(seed))
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=20)
    code = 130 if number == signal.SIGINT else 143
    every_result = logged(tmp_path / "results")[1] == 4
    assert process.returncode in ((code, 0) if every_result else (code, -number)), err
    assert "Traceback" not in err
    wait_for(lambda: session_is_gone(process.pid), 15)


LONG = "(HERE / 'on').exists() and not self.training and ((HERE / 'here').touch(), time.sleep(1000))"
LONG = f"any(Path('results').glob('runs/*/*/checkpoint.pt')) and {LONG}"


@pytest.mark.parametrize("whose", ["command", pytest.param("its parent", marks=pytest.mark.slow)])
def test_a_long_evaluation_holds_nobody_up(whose, small, tmp_path):
    """Told to stop, or left by its parent, a worker ends in the midst of one; its last checkpoint stays."""
    own = [*hazard(tmp_path, LONG), "norm=hazard", "seeds=1", "train.parallel=1", "train.checkpoint_seconds=0"]
    (tmp_path / "mine" / "on").touch()
    process = start(*small, *own, cwd=tmp_path)
    wait_for((tmp_path / "mine" / "here").exists)
    os.kill(process.pid, signal.SIGTERM if whose == "command" else signal.SIGKILL)
    _, err = process.communicate(timeout=25)
    assert process.returncode == (143 if whose == "command" else -signal.SIGKILL), err
    wait_for(lambda: session_is_gone(process.pid), 25)
    assert list((tmp_path / "results").glob("runs/*/*/checkpoint.pt"))
    (tmp_path / "mine" / "on").unlink()
    again = start(*small, *own, cwd=tmp_path)
    out, err = again.communicate(timeout=240)
    assert again.returncode == 0, out + err
    [result] = (tmp_path / "results").glob("runs/*/*/result.json")
    assert json.loads(result.read_text())["resumed"] == 1


@pytest.mark.parametrize(
    ("strike", "reason"),
    [
        ("os._exit(7)", "exit code 7"),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_cell_that_dies_hard_takes_no_other_down_under_another_launcher(strike, reason, small, tmp_path):
    own = [*hazard(tmp_path, strike), "-m", "norm=ln,hazard,rms", "seeds=1", "hydra/launcher=basic"]
    process = start(*small, *own, cwd=tmp_path)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1 and "Traceback" not in err, out + err
    assert "ln (reference)" in out or "rms − ln" in out, "the summary is shown"
    results = {path.parts[-3]: json.loads(path.read_text()) for path in tmp_path.glob("results/runs/*/*/result.json")}
    statuses = {cell.split("-")[0]: result["status"] for cell, result in results.items()}
    assert statuses == {"ln": "done", "hazard": "failed", "rms": "done"}
    [failed] = [result for result in results.values() if result["status"] == "failed"]
    assert reason in failed["error"]["message"]


def test_a_launcher_that_fails_is_one_line_and_the_summary_is_shown(plan, capfd, monkeypatch):
    def die(orders: list) -> None:
        raise RuntimeError("workers were\nterminated")

    monkeypatch.setattr("ablate.execution.local.run_orders", die)
    assert carry_out(plan("norm=ln,rms", "seeds=1"), api.run_plan) == 1
    shown = capfd.readouterr()
    assert "ablate: the launcher failed (RuntimeError: workers were terminated)" in shown.err
    assert "missing" in shown.out


FILL = """
mount -t tmpfs -o size={size}k tmpfs disk || exit 99
head -c {filler}k /dev/zero > disk/filler
"$@" results_dir=disk/results; echo "first $?" >&2
cp -r disk/results before
rm disk/filler
"$@" results_dir=disk/results; echo "second $?" >&2
cp -r disk/results after
"""


def on_a_full_disk(folder: Path, size: int, space: int, *arguments: str) -> subprocess.CompletedProcess:
    """A command on a small disk with some KiB of space, again when there is more, both with their results copied."""
    (folder / "disk").mkdir()
    ready = (
        subprocess.run(
            ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", folder / "disk"], capture_output=True, text=True
        )
        if shutil.which("unshare")
        else None
    )
    if ready is None or ready.returncode:
        pytest.skip("a small disk needs unshare and user namespaces, or root")
    script = FILL.format(size=size, filler=size - space)
    command = ["unshare", "-Urm", "sh", "-c", script, "sh", sys.executable, "-m", "ablate", *latest(*arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
@pytest.mark.parametrize("space", [1, 12, 40, 90, 150])
def test_a_full_disk_ends_the_sweep_in_one_line_and_more_space_continues_it(space, small, tmp_path):
    """The small text's run takes about 60 KiB when it is done, and more while it goes on."""
    small = [text for text in small if not text.startswith("results_dir=")]
    done = on_a_full_disk(tmp_path, 2048, space, *small, *SWEEP, "train.parallel=1")
    assert "first 1" in done.stderr and "second 0" in done.stderr, done.stderr
    said = done.stderr.partition("first 1")[0].strip().splitlines()
    assert len(said) == 1 and "no space left for disk/results" in said[0] and "free some space" in said[0], said
    before = numbers(tmp_path / "before")
    assert len(before) < 4 and all(found[0] == "done" for found in before.values())
    after = numbers(tmp_path / "after")
    assert len(after) == 4 and {path: after[path] for path in before} == before
    whole = tmp_path / "whole"
    start(*small, *SWEEP, f"results_dir={whole}", cwd=tmp_path).communicate(timeout=240)
    assert after == numbers(whole)


def test_a_sweep_that_was_stopped_beyond_its_leases_writes_nothing_more(small, tmp_path, monkeypatch):
    """Another host, as which this process goes, has trained its runs meanwhile."""
    results, few = tmp_path / "results", [*small, *SWEEP, "seeds=1", "train.parallel=1"]
    process = start(*few, cwd=tmp_path)
    wait_for(lambda: training(results, 2))
    for pid in processes(process.pid):
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(leases, "STALE", 0.0)
    monkeypatch.setattr(leases, "is_ours", lambda held: False)
    monkeypatch.setattr(leases.fcntl, "flock", unlocked)
    assert sweep_here(*latest(*few, f"results_dir={results}")) == 0
    files = {
        path: path.read_bytes() for path in results.glob("runs/*/*/*") if path.name != "lock" and path.suffix != ".tmp"
    }
    for pid in processes(process.pid):
        os.kill(pid, signal.SIGCONT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and err.count("has been taken over by another process") == 1, out + err
    assert {
        path: path.read_bytes() for path in results.glob("runs/*/*/*") if path.name != "lock" and path.suffix != ".tmp"
    } == files
    assert len(numbers(results)) == 2 and "Traceback" not in out + err


def unlocked(*_: object) -> None:
    """A file system without locks, as between hosts."""
    raise OSError(errno.ENOLCK, "no locks")
