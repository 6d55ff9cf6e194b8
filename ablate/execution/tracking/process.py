"""The process that mirrors the runs of a sweep to a tracking service while they are trained.

Training never calls it, so nothing that it does can block or lose a step.  It goes on until its standard input ends:
the sweep's process holds the other end, so it ends in whatever way the sweep does.
"""

import argparse
import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ablate.execution.fork import program
from ablate.execution.signals import received
from ablate.execution.tracking.mirror import Mirror, one_line, say
from ablate.formatting.streams import prepare

POLL = 0.25, 2.0  # seconds between polls: while runs end, and at most
GRACE = 45.0  # seconds that are left to the mirror when its sweep has ended
DRAIN = 60.0  # seconds that the process has, once training is over, to bring over what is left
HURRY = 1.0  # seconds that it has when the command was interrupted


@contextlib.contextmanager
def mirrored(results: Path, study: str, user: Sequence[str], remark: Callable[[str], None]) -> Iterator[None]:
    """Mirror a study while the context lasts; training never waits for it.  Its messages become remarks at the end."""
    command = [*program(__name__), study, str(results), *user]
    output = tempfile.TemporaryFile()  # noqa: SIM115 (its messages must not fall into the live view)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=output, start_new_session=True)
    try:
        yield
    finally:
        assert process.stdin
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(HURRY if received else DRAIN)
        except BaseException as error:  # a request to stop, too
            process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            remark("tracking is not done yet; bring the rest over with: ablate sync")
        output.seek(0)
        for line in output.read().decode(errors="replace").splitlines():
            remark(line.removeprefix("ablate: "))
        output.close()


def follow(mirror: Mirror) -> None:
    """Replay what appears on disk until standard input ends, then what is left, for at most `GRACE` seconds."""
    ended, pause, taken = threading.Event(), POLL[0], False

    def wait_for_end() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        ended.set()
        time.sleep(GRACE)
        say(f"tracking is not finished; `ablate sync {mirror.study}` mirrors the rest")
        os._exit(0)  # whatever the tracking service waits for, its handlers at exit included

    threading.Thread(target=wait_for_end, daemon=True).start()
    with mirror.lock() as lock:
        while not ended.wait(pause):
            taken = taken or mirror.take(lock, wait=False)
            pause = POLL[0] if taken and mirror.replay() else min(1.5 * pause, POLL[1])
        if taken or mirror.take(lock, wait=True):
            mirror.replay()
        mirror.close()


def main() -> None:
    """Mirror a study until standard input ends."""
    parser = argparse.ArgumentParser(description="Mirror a study while it is trained")
    parser.add_argument("study")
    parser.add_argument("results", type=Path)
    parser.add_argument("user", nargs="*", help="packages that a tracking service may come from")
    given = parser.parse_args()
    prepare()
    os.nice(5)  # training goes first
    with contextlib.suppress(PermissionError):
        os.setsid()  # Ctrl-C is for the sweep, which ends this by ending; and without a terminal nothing can prompt
    try:
        follow(Mirror(given.results, given.study, given.user))
    except OSError as error:
        say(f"tracking stopped ({one_line(error)})")
