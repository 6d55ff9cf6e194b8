"""What a plan that takes long says meanwhile, on standard error alone."""

from ablate.cli import plan_progress
from ablate.cli.main import command
from ablate.planning.reporting import report


def test_a_short_plan_says_nothing(capsys):
    with plan_progress.showing_progress():
        report("checking configuration 1 of 2")
    assert capsys.readouterr() == ("", "")


def test_a_long_plan_says_what_it_does(small, monkeypatch, capsys):
    monkeypatch.setattr(plan_progress, "PATIENCE", 0.0)
    assert command(["norm=ln,rms", *small, "dry_run=true"]) == 0
    lines = capsys.readouterr().err.splitlines()
    for text in ("checking configuration 2 of 2", "trying configuration 2 of 2", "timing a few steps"):
        assert f"ablate: planning: {text}" in lines
