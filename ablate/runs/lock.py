"""The lock of a run: which process on which host trains it, and may write its files.

That process holds an exclusive flock on the run's file `lock`, and has written `lease.json` with a random token, which
it reads again before every write.  Where flock excludes only processes of one host, and where a lock was lost, the
token shows that another process has taken over the run.  The modification time of `lease.json` is a heartbeat, from
which others see what is trained without writing.  Nothing here needs torch.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from ablate.config.files import parse_json, read_regular
from ablate.config.typed_json import Record, parse
from ablate.runs.files import no_link, write_atomic

BEAT = 10.0  # seconds between heartbeats
STALE = 60.0  # seconds without a heartbeat after which a process of another host has lost its run
POLL = 0.2  # seconds between attempts
LOCKLESS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
MOUNT = "its file system has no file locks; write another results_dir, or mount it with them (Lustre: -o flock)"


class Holder(Record):
    """The content of a lease: the process that trains the run, and its token."""

    host: str
    pid: int
    device: str = ""
    boot: str | None = None
    token: str = ""


class LeaseLost(Exception):
    """Another process has taken over the run, which this one must no longer write to."""


def take(file: IO[str], wait: Callable[[], bool], how: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file, retrying while `wait()` is true; False if another process has the lock.  Raises OSError on a
    file system without locks."""
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if not wait():
                return False
        except OSError as error:
            if error.errno in LOCKLESS:
                raise OSError(error.errno, MOUNT, file.name) from None
            raise
        time.sleep(POLL)  # a blocking call could not be interrupted


@contextlib.contextmanager
def locked(path: Path, wait: Callable[[], bool]) -> Iterator[IO[str] | None]:
    """The file at a path, created and locked; None if another process has its lock."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", opener=no_link) as file:
            if not take(file, wait):
                yield None
                return
            if path.exists():
                try:
                    yield file
                finally:  # also for processes that were forked meanwhile, which have the file open
                    fcntl.flock(file, fcntl.LOCK_UN)
                return
        # Whoever had the lock has removed the folder.


class Lease:
    """The right to write a run's files."""

    def __init__(self, file: Path, device: str):
        self.file = file
        self.pid = os.getpid()
        self.released = threading.Event()
        holder = Holder(host=socket.gethostname(), pid=self.pid, device=device, boot=boot(), token=uuid.uuid4().hex)
        self.content = json.dumps(holder.as_json()).encode() + b"\n"

    def acquire(self, lock: IO[str], wait: Callable[[], bool]) -> bool:
        """Write the lease of a run whose lock this process has; False if another host has the run, and still has when
        `wait()` is false."""
        while is_held_elsewhere(self.file, lock):
            if not wait():
                return False
            time.sleep(POLL)
        write_atomic(self.file, self.content)
        threading.Thread(target=self.beat, daemon=True).start()
        return True

    def check(self) -> None:
        """Raise LeaseLost unless this process still has the run; a fork of it, made by a component, exits."""
        if os.getpid() != self.pid:
            os._exit(1)
        if not self.is_held():
            self.released.set()
            raise LeaseLost(f"{self.file.parent} has been taken over by another process")

    def is_held(self) -> bool:
        """Whether the lease can be read and still has this process's token."""
        with contextlib.suppress(OSError):
            return read_regular(self.file) == self.content
        return False

    def beat(self) -> None:
        """Touch the lease every `BEAT` seconds until it is released."""
        while not self.released.wait(BEAT):
            with contextlib.suppress(OSError):  # the file server is unavailable
                if self.is_held():
                    os.utime(self.file)

    def release(self) -> None:
        """Remove the lease if this process still has the run."""
        self.released.set()
        with contextlib.suppress(LeaseLost, OSError):
            self.check()
            self.file.unlink()


def is_held_elsewhere(lease: Path, lock: IO[str]) -> bool:
    """Whether a process of another host trains a run whose lock this process has, as can be where flock excludes only
    processes of one host.  The time is the file server's."""
    os.utime(lock.fileno())
    now = os.fstat(lock.fileno()).st_mtime
    found = holder(lease, now)
    return found is not None and not is_own(found)


def holder(lease: Path, now: float | None = None) -> Holder | None:
    """The process that trains a run, by its lease; None if there is none, or no heartbeat within `STALE` seconds.
    Writes nothing."""
    found = read_lease(lease)
    if found is None or (is_own(found) and not is_running(found.pid)):
        return None
    with contextlib.suppress(OSError):
        silence = abs((now or time.time()) - lease.stat().st_mtime)
        if silence <= STALE:
            return found
    return None


def read_lease(file: Path) -> Holder | None:
    """The content of a lease; None if there is none, or a damaged one, which names no process."""
    with contextlib.suppress(OSError, ValueError):
        return parse(Holder, parse_json(read_regular(file)))
    return None


def is_own(holder: Holder) -> bool:
    """Whether a process of this host, since its last boot, wrote a lease."""
    return (holder.host, holder.boot) == (socket.gethostname(), boot())


def is_running(pid: int) -> bool:
    """Whether a process of this host exists."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it belongs to another user
    return True


@functools.cache
def boot() -> str:
    """An identifier of this host's current boot; empty if the system has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
