"""Whose this machine is: that of sweeps side by side, or of one whose runs are timed, which has it for itself."""

from __future__ import annotations

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
    """Hold this machine, among sweeps of one's own account, alone or beside others; says so where it has to wait.

    Other programs' work is nothing that a lock could keep off.
    """
    how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with open(cache_folder() / f"machine-{socket.gethostname()}.lock", "a", opener=no_link) as file:
        if take(file, lambda: False, how) is False:
            print(f"ablate: {WAITING[alone]}", file=sys.stderr, flush=True)
            take(file, lambda: True, how)
        yield
