"""What ends a command before its time: a signal, after which it exits with 128 + its number, or a full disk."""

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
LEAVE = 5.0  # seconds that a worker has to write its checkpoint after a request to stop
LIMIT = 9.0  # seconds after a signal in which the command ends, whatever goes on in it
FULL = (errno.ENOSPC, errno.EDQUOT)

received: list[int] = []  # signals that the command is ending for


class Terminated(SystemExit):
    """SIGTERM arrived, or SIGHUP; uncaught it is exit code 143."""

    def __init__(self, code: int = 128 + signal.SIGTERM) -> None:  # a launcher's processes hand it on, pickled
        super().__init__(code)


class DiskFull(SystemExit):
    """There is no space left for `file`; uncaught it is exit code 1."""

    def __init__(self, file: object):
        super().__init__(1)
        self.file = Path(str(file))


@contextlib.contextmanager
def refusing_full_disks(file: Path) -> Iterator[None]:
    """Turn the error of a full disk into `DiskFull`, which no handler of errors takes for a failure of a run."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskFull(error.filename or file) from None


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk, or a user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in FULL


@contextlib.contextmanager
def heeding_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt or Terminated at the first signal, and end the process should it not end by itself.

    For the main thread.  A signal that is ignored (as under nohup) stays so; further ones change nothing.  Nor does
    what a library makes of being interrupted in its midst, an error of its own or nothing at all.
    """
    before = {n: signal.getsignal(n) for n in SIGNALS}
    if threading.current_thread() is not threading.main_thread() or _raise in before.values():
        yield
        return
    received.clear()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # The handler waits for the main thread, which may be in a long call; this pipe is written to at once.
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
    """From here on the exit code stands."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _raise(number: int, frame: Any) -> None:
    if not received:  # what is being put away must not be interrupted
        received.append(number)
        raise ending()


def ending() -> BaseException:
    """What ends the command, by the signal that was received."""
    return KeyboardInterrupt() if received[0] == signal.SIGINT else Terminated()


def _watch(reading: int) -> None:
    while (got := os.read(reading, 1)) and got[0] not in SIGNALS:
        pass
    if got:
        time.sleep(LIMIT)
        os._exit(128 + (signal.SIGINT if got[0] == signal.SIGINT else signal.SIGTERM))
    os.close(reading)
