"""Nothing is lost, and nothing takes others down, at whatever moment a sweep is killed, stopped or out of space."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import latest
from crashing_norm import children, hazard, kill_session, processes, session_is_gone, start, training, wait_for, workers
from one_run import carry_out, numbers, sweep_here

from ablate import api
from ablate.runs import lock as leases

SWEEP = ["-m", "norm=ln,bn", "train.steps=150", "train.eval_every=50", "train.checkpoint_seconds=0.1", "seeds=2"]


def logged(results: Path) -> tuple[int, int]:
    """How many rows there are in all, and how many results."""
    rows = sum(path.read_bytes().count(b"\n") for path in results.glob("runs/*/*/metrics.jsonl"))
    return rows, len(list(results.glob("runs/*/*/result.json")))


def wait_until(moment: str, process: subprocess.Popen, results: Path, pick: random.Random) -> None:
    """Wait for a moment of a sweep, or until it has ended by itself."""
    rows, ended = logged(results)
    checkpoints = modified(results)
    has_come = {
        "start": lambda: True,
        "training": lambda: logged(results)[0] > rows or logged(results)[1] > ended,
        "checkpoint": lambda: modified(results) != checkpoints,
        "result": lambda: logged(results)[1] > ended,
    }[moment]
    while process.poll() is None and not has_come():
        time.sleep(0.005)
    time.sleep(pick.uniform(0, {"start": 2, "training": 1, "checkpoint": 0.05, "result": 0.1}[moment]))


def modified(results: Path) -> dict[Path, int]:
    """When each checkpoint was last written."""
    times = {}
    for path in results.glob("runs/*/*/checkpoint.pt"):
        with contextlib.suppress(FileNotFoundError):
            times[path] = path.stat().st_mtime_ns
    return times


def strike(process: subprocess.Popen, victim: str, number: int) -> bool:
    """Send a signal to a sweep, to one of its workers or to all at once; returns whether there was anything to hit."""
    if process.poll() is not None:
        return False
    if victim == "all":
        kill_session(process.pid)
    elif victim == "sweep":
        os.kill(process.pid, number)  # its workers have to end by themselves
    else:
        hit = workers(process.pid)
        for worker in hit[:1]:
            os.kill(worker, number)
        return bool(hit)
    return True


STRIKES = [("all", signal.SIGKILL), ("sweep", signal.SIGKILL), ("sweep", signal.SIGTERM)]
STRIKES += [("worker", signal.SIGKILL), ("worker", signal.SIGTERM)]
OFTEN = ["train.steps=300", "train.eval_every=50", "train.checkpoint_seconds=0.1"]
STUDIES = {
    "sweep": [*OFTEN, "norm=ln,bn", "seeds=3"],
    "one seed": [*SWEEP[1:], "seeds=1", "train.parallel=1"],
    "tuning": [*OFTEN, "norm=ln,rms", "tune.key=optim.lr", "tune.values=[1e-3,3e-3]", "seeds=2"],
    "seeds=auto": [*OFTEN, "norm=ln,rms", "seeds=auto", "seeds_max=8"],
}


@pytest.mark.parametrize(
    ("study", "kills"),
    [("one seed", 2)]
    + [pytest.param(study, 14, marks=pytest.mark.slow) for study in ("sweep", "tuning", "seeds=auto")],
)
def test_a_study_that_is_killed_again_and_again_has_the_numbers_of_one_that_is_not(
    study, kills, small, tmp_path, untried
):
    words = latest(*small, "-m", *STUDIES[study])
    pick = random.Random(study)
    hits = 0
    for _ in range(kills):
        process = start(*words, cwd=tmp_path)
        wait_until(pick.choice(["start", "training", "checkpoint", "result"]), process, tmp_path / "results", pick)
        victim, number = pick.choice(STRIKES)
        hits += strike(process, victim, number)
        if victim == "worker":  # the sweep goes on with another one
            time.sleep(pick.uniform(0, 2))
            kill_session(process.pid)
        process.communicate()
    assert hits >= kills // 2, "it ended before it could be killed"
    last = start(*words, cwd=tmp_path)
    out, err = last.communicate(timeout=900)
    assert last.returncode == 0, out + err
    undisturbed = tmp_path / "undisturbed"
    assert sweep_here(*latest(*words, f"results_dir={undisturbed}")) == 0
    assert numbers(tmp_path / "results") == numbers(undisturbed)
    wait_for(lambda: session_is_gone(last.pid), 30)


STOPS = [("training", signal.SIGINT), ("start", signal.SIGTERM)]
STOPS += [pytest.param("result", signal.SIGHUP, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("moment", "number"), STOPS)
def test_a_signal_at_any_moment_ends_a_sweep_with_its_exit_code(moment, number, small, tmp_path):
    process = start(*small, *SWEEP, "train.steps=1000", "train.checkpoint_seconds=1000", cwd=tmp_path)
    time.sleep(0.5)  # for Python itself to start
    wait_until(moment, process, tmp_path / "results", random.Random(0))
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)  # a terminal tells the workers, too
    _, err = process.communicate(timeout=300)
    code = 130 if number == signal.SIGINT else 143
    if moment == "training":
        assert process.returncode == code and "checkpoints are kept" in err, err
        assert list((tmp_path / "results").glob("runs/*/*/checkpoint.pt"))
    every_result = logged(tmp_path / "results")[1] == 4
    assert process.returncode in ((code, 0) if every_result else (code, -number)), err
    assert "Traceback" not in err
    wait_for(lambda: session_is_gone(process.pid), 15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "number", "message"),
    [
        (0, signal.SIGKILL, "the worker process was killed by signal 9"),
        (1, signal.SIGKILL, "process 2 of 2 was killed by signal 9"),
        (1, signal.SIGTERM, ""),
    ],
)
def test_one_of_two_processes_of_a_run_ends(place, number, message, small, tmp_path, untried):
    """Killed, it fails the run at once; asked to stop, all stop with a checkpoint, and the sweep starts them again."""
    results = tmp_path / "results"
    alone = tmp_path / "alone"
    words = [*small, *SWEEP[2:], "train.steps=600", "train.parts=2", "seeds=1", "model.dropout=0.1"]
    process = start(*words, "train.devices=2", cwd=tmp_path)
    wait_for(lambda: training(results, 60) and any(results.glob("runs/*/*/checkpoint.pt")))
    [worker] = workers(process.pid)
    both = [worker, *children(worker)]
    os.kill(both[place], number)
    if number == signal.SIGKILL:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1 and message in out, out + err
        wait_for(lambda: session_is_gone(process.pid))
        assert not list(results.glob("runs/*/*/lease.json"))
        process = start(*words, cwd=tmp_path)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0 and "Traceback" not in out + err, out + err
    assert sweep_here(*latest(*words, f"results_dir={alone}")) == 0
    assert numbers(results) == numbers(alone) and session_is_gone(process.pid)
    [file] = results.glob("runs/*/*/result.json")
    assert json.loads(file.read_text())["resumed"] == 1


LONG = "Path('on').exists() and not self.training and (Path('here').touch(), time.sleep(1000))"
LONG = f"any(Path('results').glob('runs/*/*/checkpoint.pt')) and {LONG}"


@pytest.mark.slow  # 300 steps, stopped in the midst of an evaluation
@pytest.mark.parametrize("whose", ["command", "its parent"])
def test_a_long_evaluation_holds_nobody_up(whose, small, tmp_path):
    """Told to stop, or left by its parent, a worker ends in the midst of one; its last checkpoint stays.

    The files that steer it are not in the package, whose files are part of a run's key."""
    own = [*hazard(tmp_path, LONG), "norm=hazard", "seeds=1", "train.parallel=1", "train.checkpoint_seconds=0"]
    own += ["train.steps=300", "train.eval_every=10"]  # the first checkpoint is written while some of them are taken
    (tmp_path / "on").touch()
    process = start(*small, *own, cwd=tmp_path)
    wait_for((tmp_path / "here").exists)
    os.kill(process.pid, signal.SIGTERM if whose == "command" else signal.SIGKILL)
    _, err = process.communicate(timeout=25)
    assert process.returncode == (143 if whose == "command" else -signal.SIGKILL), err
    wait_for(lambda: session_is_gone(process.pid), 25)
    assert list((tmp_path / "results").glob("runs/*/*/checkpoint.pt"))
    (tmp_path / "on").unlink()
    again = start(*small, *own, cwd=tmp_path)
    out, err = again.communicate(timeout=240)
    assert again.returncode == 0, out + err
    [result] = (tmp_path / "results").glob("runs/*/*/result.json")
    assert json.loads(result.read_text())["resumed"] == 1


@pytest.mark.parametrize("words", [[], ["hydra/launcher=basic"]])
def test_who_ends_a_command_is_told_what_becomes_of_its_runs(words, plan, capfd, untried):
    def interrupt(planned):
        raise KeyboardInterrupt

    assert carry_out(plan("norm=ln,rms", "seeds=1", *words), interrupt) == 130
    kept = "jobs of the launcher may go on until you cancel them there" if words else "checkpoints are kept"
    assert f"ablate: stopped; {kept}, and the same command continues\n" in capfd.readouterr().err


def test_a_launcher_that_fails_is_one_line_and_the_summary_is_shown(plan, capfd, monkeypatch, untried):
    def die(orders):
        raise RuntimeError("workers were\nterminated")

    monkeypatch.setattr("ablate.execution.launcher.run_orders", die)
    assert carry_out(plan("norm=ln,rms", "seeds=1"), api.run_plan) == 1
    shown = capfd.readouterr()
    assert "ablate: the launcher failed (RuntimeError: workers were terminated)" in shown.err
    assert "missing" in shown.out


def test_a_sweep_that_was_stopped_beyond_its_leases_writes_nothing_more(small, tmp_path, monkeypatch, untried):
    """Another host, as which this process goes, has trained its runs meanwhile."""
    results = tmp_path / "results"
    few = [*small, *SWEEP, "seeds=1", "train.parallel=1"]
    process = start(*few, cwd=tmp_path)
    wait_for(lambda: training(results, 2))
    for pid in processes(process.pid):
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(leases, "STALE", 0.0)
    monkeypatch.setattr(leases, "is_own", lambda held: False)
    monkeypatch.setattr(leases.fcntl, "flock", lambda *_: None)  # as on a mount whose locks are local to a host
    assert sweep_here(*latest(*few, f"results_dir={results}")) == 0
    before = files(results)
    for pid in processes(process.pid):
        os.kill(pid, signal.SIGCONT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and err.count("has been taken over by another process") == 1, out + err
    assert files(results) == before
    assert len(numbers(results)) == 2 and "Traceback" not in out + err


def files(results: Path) -> dict[Path, bytes]:
    """What is in the folders of runs, but for what says who holds them."""
    found = (path for path in results.glob("runs/*/*/*") if path.name != "lock" and path.suffix != ".tmp")
    return {path: path.read_bytes() for path in found}
