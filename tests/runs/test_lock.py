"""The lock of a run: one process trains it, and whoever has lost a run writes nothing more to it."""

import dataclasses
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import ROOT

from ablate.cli.main import command
from ablate.execution.train_run import save_weights
from ablate.runs import lock as leases
from ablate.runs.files import write_atomic
from ablate.runs.folder import MetricsWriter, Run
from ablate.runs.lock import Holder, Lease, LeaseLost, holder, read_lease
from ablate.runs.records import Evaluation, Provenance, Result

PROGRAM = """
import fcntl, socket, sys
from pathlib import Path
from ablate.runs import lock as leases
from ablate.runs.files import write_atomic
from ablate.runs.folder import MetricsWriter, Run
from ablate.runs.records import Result
leases.BEAT, leases.STALE = 0.2, 1.5
if len(sys.argv) > 2:
    socket.gethostname = lambda: sys.argv[2]
    fcntl.flock = lambda *_: None  # as on a mount with localflock
run = Run(Path(sys.argv[1]), "cell/s0")

def attempt(write):
    try:
        write()
        print("written", flush=True)
    except leases.LeaseLost:
        print("lost", flush=True)

with run.lock(lambda: False, "cuda:3") as is_locked:
    writer = MetricsWriter(run)
    print(is_locked, flush=True)
    sys.stdin.readline()
    attempt(lambda: writer.write({"step": 2}))
    attempt(lambda: write_atomic(run.checkpoint_file, b"old", run.check))
    attempt(lambda: run.write(run.result_file, Result(status="done", final={})))
    attempt(lambda: MetricsWriter(run))
"""


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """A run, in a process whose leases go stale soon."""
    monkeypatch.setattr(leases, "BEAT", 0.2)
    monkeypatch.setattr(leases, "STALE", 1.5)
    run = Run(tmp_path, "cell/s0")
    run.folder.mkdir(parents=True)
    return run


def start(run: Run, *host: str) -> subprocess.Popen:
    """A process that holds a run, on this host or on another one that shares no locks with it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(run.folder.parents[2]), *host],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "True\n"
    return process


def soon(seconds: float = 30) -> Callable[[], bool]:
    """Whether to go on waiting."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def never() -> bool:
    return False


def elsewhere(run: Run, age: float = 0) -> Holder:
    """A lease of another host, whose last heartbeat was some seconds ago."""
    lease = Holder(host="node7", pid=1, token="theirs")
    run.lease_file.write_text(json.dumps(lease.as_json()))
    os.utime(run.lease_file, (time.time() - age, time.time() - age))
    return lease


def test_a_lease_says_who_holds_a_run_and_goes_when_it_ends(run):
    assert run.holder() is None
    with run.lock(never, "cuda:1") as is_locked:
        assert is_locked
        held = run.holder()
        assert (held.pid, held.device) == (os.getpid(), "cuda:1") and held.host and held.token
        run.check()
    assert run.holder() is None and sorted(path.name for path in run.folder.iterdir()) == ["lock"]


def test_a_process_of_this_host_is_kept_out_until_the_holder_is_killed_and_no_longer(run):
    process = start(run)
    with run.lock(never) as is_locked:
        assert not is_locked and run.holder().pid == process.pid
    process.kill()
    process.wait()
    assert run.lease_file.exists() and run.holder() is None
    with run.lock(never) as is_locked:
        assert is_locked


def test_another_host_is_kept_out_while_the_heart_beats_and_no_longer(run):
    process = start(run, "other")
    for _ in range(4):  # longer than a lease without a heartbeat lives
        with run.lock(never) as is_locked:
            assert not is_locked and run.holder().host == "other"
        time.sleep(0.5)
    process.kill()
    process.wait()
    with run.lock(soon()) as is_locked:
        assert is_locked and run.holder().pid == os.getpid()


def test_a_stopped_process_of_another_host_that_wakes_up_late_writes_nothing(run):
    process = start(run, "other")
    os.kill(process.pid, signal.SIGSTOP)
    with run.lock(soon()) as is_locked:
        assert is_locked
        MetricsWriter(run).write({"step": 1})
        write_atomic(run.checkpoint_file, b"new", run.check)
        before = contents(run)
        os.kill(process.pid, signal.SIGCONT)
        assert process.communicate("\n", timeout=30)[0] == "lost\n" * 4
        assert contents(run) == before
        run.check()
        assert run.holder().pid == os.getpid()


def contents(run: Run) -> dict[str, bytes]:
    """What lies in a run's folder."""
    return {path.name: path.read_bytes() for path in run.folder.iterdir()}


WRITES = {
    "metrics.jsonl": lambda run: MetricsWriter(run),
    "checkpoint.pt": lambda run: write_atomic(run.checkpoint_file, b"state", run.check),
    "result.json": lambda run: run.write(run.result_file, Result(status="done", final={})),
    "evaluation.json": lambda run: run.write(run.evaluation_file, Evaluation()),
    "provenance.json": lambda run: run.write(run.provenance_file, Provenance(versions={})),
    "weights.safetensors": lambda run: save_weights(run, torch.nn.Linear(1, 1)),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_holder_whose_token_has_changed_writes_nothing(name, is_lost, run):
    with run.lock(never):
        if not is_lost:
            WRITES[name](run)
            assert name in contents(run)
            return
        elsewhere(run)
        before = contents(run)
        with pytest.raises(LeaseLost, match="has been taken over by another process"):
            WRITES[name](run)
        assert contents(run) == before
    assert read_lease(run.lease_file).token == "theirs", "the other's lease stays"


def test_a_fork_of_the_holder_writes_nothing_and_leaves_the_run_to_it(run):
    with run.lock(never) as is_locked:
        assert is_locked
        child = os.fork()
        if child == 0:
            try:
                MetricsWriter(run)
            finally:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        run.check()
        assert not run.metrics_file.exists()


def test_a_fork_that_outlives_a_run_does_not_keep_its_lock(run):
    with run.lock(never):
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        with run.lock(never) as is_locked:
            assert is_locked
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_of_several_claimants_without_common_locks_one_stays(run, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    elsewhere(run, age=100)
    leases_of = [Lease(run.lease_file, "cpu") for _ in range(6)]
    ready = threading.Barrier(len(leases_of))

    def claim(lease):
        ready.wait()
        with open(run.folder / "lock", "w") as file:
            lease.acquire(file, never)

    with ThreadPoolExecutor(len(leases_of)) as threads:
        list(threads.map(claim, leases_of))  # raises what one of them raised
    assert sum(lease.is_held() for lease in leases_of) == 1
    for lease in leases_of:
        lease.release()
    assert not run.lease_file.exists()


def test_a_run_that_is_removed_while_it_is_waited_for_is_made_anew(run):
    with open(run.folder / "lock", "w") as removed:
        fcntl.flock(removed, fcntl.LOCK_EX)
        waits = iter(range(50))  # without an end it would wait for ever

        def wait():
            if next(waits, None) == 0:
                shutil.rmtree(run.folder)
                fcntl.flock(removed, fcntl.LOCK_UN)
            return next(waits, None) is not None

        with run.lock(wait) as is_locked:
            assert is_locked and run.holder().pid == os.getpid()
            run.check()
            with run.lock(never) as second:
                assert not second


@pytest.mark.parametrize("put", [os.mkfifo, lambda file: file.write_bytes(b"{"), lambda file: file.write_bytes(b"{}")])
def test_a_damaged_lease_names_nobody(put, run):
    put(run.lease_file)
    assert run.holder() is None
    with run.lock(never) as is_locked:
        assert is_locked and run.holder().pid == os.getpid()


def test_only_a_process_of_this_host_since_its_last_start_is_looked_for(run):
    with run.lock(never):
        own = read_lease(run.lease_file)
        assert leases.is_own(own)
        for other in ({"boot": "another"}, {"host": "another"}):
            assert not leases.is_own(dataclasses.replace(own, **other)), "its number may be anyone's"
        for pid, is_running in ((os.getpid(), True), (2**40, False)):
            run.lease_file.write_text(json.dumps(dataclasses.replace(own, pid=pid).as_json()))
            assert (holder(run.lease_file) is not None) == is_running


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_folder_without_locks_is_refused_in_one_line(number, small, tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert command(["-m", "norm=ln,rms", "seeds=1", *small]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ablate: ")]
    [line] = [line for line in lines if "has no file locks" in line]
    assert line == lines[-1] and "results_dir" in line and "Lustre: -o flock" in line
    assert not list(tmp_path.glob("results/runs/*")) and not list(tmp_path.glob("results/studies/*/manifest.json"))
