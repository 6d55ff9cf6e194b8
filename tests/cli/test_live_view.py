"""The live view: what it says of a sweep on a terminal and elsewhere, from files in any state."""

import io
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from crashing_norm import wait_for
from fake_studies import edit_manifest, fabricate
from rich.console import Console

from ablate.cli import status
from ablate.runs import progress
from ablate.runs.files import write_json
from ablate.runs.folder import MetricsWriter, Run
from ablate.runs.manifest import read_manifest


def make_study(results: Path, labels: tuple[str, ...] = ("ln + mlp", "ln + swiglu"), seeds: int = 2) -> list[str]:
    """A study of runs of 100 steps with nothing trained; returns the paths of its runs."""
    fabricate(results, {"ffn": [*labels]}, range(seeds), status=lambda *_: "missing", study="s")
    edit_manifest(results, "s", lambda told: [cell["config"]["train"].update(steps=100) for cell in told["cells"]])
    return [run.path for run in read_manifest(results, "s").runs]


def log(results: Path, path: str, until: int, **row: Any) -> None:
    """Write a run's metrics, ten steps and a second a row, and the lease of the process that trains it."""
    run = Run(results, path)
    write_json(run.lease_file, {"host": "node7.cluster", "pid": 123, "device": "cpu"})
    writer = MetricsWriter(run)
    for step in range(0, until + 1, 10):
        writer.write({"step": step, "tokens": 640 * step, "seconds": step / 10, "train/loss": 4.5} | row)
    writer.close()


ENDINGS: dict[str, dict[str, Any]] = {
    "done": {"final": {"test/loss": 2.00712}, "steps": 100},
    "diverged": {"final": {}, "steps": 40},
    "failed": {"final": {}, "steps": 40, "error": {"type": "ValueError", "message": "it \x1b[31mbroke\nbadly"}},
}


def end(results: Path, path: str, ending: str = "done") -> None:
    """Write a run's result, after 8.1 s."""
    result = {"status": ending, "seconds": {"total": 8.1}, "error": None, "ended": str(time.time())}
    write_json(Run(results, path).result_file, result | ENDINGS[ending])


def runs_of(results: Path, paths: list[str]) -> status.Runs:
    return status.runs_of(results, read_manifest(results, "s"), paths)


def rendered(runs: status.Runs, width: int, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(status.page(runs, [progress.progress(runs)], height))
    return capture.get().splitlines()


@pytest.fixture
def paths(tmp_path) -> list[str]:
    """The paths of the runs of a study of two configurations and two seeds."""
    return make_study(tmp_path)


def test_each_ending_is_a_line(paths, tmp_path, monkeypatch, capsys):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):  # without a terminal there are no control characters all the same
        monkeypatch.setenv(name, "1")
    with status.follow(tmp_path, "s", paths):
        for path, how in zip(paths, ("done", "diverged", "failed", "done"), strict=True):
            end(tmp_path, path, how)
    assert capsys.readouterr().out.splitlines() == [
        "[1/4] ln + mlp s0 done  test/loss 2.007  8.1 s",
        "[2/4] ln + mlp s1 diverged at step 40  8.1 s",
        "[3/4] ln + swiglu s0 failed: ValueError: it \\x1b[31mbroke badly  8.1 s",
        "[4/4] ln + swiglu s1 done  test/loss 2.007  8.1 s",
    ]


def test_what_was_done_before_is_no_news(paths, tmp_path, capsys):
    end(tmp_path, paths[0])
    with status.follow(tmp_path, "s", paths):
        end(tmp_path, paths[1], "diverged")
    assert capsys.readouterr().out == "[2/4] ln + mlp s1 diverged at step 40  8.1 s\n"


def test_an_earlier_failure_does_not_count_and_a_new_one_is_news(paths, tmp_path, capsys):
    end(tmp_path, paths[1], "failed")
    with status.follow(tmp_path, "s", paths):
        end(tmp_path, paths[1], "failed")
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("[1/4] ln + mlp s1 failed: ")


def test_the_table_shows_what_runs_now(paths, tmp_path):
    log(tmp_path, paths[3], 20)  # killed before its first checkpoint: it is queued
    Run(tmp_path, paths[3]).lease_file.unlink()
    runs = runs_of(tmp_path, paths[1:])
    log(tmp_path, paths[1], 40, **{"val/loss": 3.25})
    runs.poll()
    assert [re.split(r"\s{2,}", line.strip()) for line in rendered(runs, 100)] == [
        ["3 runs: 0 done, 1 running, 2 queued, about 26 s left"],
        ["run", "step", "train/loss", "val/loss", "tokens/s", "left", "where"],
        ["ln + mlp s1", "40/100", "4.500", "3.250", "6,400", "6.0 s", "node7:123 cpu"],
    ]


def test_time_left_is_that_of_the_places_that_runs_have(tmp_path):
    paths = make_study(tmp_path, labels=("a", "b", "c"), seeds=1)
    runs = runs_of(tmp_path, paths)
    assert progress.progress(runs).endswith("time left unknown")
    for path in paths[:2]:
        log(tmp_path, path, 60)  # ten steps a second, four seconds to go
    runs.poll()
    assert progress.progress(runs).endswith("1 queued, about 9.0 s left"), "18 s of two"
    Run(tmp_path, paths[1]).metrics_file.unlink()
    end(tmp_path, paths[1])  # in 8.1 s, the running one takes 10: the last takes their mean
    runs.poll()
    assert progress.progress(runs).endswith("1 running, 1 queued, about 13 s left")


@pytest.mark.parametrize("width", [8, 20, 40, 80])
@pytest.mark.parametrize("height", [3, 10, 24])
def test_the_table_fits_any_terminal(width, height, tmp_path):
    labels = ("a label that is much too long for this [bold]", *map(str, range(20)))
    paths = make_study(tmp_path, labels=labels, seeds=1)
    runs = runs_of(tmp_path, paths)
    for path in paths:
        log(tmp_path, path, 40)
    runs.poll()
    lines = rendered(runs, width, height)
    assert all(len(line) <= width for line in lines)
    if width >= 80:  # where the line above is not wrapped
        hidden = 21 - max(1, height - 3)
        assert len(lines) <= max(height, 4)
        assert lines[2].startswith("a label")
        assert hidden == 0 or f"and {hidden} more running" in lines


DAMAGED = {
    "torn": b'{"step": 40, "tokens": 1, "seconds": 1, "train/loss": 2}\n{"step": 5',
    "no rows": b"\x00\xff\n[1]\n7\n",
    "empty": b"",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_metrics_end_no_view(damage, paths, tmp_path):
    runs = runs_of(tmp_path, paths)
    log(tmp_path, paths[0], 40)
    Run(tmp_path, paths[0]).metrics_file.write_bytes(DAMAGED[damage])
    runs.poll()
    assert "ln + mlp s0" in "\n".join(rendered(runs, 100))


def test_a_reader_that_goes_away_does_not_end_the_sweep(paths, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(status, "TICK", 0.02)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    errors: list[str] = []

    def is_said():
        errors.append(capsys.readouterr().err)
        return "the live view stopped" in "".join(errors)

    with status.follow(tmp_path, "s", paths):
        end(tmp_path, paths[1])
        wait_for(is_said)
    assert "Traceback" not in "".join(errors)
