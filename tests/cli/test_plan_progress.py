"""What a plan that takes long shows meanwhile, on standard error alone."""

import io
import sys

import pytest

from ablate.cli import plan_progress
from ablate.cli.main import command
from ablate.planning.reporting import report, reported


def standard_error(patch: pytest.MonkeyPatch, is_terminal: bool) -> io.StringIO:
    """Standard error, of a plan whose every moment is long."""
    stream = io.StringIO()
    patch.setattr(stream, "isatty", lambda: is_terminal)
    patch.setattr(sys, "stderr", stream)
    patch.setattr(plan_progress, "PATIENCE", 0.0)
    patch.setenv("TERM", "xterm")
    return stream


def test_a_short_plan_shows_nothing(capsys):
    with plan_progress.showing_progress():
        report("checking configuration 1 of 2")
    assert capsys.readouterr() == ("", "")


def test_a_long_plan_says_it_once_where_lines_cannot_be_overwritten(monkeypatch):
    errors = standard_error(monkeypatch, is_terminal=False)
    with plan_progress.showing_progress():
        assert [*reported(["a", "b"], "checking")] == ["a", "b"]
    assert errors.getvalue() == "ablate: planning takes a while: checking configuration 1 of 2\n"


def test_on_a_terminal_the_line_is_overwritten_and_goes_away(monkeypatch):
    errors = standard_error(monkeypatch, is_terminal=True)
    with pytest.raises(ValueError), plan_progress.showing_progress():
        for _ in reported(["a", "b"], "checking"):
            pass
        raise ValueError("a mistake in the command")
    parts = errors.getvalue().split(plan_progress.ERASE)
    assert parts == ["", "checking configuration 1 of 2", "checking configuration 2 of 2", ""]


def test_a_plan_reports_its_configurations(small, monkeypatch):
    errors = standard_error(monkeypatch, is_terminal=True)
    assert command(["norm=ln,rms", *small, "dry_run=true"]) == 0
    texts = errors.getvalue().split(plan_progress.ERASE)
    for text in ("checking configuration 2 of 2", "trying configuration 2 of 2", "timing a few steps"):
        assert text in texts
