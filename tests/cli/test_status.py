"""ablate status: what it says of studies in any state, from files alone, while they are trained and after."""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT, read_terminal
from crashing_norm import STARTED
from fake_studies import fabricate

from ablate.cli import clean, status, studies
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest, write_manifest
from ablate.runs.study import load_study

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
NORMS = {"norm": ["ln", "rms"]}
STATES = {"ln": ["done", "diverged", "failed"], "rms": ["running", "running", "missing"]}
Lines = Callable[..., list[str]]


def runs_of(results: Path, study: str = "fabricated") -> list[Run]:
    return [Run(results, run.path) for run in read_manifest(results, study).runs]


@pytest.fixture
def six_states(tmp_path) -> list[Run]:
    """The runs of a study: done, diverged, failed, running, interrupted, queued."""
    fabricate(tmp_path, NORMS, status=lambda levels, seed: STATES[levels["norm"]][seed])
    runs = runs_of(tmp_path)
    write_json(runs[3].lease_file, {"host": "node7.cluster", "pid": 123, "device": "cuda:1", "started": "2025-01-01"})
    runs[4].checkpoint_file.write_text("")
    for run in runs[3:5]:
        os.utime(run.metrics_file, (1e9, 1e9))
    return runs


@pytest.fixture
def lines_of(tmp_path, capsys) -> Lines:
    """The lines of the command, which ends with a code."""

    def run(*words, code=0):
        assert status.main([*words, "--results-dir", str(tmp_path)]) == code
        return "".join(capsys.readouterr()).splitlines()

    return run


def test_each_state_is_counted_and_what_runs_is_shown(six_states, lines_of):
    lines = lines_of()
    assert lines[0] == "fabricated: norm=ln,rms; 2 configurations × 3 seeds; byte LM on stdlib-3.11"
    # 400 steps of the running one are left, as many of the interrupted one, and all 800 of the last, at 50 a second.
    counts = "6 runs: 1 done, 1 diverged, 1 failed, 1 running, 1 interrupted, 1 queued, about 32 s left"
    assert lines[1] == counts
    assert re.split(r"\s{2,}", lines[2]) == ["run", "step", "train/loss", "val/loss", "tokens/s", "left", "where"]
    row = re.split(r"\s{2,}", lines[3])
    assert row[:2] == ["rms s0", "400/800"]
    assert row[-3:] == ["51,200", "8.0 s", "node7:123 cuda:1"]
    assert lines[4] == f"failed: ln s2: RuntimeError: shapes do not fit · {six_states[2].result_file}"


@pytest.mark.parametrize("look", [status.main, studies.main, clean.main])
def test_looking_at_studies_writes_nothing(look, six_states, tmp_path):
    def stamps():  # a folder's changes with each file that comes or goes
        return {path: path.lstat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}

    before = stamps()
    assert look(["--results-dir", str(tmp_path)]) == 0
    load_study(tmp_path, "fabricated")
    assert stamps() == before


def test_a_run_with_a_stale_lease_is_not_running(six_states, lines_of):
    stale = time.time() - 61
    os.utime(six_states[3].lease_file, (stale, stale))
    assert "1 failed, 1 interrupted, 2 queued" in lines_of()[1]


def test_where_nothing_runs_the_command_that_goes_on_is_named(tmp_path, lines_of):
    fabricate(tmp_path, GRID, status=lambda *_: "missing")
    lines = lines_of()
    assert lines[1] == "12 runs: 0 done, 12 queued, time left unknown"
    command = "ablate -m norm=ln,rms ffn=mlp,swiglu"
    how = "to go on, once what stopped it is mended and if no job waits in a queue"
    assert lines[2] == f"nothing is running; {how}: {command}"


def test_a_damaged_result_is_named(tmp_path, lines_of):
    fabricate(tmp_path, GRID)
    run = runs_of(tmp_path)[0]
    run.result_file.write_text("{")
    os.utime(run.metrics_file, (1e9, 1e9))
    lines = lines_of()
    assert lines[1].startswith("12 runs: 11 done, 1 queued")
    assert any(line.startswith(f"damaged: {run.result_file} is not readable") for line in lines)


def test_tuning_belongs_to_the_study_that_is_to_come(tmp_path, lines_of):
    fabricate(tmp_path, NORMS, study="s-tune", tunes="s")
    lines = lines_of("s")
    assert lines[0].startswith("s: norm=ln,rms;")
    assert lines[1:3] == ["tuning (s-tune): 6 runs: 6 done", "the study itself is planned when this has ended"]


def test_the_rounds_of_a_study_are_counted_together(tmp_path, lines_of):
    fabricate(tmp_path, NORMS, study="s-tune", tunes="s")
    fabricate(tmp_path, NORMS, study="s", status=lambda *_: "missing")
    fabricate(tmp_path, {"norm": ["ln"]}, study="s-exchange", exchange_of="s")
    fabricate(tmp_path, {"norm": ["ln"]}, study="s-other")
    lines = lines_of("s")
    assert lines[1:4] == [
        "tuning (s-tune): 6 runs: 6 done",
        "other numbers of steps (s-exchange): 3 runs: 3 done",
        "study (s): 6 runs: 0 done, 6 queued, time left unknown",
    ]
    assert lines[4].startswith("15 runs: 9 done, 6 queued")


def test_watching_ends_when_all_runs_have(six_states, lines_of, monkeypatch):
    monkeypatch.setattr("ablate.runs.progress.TICK", 0.05)

    def end_runs():
        for run in six_states[3:]:
            time.sleep(0.2)
            run.folder.mkdir(exist_ok=True)
            shutil.copyfile(six_states[0].result_file, run.result_file)

    thread = threading.Thread(target=end_runs)
    thread.start()
    lines = lines_of("--watch")
    thread.join()
    assert sum(line.startswith("[") for line in lines) == 3, "those that end meanwhile"
    assert any(re.fullmatch(r"\[\d/6\] rms s0 done  test/loss 2\.0.*", line) for line in lines)
    assert "6 runs: 4 done, 1 diverged, 1 failed" in lines


def test_watching_waits_for_the_next_look_of_a_sequence(tmp_path, monkeypatch):
    monkeypatch.setattr("ablate.runs.progress.TICK", 0.02)
    monkeypatch.setattr("ablate.runs.progress.PLANNING", 0.3)
    fabricate(tmp_path, NORMS, sequential={"looks": [3, 5], "at": 3, "max": 5})
    manifest = read_manifest(tmp_path, "fabricated")
    polls = 0
    for _ in status.polls(tmp_path, "fabricated"):
        polls += 1
        if polls == 3:
            write_manifest(tmp_path, replace(manifest, seeds=[0, 1, 2, 3, 4]))
    assert polls == 4, "the last look is over when its runs are"


def test_watching_a_study_that_is_removed_ends_with_a_line(tmp_path, lines_of, monkeypatch):
    fabricate(tmp_path, NORMS, sequential={"looks": [3, 5], "at": 3, "max": 5})
    remove = partial(shutil.rmtree, tmp_path / "studies/fabricated")
    monkeypatch.setattr(status, "polls", partial(status.polls, rest=lambda _: remove()))
    assert f"fabricated is no longer in {tmp_path}" in lines_of("--watch", "fabricated", code=2)[-1]


def command(results: Path) -> list[str]:
    return [sys.executable, "-m", "ablate", "status", "--results-dir", str(results), "--watch"]


def test_control_c_ends_watching_on_a_terminal(six_states, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TERM", "xterm")
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, command(tmp_path))
    STARTED.append(child)
    shown = ""
    while "failed: ln s2" not in shown:
        shown += os.read(terminal, 4096).decode()
    os.kill(child, signal.SIGINT)
    shown += read_terminal(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert "Traceback" not in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is back"


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    fabricate(tmp_path, GRID, status=lambda *_: "failed")
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command(tmp_path), stdout=writing, stderr=subprocess.PIPE, env=environment)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


MISTAKES = [
    (["norm-fnn"], "no study norm-fnn in results: did you mean norm-ffn-3fa94c?"),
    (["zzz"], "no study zzz in results: there is only norm-ffn-3fa94c"),
    (["--wacth"], "--wacth: no such option; did you mean --watch?"),
    (["--results-dir", "."], "no study in ."),
]


@pytest.mark.parametrize(("words", "line"), MISTAKES)
def test_a_mistake_is_one_line(words, line, tmp_path, monkeypatch, capsys):
    fabricate(tmp_path / "results", GRID, study="norm-ffn-3fa94c")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_RESULTS", "results")
    with contextlib.suppress(SystemExit):  # argparse's way
        assert status.main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("ablate status: " + line)
