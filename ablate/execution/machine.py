"""A lock on this machine: sweeps share it, but one whose runs are timed holds it alone."""

import contextlib
import fcntl
import socket
import sys
from collections.abc import Iterator

from ablate.data.corpus import cache_folder
from ablate.results.atomic import no_link
from ablate.results.lease import take

WAITING = {
    True: "what is to be timed waits until other sweeps on this machine have ended",
    False: "runs that are timed have this machine for themselves; waiting until they have ended",
}


@contextlib.contextmanager
def machine(alone: bool) -> Iterator[None]:
    """Hold this machine, among sweeps of this account, alone or with others; prints that it has to wait.

    The lock keeps off no other programs.  Where no lock can be taken, a sweep that is to be alone prints that.
    """
    how, path = fcntl.LOCK_EX if alone else fcntl.LOCK_SH, cache_folder() / f"machine-{socket.gethostname()}.lock"
    with contextlib.ExitStack() as held:
        taken = None
        with contextlib.suppress(OSError):  # of another account's file, in a cache that several share
            file = held.enter_context(open(path, "a", opener=no_link))
            taken = take(file, lambda: False, how)
            if taken is False:
                tell(WAITING[alone])
                take(file, lambda: True, how)
        if taken is None and alone:
            tell(f"{path} cannot be locked, so other sweeps are not kept off; see that nothing else runs")
        yield


def tell(message: str) -> None:
    """Print a line about what is waited for."""
    print(f"ablate: {message}", file=sys.stderr, flush=True)
