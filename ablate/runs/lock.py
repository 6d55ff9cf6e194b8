"""Leases: which process on which host trains a run.

A lease is a file whose modification time is its heartbeat.  One that has not been touched for `STALE` seconds, by the
file server's clock, can be taken over, and exactly one of several contenders succeeds.  The shared file system needs
only hard links or exclusive creation of files.  Nothing here needs torch.
"""

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ablate.config.files import parse_json, read_regular
from ablate.config.typed_json import Record, parse

BEAT = 10.0  # seconds between heartbeats
STALE = 60.0  # seconds without a heartbeat after which a lease is free
POLL = 0.2  # seconds between attempts
LOCKLESS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
LINKLESS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Holder(Record):
    """The content of a lease: which process holds it, and since when; the defaults if it is damaged."""

    host: str = "?"
    pid: int | None = None
    device: str = ""
    boot: str | None = None
    started: float | str = ""
    token: str = ""

    def __bool__(self) -> bool:
        """Whether it names a process; a torn lease does not."""
        return self.pid is not None


class LeaseLost(Exception):
    """Another process has taken over the run, which this one must no longer write to."""


def take(file: IO[str], wait: Callable[[], bool], how: int = fcntl.LOCK_EX) -> bool | None:
    """Lock a file; returns whether that succeeded, or None on a file system without locks."""
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if not wait():
                return False
            time.sleep(POLL)  # a blocking call could not be interrupted
        except OSError as error:
            if error.errno not in LOCKLESS:
                raise
            return None


class Lease:
    """The exclusive right to write a run's files."""

    def __init__(self, file: Path, device: str):
        self.file, self.ended, self.pid = file, threading.Event(), os.getpid()
        whose = Holder(host=socket.gethostname(), pid=self.pid, device=device, boot=boot(), started=time.time())
        self.content = json.dumps(whose.as_json() | {"token": uuid.uuid4().hex}).encode() + b"\n"

    def acquire(self, wait: Callable[[], bool], alone: bool) -> bool:
        """Take the lease, retrying while `wait()` is true; False if another process has it.  `alone`: no other process
        of this host can have it, so a lease of this host was left by a killed process."""
        while True:
            held = holder(self.file)  # found out without writing
            if (held is None or (alone and is_own(held))) and self.take(alone):
                break
            if not wait():
                return False
            time.sleep(POLL)
        threading.Thread(target=self.beat, daemon=True).start()
        return True

    def take(self, alone: bool) -> bool:
        """Take the lease if it is free."""
        temporary = self.sibling(self.content, "tmp")
        # The run may have been removed while this process waited for its lock.
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(self.content)
            return create(temporary, self.file, self.content) or self.succeed(temporary, alone)
        except FileNotFoundError:  # released or taken at this moment
            return False
        finally:
            temporary.unlink(missing_ok=True)

    def succeed(self, temporary: Path, alone: bool) -> bool:
        """Take over from a dead holder: whoever creates the file named after that lease succeeds.  A successor that
        died before finishing is succeeded in the same way, which gives a chain."""
        now, chain, read = temporary.stat().st_mtime, [self.file], [content_of(self.file)]
        while True:
            ours = alone and is_own(parsed(read[-1]))
            if not ours and abs(now - chain[-1].stat().st_mtime) <= STALE:
                return False
            following = self.sibling(read[-1], "next")
            if create(temporary, following, self.content):
                break
            chain.append(following)
            read.append(content_of(following))
        try:
            if [content_of(path) for path in chain] != read:
                return False  # meanwhile another process has become the holder
            os.replace(temporary, self.file)
            for path in chain[1:]:
                path.unlink(missing_ok=True)
            return True
        finally:
            following.unlink(missing_ok=True)

    def sibling(self, content: bytes, ending: str) -> Path:
        """A file next to the lease, named after the hash of a lease's content."""
        return self.file.with_name(f".{self.file.name}.{hashlib.sha256(content).hexdigest()[:16]}.{ending}")

    def check(self) -> None:
        """Raise LeaseLost unless this process still has the lease; a fork of it (made by a component) exits."""
        if os.getpid() != self.pid:
            os._exit(1)
        with contextlib.suppress(OSError):
            if self.is_held():
                return
        self.ended.set()
        raise LeaseLost(f"{self.file.parent} has been taken over by another process")

    def is_held(self) -> bool:
        """Whether this process still has the lease.  Raises OSError if the file cannot be read."""
        return read_regular(self.file) == self.content and not self.sibling(self.content, "next").exists()

    def beat(self) -> None:
        """Touch the lease every `BEAT` seconds until it ends."""
        while not self.ended.wait(BEAT):
            with contextlib.suppress(OSError):  # the file server is unavailable; the next `check` finds out
                if not self.is_held():
                    return
                os.utime(self.file)

    def release(self) -> None:
        """Release the lease if this process still has it."""
        self.ended.set()
        with contextlib.suppress(LeaseLost, OSError):
            self.check()
            self.file.unlink()


def create(source: Path, target: Path, content: bytes) -> bool:
    """Create a file that must not exist yet; atomic with its content where the file system has hard links."""
    try:
        os.link(source, target)
        return True
    except FileExistsError:
        return source.samefile(target)  # a network file system may have retried a link that succeeded
    except OSError as error:
        if error.errno not in LINKLESS:
            raise
    with contextlib.suppress(FileExistsError), open(target, "xb") as file:
        file.write(content)
        return True
    return False


def holder(file: Path) -> Holder | None:
    """The current holder of a lease, or None."""
    try:
        found, touched = parsed(content_of(file)), file.stat().st_mtime
    except OSError:
        return None
    if is_own(found) and not alive(found):
        return None
    return found if abs(time.time() + skew(str(file.parents[2])) - touched) <= STALE else None


def content_of(file: Path) -> bytes:
    """The content of a lease file; empty if it is not a regular file.  Raises FileNotFoundError."""
    try:
        return read_regular(file)
    except FileNotFoundError:
        raise
    except OSError:  # for example a pipe: counts as a damaged lease, which can be taken over once stale
        return b""


def parsed(content: bytes) -> Holder:
    """The holder named in a lease; an empty one if it is damaged."""
    with contextlib.suppress(ValueError):
        return parse(Holder, parse_json(content))
    return Holder()


def is_own(lease: Holder) -> bool:
    """Whether a process of this host, since its last boot, wrote the lease."""
    return (lease.host, lease.boot) == (socket.gethostname(), boot())


def alive(lease: Holder) -> bool:
    """Whether the process named in a lease of this host exists."""
    if lease.pid is None:
        return False
    try:
        os.kill(lease.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it belongs to another user
    return True


@functools.cache
def skew(folder: str) -> float:
    """Seconds by which a folder's file server is ahead of this host's clock; 0 if the folder is not writable."""
    probe = Path(folder) / f".clock.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        probe.touch()
        return probe.stat().st_mtime - time.time()
    except OSError:
        return 0.0
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


@functools.cache
def boot() -> str:
    """An identifier of this host's current boot; empty if the system has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # macOS
        command = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return ""
