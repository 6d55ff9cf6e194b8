"""How fast runs go, from what they log, and how long the rest of a study takes."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ablate.results.tables import parse_lines

TAIL = 16384  # bytes read from the end of a metrics file


class Pace(NamedTuple):
    """Where a running run is, its last losses in words, and its speed (None: not known yet).

    `tokens_per_second` is that of training alone; `steps_per_second` is what is left divided by, evaluations included.
    """

    step: int = 0
    train: str = ""
    val: str = ""
    tokens_per_second: float | None = None
    steps_per_second: float | None = None


class Sample(NamedTuple):
    """FLOPs of a cell that were seen to take some seconds of one process."""

    cell: str
    flops: float
    seconds: float


def read_pace(file: Path, eval_every: int | None = None) -> Pace:
    """The pace of a run from the end of its metrics; passes over torn lines."""
    whole, tail = _tail(file)
    rows = [row for row in tail if isinstance(row.get("step"), int)]
    if not rows:
        return Pace()
    train, val = (_last(rows, name) for name in ("train/loss", "val/loss"))
    return Pace(rows[-1]["step"], train, val, _tokens_per_second(rows), _steps_per_second(rows, eval_every, whole))


def rates(samples: Sequence[Sample]) -> dict[str | None, float]:
    """FLOPs per second of one process by cell, and of all cells together under None."""
    sums: dict[str | None, list[float]] = {}
    for sample in samples:
        for name in (sample.cell, None):
            flops, seconds = sums.get(name, (0.0, 0.0))
            sums[name] = [flops + sample.flops, seconds + sample.seconds]
    return {name: flops / seconds for name, (flops, seconds) in sums.items() if flops > 0 and seconds > 0}


def makespan(running: Sequence[float], queued: Sequence[float]) -> float:
    """Seconds until all runs have ended when each place that becomes free takes the next one of the queue."""
    places = list(running)
    heapq.heapify(places)
    for seconds in queued:
        heapq.heapreplace(places, places[0] + seconds)
    return max(places)


def _last(rows: list[dict[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if name in row]
    return "" if not values else f"{values[-1]:.3f}" if isinstance(values[-1], float | int) else "not finite"


def _tokens_per_second(rows: list[dict[str, Any]]) -> float | None:
    """Of the middle one of the intervals: one that holds an evaluation, or the first steps, does not count."""
    pairs = itertools.pairwise(rows)
    found = [slope for before, after in pairs if (slope := _slope(before, after, "tokens")) is not None]
    return statistics.median_high(found) if found else None


def _steps_per_second(rows: list[dict[str, Any]], eval_every: int | None, whole: bool) -> float | None:
    """From an evaluation to a later one, so that these count; before the second one it is not known.

    Where no evaluation lies ahead, or a long tail holds none: from the first of at least three rows to the last.
    """
    evaluated = [row for row in rows if "val/loss" in row]
    if len(evaluated) > 1:
        return _slope(evaluated[0], evaluated[-1], "step")
    if len(rows) < 3 or (whole and eval_every and evaluated):
        return None
    return _slope(rows[0], rows[-1], "step")


def _slope(before: dict[str, Any], after: dict[str, Any], name: str) -> float | None:
    with contextlib.suppress(KeyError, TypeError, ZeroDivisionError):
        slope = (after[name] - before[name]) / (after["seconds"] - before["seconds"])
        return float(slope) if slope > 0 else None
    return None


def _tail(file: Path) -> tuple[bool, Iterator[dict[str, Any]]]:
    """Whether all of a file was read, and the rows at its end."""
    try:
        with open(file, "rb") as handle:
            cut = handle.seek(0, os.SEEK_END) > TAIL
            handle.seek(-TAIL if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
            lines = handle.read(TAIL).split(b"\n")[cut:]
    except OSError:
        return True, iter(())
    return not cut, iter(parse_lines(lines)[0])
