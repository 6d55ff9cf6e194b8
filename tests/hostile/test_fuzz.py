"""A few inputs of each part of `benchmarks/fuzz.py`: none ends in a traceback, hangs or has anything executed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import fuzz

SLICES = {  # study file 72 was a traceback
    "command_lines": range(8),
    "study_files": range(67, 75),
    "figures_yaml": range(40),
    "stamps": range(40),
}


@pytest.mark.parametrize("part", fuzz.PARTS)
def test_every_input_is_accepted_or_refused_in_lines(part: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    found = fuzz.tried(part, 0, SLICES[part], tmp_path)
    assert found.total() == len(SLICES[part])
    assert set(found) <= {"accepted", "refused"}, capfd.readouterr().out


def fires(*_: object) -> str:
    Path("canary").touch()
    return ""


def never_ends(*_: object) -> str:
    while True:
        pass


@pytest.mark.parametrize(
    ("attempt", "word"),
    [
        (fires, "executed"),
        (never_ends, "hangs"),
        (lambda *_: 1 / 0, "traceback"),
        (lambda *_: sys.exit(1), "ended by itself"),
        (lambda *_: f"no {fuzz.SECRET}", "secret told"),
        (lambda *_: "\x1b[2J", "refused oddly"),
        (lambda *_: "no such key", "refused"),
    ],
)
def test_what_no_input_may_do_is_seen(
    attempt: Callable[..., str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    monkeypatch.setitem(fuzz.PARTS, "odd", (lambda: attempt, 1))
    assert fuzz.tried("odd", 0, range(1), tmp_path) == {word: 1}
