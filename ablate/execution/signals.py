"""Early ends of a command: signals, after which it exits with 130 (SIGINT) or 143 (SIGTERM, SIGHUP), and full disks."""

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
CHECKPOINT_SECONDS = 5.0  # for a worker to write its checkpoint after a request to stop
FORCED_EXIT_SECONDS = 9.0  # after a signal, until the command is forced to exit
FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)  # the disk, or the user's quota

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
def raising_disk_full(file: Path) -> Iterator[None]:
    """Re-raise an OSError that means a full disk or quota as DiskFull, a SystemExit, so that no `except Exception`
    swallows it; it names `file` where the error names none."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_ERRNOS:
            raise
        raise DiskFull(error.filename or file) from None


@contextlib.contextmanager
def handling_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt or Terminated at the first signal; force the process to exit if that takes too long.

    Works in the main thread only.  Ignored signals (as under nohup) stay ignored, and later signals have no effect.
    Neither has a library that swallows the exception or raises another one.
    """
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or raise_ending in handlers.values():
        yield
        return
    received.clear()
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    # Python runs handlers in the main thread, which may be in a long call; the wake-up pipe is written immediately.
    wakeup = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    threading.Thread(target=exit_if_not_ended, args=(read_fd,), daemon=True).start()
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, raise_ending)
    try:
        yield
        if received:
            raise ending()
    except Exception:
        if received:
            raise ending() from None
        raise
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is raise_ending:
                signal.signal(number, handler or signal.SIG_DFL)
        signal.set_wakeup_fd(wakeup)
        os.close(write_fd)


def ignore_signals() -> None:
    """Ignore further signals, so that the exit code does not change."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def raise_ending(number: int, frame: Any) -> None:
    """The handler of the first signal; cleanup must not be interrupted by another one."""
    if not received:
        received.append(number)
        raise ending()


def ending() -> BaseException:
    """The exception for the received signal."""
    return KeyboardInterrupt() if received[0] == signal.SIGINT else Terminated()


def exit_if_not_ended(read_fd: int) -> None:
    """Thread body: after a signal on the wake-up pipe, give the process some seconds to end, then exit without cleanup.

    Returns once the writing end of the pipe is closed, unless a signal came first.
    """
    while True:
        data = os.read(read_fd, 1)
        if not data:
            os.close(read_fd)
            return
        if data[0] in SIGNALS:
            time.sleep(FORCED_EXIT_SECONDS)
            is_interrupt = data[0] == signal.SIGINT
            os._exit(128 + (signal.SIGINT if is_interrupt else signal.SIGTERM))  # SIGHUP as SIGTERM: see Terminated
