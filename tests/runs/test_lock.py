"""Leases: hosts that share a folder and no locks train a run once, and whoever lost a run writes nothing more to it."""

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
from pathlib import Path

import pytest
from conftest import ROOT

from ablate.runs import lock as leases
from ablate.runs.files import write_atomic
from ablate.runs.folder import MetricsWriter, Run
from ablate.runs.lock import Lease, LeaseLost, holder

ELSEWHERE = """
import errno, fcntl, os, socket, sys, time
from pathlib import Path
from ablate.runs import lock as leases
from ablate.runs.files import write_atomic
from ablate.runs.folder import MetricsWriter, Run
socket.gethostname = lambda: sys.argv[2]
leases.BEAT, leases.STALE = 0.2, 1.5
def no_locks(*_):
    raise OSError(errno.ENOLCK, "no locks available")
fcntl.flock = no_locks
run = Run(Path(sys.argv[1]), "cell/s0")
"""


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(leases, "BEAT", 0.2)
    monkeypatch.setattr(leases, "STALE", 1.5)


@pytest.fixture
def run(tmp_path, quick) -> Run:
    run = Run(tmp_path, "cell/s0")
    run.folder.mkdir(parents=True)
    return run


def on_host(name: str, results: Path, program: str) -> subprocess.Popen:
    """A process that believes itself on another host, whose file system has no locks."""
    command = [sys.executable, "-c", ELSEWHERE + program, str(results), name]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


HOLD = """
def attempt(write):
    try:
        write()
        print("written", flush=True)
    except leases.LeaseLost:
        print("lost", flush=True)

with run.lock(lambda: False, "cuda:3") as mine:
    writer = MetricsWriter(run.metrics_file, 0, run.check)
    print(mine, flush=True)
    sys.stdin.readline()
    attempt(lambda: writer.write({"step": 2}))
    attempt(lambda: write_atomic(run.checkpoint_file, b"old", run.check))
    attempt(lambda: MetricsWriter(run.metrics_file, 0, run.check))
"""


def test_a_lease_says_who_holds_a_run_and_goes_when_it_ends(run):
    assert run.holder() is None
    with run.lock(lambda: False, "cuda:1") as mine:
        assert mine
        held = run.holder()
        assert (held.pid, held.device) == (os.getpid(), "cuda:1") and held.host and held.started
        run.check()
    assert run.holder() is None and sorted(path.name for path in run.folder.iterdir()) == ["lock"]


def test_another_host_is_kept_out_while_the_heart_beats_and_no_longer(run):
    other = on_host("other", run.folder.parents[2], HOLD)
    assert other.stdout.readline() == "True\n"
    for _ in range(4):  # longer than a lease without a heartbeat lives
        with run.lock(lambda: False) as mine:
            assert not mine and run.holder().host == "other"
        time.sleep(0.5)
    other.kill()
    other.wait()
    asked = time.monotonic()
    with run.lock(lambda: time.monotonic() < asked + 30) as mine:
        assert mine and run.holder().pid == os.getpid()


def test_a_stopped_process_that_wakes_up_late_writes_nothing(run):
    other = on_host("other", run.folder.parents[2], HOLD)
    assert other.stdout.readline() == "True\n"
    os.kill(other.pid, signal.SIGSTOP)
    asked = time.monotonic()
    with run.lock(lambda: time.monotonic() < asked + 30) as mine:
        assert mine
        MetricsWriter(run.metrics_file, 0, run.check).write({"step": 1})
        write_atomic(run.checkpoint_file, b"new", run.check)
        os.kill(other.pid, signal.SIGCONT)
        out, _ = other.communicate("\n", timeout=30)
        assert out == "lost\nlost\nlost\n"
        run.check()
        assert run.holder().pid == os.getpid()
    assert run.metrics_file.read_text() == '{"step": 1}\n' and run.checkpoint_file.read_bytes() == b"new"
    assert not [path for path in run.folder.iterdir() if path.name.startswith(".")]


def test_of_several_claimants_of_a_stale_lease_exactly_one_wins(run):
    for _ in range(10):
        Lease(run.lease_file, "cpu").take(alone=False)
        os.utime(run.lease_file, (1, 1))
        claimants = [Lease(run.lease_file, "cpu") for _ in range(6)]
        ready, won = threading.Barrier(len(claimants)), []

        def claim(lease: Lease, ready=ready, won=won) -> None:
            ready.wait()
            if lease.take(alone=False):
                won.append(lease)

        threads = [threading.Thread(target=claim, args=(lease,)) for lease in claimants]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        won[0].check()
        won[0].release()
        assert not list(run.folder.iterdir())


def test_a_successor_that_died_on_the_way_is_succeeded(run):
    old, dead, new, late = (Lease(run.lease_file, "cpu") for _ in range(4))
    assert old.take(alone=False)
    os.utime(run.lease_file, (1, 1))
    claim = old.sibling(old.content, "next")
    claim.write_bytes(dead.content)
    assert not new.take(alone=False), "it may be about to take over"
    with pytest.raises(LeaseLost):
        old.check()
    os.utime(claim, (1, 1))
    assert new.take(alone=False) and not late.take(alone=False)
    new.check()
    assert [path.name for path in run.folder.iterdir()] == ["lease.json"]


def test_staleness_is_by_the_clock_of_the_file_server(run, monkeypatch):
    """Nothing but times of files counts: a host whose clock is a day ahead takes nothing from anyone."""
    assert Lease(run.lease_file, "cpu").take(alone=False)
    leases.skew.cache_clear()
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + 86400)
    assert holder(run.lease_file) and not Lease(run.lease_file, "cpu").take(alone=False)
    leases.skew.cache_clear()


def test_a_run_that_is_removed_while_it_is_waited_for_is_made_anew(run):
    with open(run.folder / "lock", "w") as removed:
        fcntl.flock(removed, fcntl.LOCK_EX)
        waits = iter(range(50))  # without an end it would wait for ever

        def wait():
            if next(waits, None) == 0:
                shutil.rmtree(run.folder)
                fcntl.flock(removed, fcntl.LOCK_UN)
            return next(waits, None) is not None

        with run.lock(wait) as mine:
            assert mine and run.holder().pid == os.getpid()
            run.check()


def test_on_one_host_the_lock_decides_and_what_a_killed_process_was_writing_is_removed(run):
    killed, left = Lease(run.lease_file, "cpu"), run.folder / ".checkpoint.pt.1.tmp"
    assert killed.take(alone=False)
    left.write_bytes(b"half")
    with run.lock(lambda: False) as mine:
        assert mine, "who has the lock need not wait for a lease of this host to go stale"
        with run.lock(lambda: False) as second:
            assert not second
        run.check()
    assert not run.lease_file.exists() and not left.exists()


@pytest.mark.parametrize("put", [os.mkfifo, lambda file: file.write_bytes(b"{")])
def test_a_damaged_lease_goes_stale_like_any_other(put, run):
    put(run.lease_file)
    with run.lock(lambda: False) as mine:
        assert not mine
    os.utime(run.lease_file, (1, 1))
    with run.lock(lambda: False) as mine:
        assert mine and json.loads(run.lease_file.read_bytes())["pid"] == os.getpid()


def test_a_file_server_that_fails_once_ends_no_heartbeat(run, monkeypatch):
    lease, asked = Lease(run.lease_file, "cpu"), list[Path]()
    assert lease.take(alone=False)

    def read(file):
        asked.append(file)
        if len(asked) < 3:
            raise OSError(errno.EIO, "Input/output error")
        lease.ended.set()
        return lease.content

    monkeypatch.setattr(leases, "read_regular", read)
    monkeypatch.setattr(leases, "BEAT", 0.0)
    os.utime(run.lease_file, (1, 1))
    lease.beat()
    assert len(asked) == 3 and run.lease_file.stat().st_mtime > 1, "touched again, as the lease is still ours"


def test_a_file_system_without_hard_links_will_do(run, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    first, second = Lease(run.lease_file, "cpu"), Lease(run.lease_file, "cpu")
    assert first.take(alone=False) and not second.take(alone=False)
    os.utime(run.lease_file, (1, 1))
    assert second.take(alone=False)
    second.check()
    with pytest.raises(LeaseLost):
        first.check()


def test_a_lease_from_before_a_restart_is_not_of_a_process_that_has_its_number_today(run):
    lease = Lease(run.folder / "lease.json", "cpu")
    held = leases.parsed(lease.content)
    assert leases.is_own(held) and leases.alive(held)
    assert not leases.is_own(dataclasses.replace(held, boot="another")), "its number may be anyone's since"
    assert not leases.is_own(dataclasses.replace(held, host="another"))
