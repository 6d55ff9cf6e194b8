"""The makespan of jobs: how long they take side by side.  Nothing here needs torch."""

import heapq
from collections.abc import Iterable


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Seconds until the last job has ended, where each is begun, in order, by the first worker that is free."""
    ends = [0.0] * workers
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)
