"""The live view: what it says of a sweep on a terminal and elsewhere, from files in any state."""

import contextlib
import fcntl
import io
import itertools
import json
import os
import pty
import re
import struct
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import read_terminal
from crashing_norm import wait_for
from fake_studies import edit_json, edit_manifest, fabricate
from rich.console import Console, Group

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


def end(results: Path, path: str, status: str = "done") -> None:
    error = {"type": "ValueError", "message": "it \x1b[31mbroke\nbadly"} if status == "failed" else None
    final = {"test/loss": 2.00712} if status == "done" else {}
    steps = 100 if status == "done" else 40
    result = {"status": status, "final": final, "steps": steps, "seconds": {"total": 8.1}, "error": error}
    write_json(Run(results, path).result_file, result | {"ended": str(time.time())})


def runs_of(results: Path, paths: list[str]) -> status.Runs:
    return status.runs_of(results, read_manifest(results, "s"), paths)


def rendered(runs: status.Runs, width: int, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(Group(status.table(runs, width, height), status.counts(runs)))
    return capture.get().splitlines()


def test_each_ending_is_a_line(tmp_path, monkeypatch, capsys):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):  # without a terminal there are no control characters all the same
        monkeypatch.setenv(name, "1")
    paths = make_study(tmp_path)
    with status.follow(tmp_path, "s", paths):
        for path, how in zip(paths, ("done", "diverged", "failed", "done"), strict=True):
            end(tmp_path, path, how)
    assert capsys.readouterr().out.splitlines() == [
        "[1/4] ln + mlp s0 done  test/loss 2.007  8.1 s",
        "[2/4] ln + mlp s1 diverged at step 40  8.1 s",
        "[3/4] ln + swiglu s0 failed: ValueError: it  [31mbroke badly  8.1 s",
        "[4/4] ln + swiglu s1 done  test/loss 2.007  8.1 s",
    ]


def test_a_quiet_sweep_shows_now_and_then_that_it_is_alive(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(status, "TICK", 0.02)
    monkeypatch.setattr(status, "HEARTBEAT", 0.1)
    shown: list[str] = []
    with status.follow(tmp_path, "s", make_study(tmp_path)):
        wait_for(lambda: shown.extend(capsys.readouterr().out.splitlines()) or len(shown) >= 2)
    assert set(shown) == {"0/4 ended, 0 diverged, 0 failed, 0 running, 4 queued"}


def test_what_was_done_before_counts_and_an_earlier_failure_does_not(tmp_path: Path) -> None:
    paths = make_study(tmp_path)
    end(tmp_path, paths[0])
    end(tmp_path, paths[1], "failed")
    runs = runs_of(tmp_path, paths)
    assert status.endings(runs) == [] and status.counts(runs).startswith("1/4 ended, 0 diverged, 0 failed")
    end(tmp_path, paths[1], "failed")
    assert [status for status, _ in status.endings(runs)] == ["failed"]
    assert status.counts(runs).startswith("2/4 ended, 0 diverged, 1 failed")
    end(tmp_path, paths[2])
    edit_json(Run(tmp_path, paths[2]).result_file, lambda result: result.update(resumed=2))
    [(_, line)] = status.endings(runs)
    assert line.endswith("8.1 s  resumed")


def test_the_table_shows_what_runs_now(tmp_path: Path) -> None:
    paths = make_study(tmp_path)
    log(tmp_path, paths[3], 20)  # killed before its first checkpoint: it is queued
    Run(tmp_path, paths[3]).lease_file.unlink()
    runs = runs_of(tmp_path, paths[1:])
    log(tmp_path, paths[1], 40, **{"val/loss": 3.25})
    status.endings(runs)
    assert [re.split(r"\s{2,}", line.strip()) for line in rendered(runs, 100)] == [
        ["run", "step", "train/loss", "val/loss", "tokens/s", "left", "where"],
        ["ln + mlp s1", "40/100", "4.500", "3.250", "6,400", "6.0 s", "node7:123 cpu"],
        ["0/3 ended, 0 diverged, 0 failed, 1 running, 2 queued, about 26 s left"],
    ]


def test_time_left_is_that_of_the_places_that_runs_have(tmp_path: Path) -> None:
    paths = make_study(tmp_path, labels=("a", "b", "c"), seeds=1)
    runs = runs_of(tmp_path, paths)
    assert "left" not in status.counts(runs)
    for path in paths[:2]:
        log(tmp_path, path, 60)  # ten steps a second, four seconds to go
    status.endings(runs)
    assert status.counts(runs).endswith("1 queued, about 14 s left"), "the third one takes the first free place"
    Run(tmp_path, paths[1]).metrics_file.unlink()
    end(tmp_path, paths[1], "done")  # in 8.1 s, the running one takes 10: the last takes their mean
    status.endings(runs)
    assert status.counts(runs).endswith("1 running, 1 queued, about 13 s left")


def test_time_left_of_runs_that_nobody_trains_is_a_sum(tmp_path: Path) -> None:
    paths = make_study(tmp_path, labels=("a", "b", "c"), seeds=1)
    end(tmp_path, paths[0], "done")  # in 8.1 s
    log(tmp_path, paths[1], 50)  # ten steps a second: 5 s to go; the third takes 9.05 s
    Run(tmp_path, paths[1]).checkpoint_file.write_text("")
    Run(tmp_path, paths[1]).lease_file.unlink()
    counts = status.counts(runs_of(tmp_path, paths))
    assert counts == "1/3 ended, 0 diverged, 0 failed, 0 running, 1 interrupted, 1 queued, 14 s of computing left"


def test_a_pace_leaves_out_the_first_interval_and_counts_evaluations(tmp_path: Path) -> None:
    """A step takes 0.1 s but for the first ones, an evaluation every 40 steps 2 s."""
    rows, file, seconds = [], tmp_path / "metrics.jsonl", 9.0
    for step in range(0, 161, 10):
        seconds += 0.0 if step == 0 else 5.0 if step == 10 else 1.0
        seconds += 2.0 if step and step % 40 == 0 else 0.0
        rows.append({"step": step, "tokens": 64 * step, "seconds": seconds})
    found = []
    for count in range(1, len(rows) + 1):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
        found.append(progress.read_pace(file))
    assert [one.steps_per_second for one in found[:2]] == [None] * 2
    assert [found[3].steps_per_second, found[16].steps_per_second] == pytest.approx([10, 150 / 23])
    assert progress.read_pace(tmp_path / "none") == progress.Pace()
    assert found[2].tokens_per_second == pytest.approx(640) and found[16].tokens_per_second == pytest.approx(640)


def test_the_table_fits_any_terminal(tmp_path: Path) -> None:
    labels = ("a label that is much too long for this [bold]", *map(str, range(20)))
    paths = make_study(tmp_path, labels=labels, seeds=1)
    runs = runs_of(tmp_path, paths)
    for path in paths:
        log(tmp_path, path, 40)
    status.endings(runs)
    for width, height in itertools.product((8, 20, 40, 60, 80), (3, 10, 24)):
        lines = rendered(runs, width, height)
        assert all(len(line) <= width for line in lines)
        if width >= 40:
            assert len(lines) <= max(height, 6) and lines[1].startswith("a label")
            assert f"and {21 - max(1, height - 6)} more running" in lines


def test_files_in_any_state_are_passed_over(tmp_path: Path) -> None:
    paths = make_study(tmp_path)
    runs = runs_of(tmp_path, paths)
    for path in paths:
        log(tmp_path, path, 40, **{"train/loss": None})
    files = [Run(tmp_path, path).metrics_file for path in paths]
    files[0].write_bytes(files[0].read_bytes() + b'{"step": 5')
    files[1].write_bytes(b"\x00\xff\n[1]\n7\n")
    files[2].unlink()
    Run(tmp_path, paths[0]).result_file.write_text("{")
    assert status.endings(runs) == []
    assert "40/100  not finite" in "\n".join(rendered(runs, 100))
    files[0].unlink()
    assert status.endings(runs) == []


def interrupted(results: Path) -> None:
    """A sweep whose first run goes on for a while, on the terminal of this process."""
    sys.stdout = os.fdopen(1, "w")
    paths = make_study(results)
    with contextlib.suppress(KeyboardInterrupt), status.follow(results, "s", paths):
        for until in (20, 40, 60):
            log(results, paths[0], until)
            time.sleep(0.6)
        end(results, paths[0])
        end(results, paths[1], "diverged")
        print("a word of the parent")
        raise KeyboardInterrupt


def test_a_terminal_gets_a_live_table_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sweep that is interrupted, too."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    child, terminal = pty.fork()
    if child == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            interrupted(tmp_path)
            print("interrupted", flush=True)
        finally:
            os._exit(0)
    shown = read_terminal(terminal)
    os.waitpid(child, 0)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert re.search(r"ln \+ mlp s0\s+\d+/100\s+4\.500\s+6,400\s+\d+\.\d s", plain), plain
    assert "[2/4] ln + mlp s1 diverged at step 40  8.1 s" in plain and "a word of the parent" in plain
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is back"
    assert plain.rstrip().endswith("interrupted")


def test_a_reader_that_goes_away_does_not_end_the_sweep(tmp_path, monkeypatch, capsys) -> None:
    paths, closed, shown = make_study(tmp_path), io.StringIO(), [""]
    monkeypatch.setattr(status, "TICK", 0.02)
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    with status.follow(tmp_path, "s", paths):
        end(tmp_path, paths[1])
        wait_for(lambda: shown.append(capsys.readouterr().err) or "the live view stopped" in "".join(shown))
    assert "Traceback" not in "".join(shown)
