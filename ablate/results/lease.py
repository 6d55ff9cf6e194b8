"""Leases: which process of which host trains a run.

A lease is a file whose modification time is its heartbeat.  One that has not been touched for `STALE` seconds, by the
clock of the file server alone, is taken over, by exactly one of those who try.  Hosts that share a folder need no more
in common than hard links, or files that are created once.  Nothing here needs torch.
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

from ablate.config.files import read_regular
from ablate.config.typed_json import Record, parse, record

BEAT = 10.0  # seconds between two heartbeats
STALE = 60.0  # seconds without a heartbeat after which a lease is free
POLL = 0.2  # seconds between two askings
LOCKLESS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
LINKLESS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@record
class Holder(Record):
    """What a lease says: which process holds it, since when; nothing where it is damaged."""

    host: str = "?"
    pid: int | None = None
    device: str = ""
    boot: str | None = None
    started: float | str = ""
    token: str = ""

    def __bool__(self) -> bool:
        """Whether it names a process: a lease that is torn shows none."""
        return self.pid is not None


class Lost(Exception):
    """Another process has taken a run over; it must not be written to any more."""


def take(file: IO[str], wait: Callable[[], bool], how: int = fcntl.LOCK_EX) -> bool | None:
    """Lock a file: whether that succeeded, or None on a file system without locks."""
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if not wait():
                return False
            time.sleep(POLL)  # a blocking call could not be stopped
        except OSError as error:
            if error.errno not in LOCKLESS:
                raise
            return None


class Lease:
    """The right to write a run's files, while it is held."""

    def __init__(self, file: Path, device: str):
        self.file, self.ended, self.pid = file, threading.Event(), os.getpid()
        whose = Holder(host=socket.gethostname(), pid=self.pid, device=device, boot=boot(), started=time.time())
        self.content = json.dumps(whose.as_json() | {"token": uuid.uuid4().hex}).encode() + b"\n"

    def acquire(self, wait: Callable[[], bool], alone: bool) -> bool:
        """Take the lease, asked for again and again while `wait()`; False when another process has it.

        `alone` says that no other process of this host can have it: a lease of ours is left from one that was killed.
        """
        while self.is_held(alone) or not self.take(alone):
            if not wait():
                return False
            time.sleep(POLL)
        threading.Thread(target=self.beat, daemon=True).start()
        return True

    def is_held(self, alone: bool) -> bool:
        """Whether another process has the lease, at a glance: nothing is written to find out."""
        held = holder(self.file)
        return held is not None and not (alone and is_ours(held))

    def take(self, alone: bool) -> bool:
        """Take the lease if it is free."""
        temporary = self.sibling(self.content, "tmp")
        # The run may have been removed while its lock was waited for.
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(self.content)
            return create(temporary, self.file, self.content) or self.succeed(temporary, alone)
        except FileNotFoundError:  # let go of, or taken, at this moment
            return False
        finally:
            temporary.unlink(missing_ok=True)

    def succeed(self, temporary: Path, alone: bool) -> bool:
        """Take over from a holder that is dead; the one that makes the file named after that lease does so.

        A successor that died on the way is succeeded likewise, so there is a chain of them.
        """
        now, chain, read = temporary.stat().st_mtime, [self.file], [content_of(self.file)]
        while True:
            ours = alone and is_ours(parsed(read[-1]))
            if not ours and abs(now - chain[-1].stat().st_mtime) <= STALE:
                return False
            following = self.sibling(read[-1], "next")
            if create(temporary, following, self.content):
                break
            chain.append(following)
            read.append(content_of(following))
        try:
            if [content_of(path) for path in chain] != read:
                return False  # another has become the holder since
            os.replace(temporary, self.file)
            for path in chain[1:]:
                path.unlink(missing_ok=True)
            return True
        finally:
            following.unlink(missing_ok=True)

    def sibling(self, content: bytes, ending: str) -> Path:
        """A file beside the lease that is named after what a lease says."""
        return self.file.with_name(f".{self.file.name}.{hashlib.sha256(content).hexdigest()[:16]}.{ending}")

    def check(self) -> None:
        """Raise Lost unless the lease is still ours; end a copy of its process, which a component made by forking."""
        if os.getpid() != self.pid:
            os._exit(1)
        try:
            mine = content_of(self.file) == self.content and not self.sibling(self.content, "next").exists()
        except FileNotFoundError:
            mine = False
        if not mine:
            self.ended.set()
            raise Lost(f"{self.file.parent} has been taken over by another process")

    def beat(self) -> None:
        """Show every few seconds that the holder lives, until the lease ends."""
        while not self.ended.wait(BEAT):
            try:
                self.check()
                os.utime(self.file)
            except Lost:
                return
            except OSError:
                pass  # the file server is away; whoever writes next learns what became of the lease

    def release(self) -> None:
        """Let go of the lease, if it is still ours."""
        self.ended.set()
        with contextlib.suppress(Lost, OSError):
            self.check()
            self.file.unlink()


def create(source: Path, target: Path, content: bytes) -> bool:
    """Make a file that must not be there yet, whole from its first moment where the file system has hard links."""
    try:
        os.link(source, target)
        return True
    except FileExistsError:
        return source.samefile(target)  # a server whose answer was lost is asked again
    except OSError as error:
        if error.errno not in LINKLESS:
            raise
    try:
        with open(target, "xb") as file:
            file.write(content)
        return True
    except FileExistsError:
        return False


def holder(file: Path) -> Holder | None:
    """Who holds a lease, or None where nobody does."""
    try:
        found, touched = parsed(content_of(file)), file.stat().st_mtime
    except OSError:
        return None
    if is_ours(found) and not alive(found):
        return None
    return found if abs(time.time() + skew(str(file.parents[2])) - touched) <= STALE else None


def content_of(file: Path) -> bytes:
    """What a lease file holds; nothing where it is no file.  Raises FileNotFoundError."""
    try:
        return read_regular(file)
    except FileNotFoundError:
        raise
    except OSError:  # a pipe say, in which nobody writes: a damaged lease, which is taken over in time
        return b""


def parsed(content: bytes) -> Holder:
    """What a lease says; nothing where it is damaged."""
    try:
        return parse(Holder, json.loads(content))
    except ValueError:
        return Holder()


def is_ours(lease: Holder) -> bool:
    """Whether a process of this host, since it was started, wrote a lease."""
    return (lease.host, lease.boot) == (socket.gethostname(), boot())


def alive(lease: Holder) -> bool:
    """Whether the process that a lease of this host names is there."""
    if lease.pid is None:
        return False
    try:
        os.kill(lease.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it is another user's
    return True


@functools.cache
def skew(folder: str) -> float:
    """Seconds that the file server of a folder is ahead of this host's clock; 0 where nothing can be written."""
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
    """An identifier of this start of this host; empty where the system does not say."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # macOS
        asked = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return ""
