"""A unit's runs in this process, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ablate.execution.worker import carry_out
from ablate.results.unit_file import read_unit
from ablate.training.devices import settle


def run_unit(
    results: Path, study: str, unit: str, wait: bool, stop: Callable[[], bool], user: Sequence[str] = ()
) -> list[str]:
    """How each run of a unit ended: done, diverged, failed, interrupted, or busy where another process trains it."""
    settle()
    return [carry_out(results, run, user, wait, stop) for run in read_unit(results, study, unit)]
