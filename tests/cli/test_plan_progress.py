"""What a plan that takes long shows meanwhile, on standard error alone."""

import io
import sys

import pytest

from ablate.cli import plan_progress
from ablate.cli.main import command
from ablate.planning.reporting import report, reported


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error as a file, of a plan whose every moment is long."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(plan_progress, "PATIENCE", 0.0)
    return stream


@pytest.fixture
def terminal(errors: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The same as a terminal."""
    monkeypatch.setattr(errors, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    return errors


def test_a_short_plan_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with plan_progress.showing_progress():
        report("checking configuration 1 of 2")
    assert capsys.readouterr() == ("", "")


def test_a_long_plan_says_it_once_where_lines_cannot_be_overwritten(errors: io.StringIO) -> None:
    with plan_progress.showing_progress():
        assert [*reported(["a", "b"], "checking")] == ["a", "b"]
    assert errors.getvalue() == "ablate: planning takes a while: checking configuration 1 of 2\n"


def test_on_a_terminal_the_line_is_overwritten_and_goes_away(terminal: io.StringIO) -> None:
    with pytest.raises(ValueError), plan_progress.showing_progress():
        for _ in reported(["a", "b"], "checking"):
            pass
        raise ValueError("a mistake in the command")
    parts = terminal.getvalue().split(plan_progress.ERASE)
    assert parts == ["", "checking configuration 1 of 2", "checking configuration 2 of 2", ""]


def test_a_plan_reports_its_configurations(terminal: io.StringIO, small: list[str]) -> None:
    assert command(["norm=ln,rms", *small, "dry_run=true"]) == 0
    texts = terminal.getvalue().split(plan_progress.ERASE)
    assert {"checking configuration 2 of 2", "trying configuration 2 of 2", "timing a few steps"} <= {*texts}
