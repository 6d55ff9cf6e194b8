"""Early ends of a command: signals, after which it exits with 128 + the signal's number, and full disks."""

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEAVE = 5.0  # seconds for a worker to write its checkpoint after a request to stop
LIMIT = 9.0  # seconds after a signal until the command is forced to exit
FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or the user's quota

received: list[int] = []  # the signal that is ending the command, if any


class Terminated(SystemExit):
    """SIGTERM or SIGHUP arrived; exit code 143 if uncaught."""

    def __init__(self, code: int = 128 + signal.SIGTERM) -> None:  # a default, since launchers pickle it
        super().__init__(code)


class DiskFull(SystemExit):
    """The disk has no space left for `file`; exit code 1 if uncaught."""

    def __init__(self, file: object):
        super().__init__(1)
        self.file = Path(str(file))


@contextlib.contextmanager
def refusing_full_disks(file: Path) -> Iterator[None]:
    """Turn the OSError of a full disk into `DiskFull`, which `except Exception` does not catch."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskFull(error.filename or file) from None


@contextlib.contextmanager
def handling_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt or Terminated at the first signal; force the process to exit if that takes too long.

    Works in the main thread only.  Ignored signals (as under nohup) stay ignored, and later signals have no effect.
    Neither has a library that swallows the exception or raises another one.
    """
    before = {n: signal.getsignal(n) for n in SIGNALS}
    if threading.current_thread() is not threading.main_thread() or _raise in before.values():
        yield
        return
    received.clear()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Python runs handlers in the main thread, which may be in a long call; the wake-up pipe is written immediately.
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _raise)
    try:
        yield
        if received:
            raise ending()
    except Exception:
        if received:
            raise ending() from None
        raise
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _raise:
                signal.signal(number, handler or signal.SIG_DFL)
        signal.set_wakeup_fd(woken)
        os.close(writing)


def ignore_signals() -> None:
    """Ignore further signals, so that the exit code does not change."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _raise(number: int, frame: Any) -> None:
    if not received:  # cleanup must not be interrupted
        received.append(number)
        raise ending()


def ending() -> BaseException:
    """The exception for the received signal."""
    return KeyboardInterrupt() if received[0] == signal.SIGINT else Terminated()


def _watch(reading: int) -> None:
    while (got := os.read(reading, 1)) and got[0] not in SIGNALS:
        pass
    if got:
        time.sleep(LIMIT)
        os._exit(128 + (signal.SIGINT if got[0] == signal.SIGINT else signal.SIGTERM))
    os.close(reading)
