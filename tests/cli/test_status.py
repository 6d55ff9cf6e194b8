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
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT, read_terminal
from crashing_norm import STARTED
from fake_studies import a_manifest, edit_manifest, fabricate

from ablate.cli import clean, status, studies
from ablate.config.groups import groups
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest, write_manifest
from ablate.runs.study import load_study

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def runs_of(results: Path, study: str = "fabricated") -> list[Run]:
    return [Run(results, run.path) for run in read_manifest(results, study).runs]


def every(results: Path) -> list[Run]:
    """A study of six runs, one in each state: done, diverged, failed, running, interrupted, queued."""
    states = ("done", "diverged", "failed", "running", "running", "missing")
    fabricate(
        results, {"norm": ["ln", "rms"]}, status=lambda levels, seed: states[3 * (levels["norm"] == "rms") + seed]
    )
    runs = runs_of(results)
    write_json(runs[3].lease_file, {"host": "node7.cluster", "pid": 123, "device": "cuda:1", "started": "2025-01-01"})
    runs[4].checkpoint_file.write_text("")
    for file in (runs[3].metrics_file, runs[4].metrics_file):
        os.utime(file, (1e9, 1e9))
    return runs


def said(results: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert status.main([*arguments, "--results-dir", str(results)]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_state_is_counted_and_what_runs_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = every(tmp_path)
    lines = said(tmp_path, capsys)
    assert lines[0] == "fabricated: norm=ln,rms; 2 configurations × 3 seeds; byte LM on stdlib-3.11"
    counts, left = lines[1].split(", about ")
    assert counts == "6 runs: 1 done, 1 diverged, 1 failed, 1 running, 1 interrupted, 1 queued"
    # 400 steps of the running one are left, as many of the interrupted one, and all 800 of the last, at 50 a second.
    assert left == "32 s left"
    assert re.split(r"\s{2,}", lines[2]) == ["run", "step", "train/loss", "val/loss", "tokens/s", "left", "where"]
    row = re.split(r"\s{2,}", lines[3])
    assert row[:2] == ["rms s0", "400/800"] and row[-3:] == ["51,200", "8.0 s", "node7:123 cuda:1"]
    assert lines[4] == f"failed: ln s2: RuntimeError: shapes do not fit · {runs[2].result_file}"
    others = [name for name in groups()["norm"] if name not in ("ln", "rms")]
    assert lines[5:] == [f"not compared: norm: {', '.join(others)}"]


def listing(results: Path) -> dict[Path, int]:
    """Everything in a folder with its modification time; a folder's changes with each file that comes or goes."""
    return {path: path.lstat().st_mtime_ns for path in (results, *results.rglob("*"))}


def test_looking_at_studies_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = every(tmp_path)
    before = listing(tmp_path)
    for look in (status.main, studies.main, clean.main):
        assert look(["--results-dir", str(tmp_path)]) == 0
    assert "1 running" in capsys.readouterr().out
    assert load_study(tmp_path, "fabricated").runs["status"].tolist().count("missing") == 3
    assert runs[3].holder().pid == 123
    assert listing(tmp_path) == before


def progress(results: Path) -> str:
    return status.progress.progress(status.together(status.rounds_of(results, "fabricated")))


def test_what_runs_has_a_fresh_lease(tmp_path: Path) -> None:
    run = every(tmp_path)[3]
    held = run.lease_file.read_text()
    assert run.holder().host == "node7.cluster"
    for content in ("", "{", "[1]", held):
        run.lease_file.write_text(content)
        os.utime(run.lease_file, (time.time() - 61, time.time() - 61) if content == held else None)
        assert not run.holder() and "1 interrupted, 2 queued" in progress(tmp_path), "torn or stale"
    run.lease_file.unlink()
    run.metrics_file.touch()
    assert "1 interrupted, 2 queued" in progress(tmp_path), "it has left, if only a moment ago"
    run.checkpoint_file.touch()
    assert "2 interrupted, 1 queued" in progress(tmp_path)


def test_damage_failures_and_an_unknown_pace_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate(tmp_path / "a", GRID, status=lambda *_: "missing")
    lines = said(tmp_path / "a", capsys)
    assert lines[1] == "12 runs: 0 done, 12 queued, time left unknown"
    command = "ablate -m norm=ln,rms ffn=mlp,swiglu"
    assert lines[2] == f"nothing is running; if no job waits in a launcher's queue, go on with: {command}"
    fabricate(tmp_path / "b", GRID, status=lambda *_: "failed")
    lines = said(tmp_path / "b", capsys)
    assert sum(line.startswith("failed: ") for line in lines) == 4 and "and 8 more failed" in lines
    assert not any("nothing is running" in line for line in lines), "all have ended"
    fabricate(tmp_path / "c", GRID)
    run = runs_of(tmp_path / "c")[0]
    run.result_file.write_text("{")
    os.utime(run.metrics_file, (1e9, 1e9))
    lines = said(tmp_path / "c", capsys)
    assert lines[1].startswith("12 runs: 11 done, 1 queued")
    assert any(line.startswith(f"damaged: {run.result_file} is not readable") for line in lines)
    edit_manifest(tmp_path / "c", "fabricated", lambda manifest: manifest.update(cells=[{"id": "c0"}]))
    assert status.main(["--results-dir", str(tmp_path / "c")]) == 2
    assert "manifest.json has no cells[0].name\n" in capsys.readouterr().err


def test_rounds_belong_to_the_study_that_they_are_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate(tmp_path, {"norm": ["ln", "rms"]}, study="s-tune", tunes="s")
    for name in (None, "s", "s-tune"):
        lines = said(tmp_path, capsys, *([name] if name else []))
        assert lines[0].startswith("s: norm=ln,rms;")
        assert lines[1:3] == ["tuning (s-tune): 6 runs: 6 done", "the study itself is planned when this has ended"]
    fabricate(tmp_path, {"norm": ["ln", "rms"]}, study="s", status=lambda *_: "missing")
    fabricate(tmp_path, {"norm": ["ln"]}, study="s-exchange", exchange_of="s")
    fabricate(tmp_path, {"norm": ["ln"]}, study="s-other")
    lines = said(tmp_path, capsys, "s")
    assert lines[1:4] == [
        "tuning (s-tune): 6 runs: 6 done",
        "other numbers of steps (s-exchange): 3 runs: 3 done",
        "study (s): 6 runs: 0 done, 6 queued, time left unknown",
    ]
    assert lines[4].startswith("15 runs: 9 done, 6 queued")


def test_variants_of_ones_own_can_be_forgotten_too(tmp_path: Path) -> None:
    (tmp_path / "own" / "norm").mkdir(parents=True)
    (tmp_path / "own" / "norm" / "mine.yaml").write_text("# Mine.\n")
    command = f"ablate -m --config-dir '{tmp_path / 'own'}' norm=ln,rms optim.lr=1e-3,3e-3"
    factors = {"norm": [name for name in groups()["norm"] if name != "bn"], "optim.lr": [1e-3, 3e-3]}
    manifest = a_manifest(command=command, components=["norm"], factors=factors)
    assert status.not_compared(manifest) == "not compared: norm: bn, mine"
    assert status.not_compared(replace(manifest, command="ablate")) == "not compared: norm: bn"
    for odd in ("--config-dir", "it's", "norm=ln --config-dir"):
        assert status.not_compared(replace(manifest, command=odd)) == "not compared: norm: bn"
    assert status.not_compared(replace(manifest, components=[])) == ""


def test_watching_ends_when_all_runs_have(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ablate.runs.progress.TICK", 0.05)
    runs = every(tmp_path)

    def go_on() -> None:
        for run in (runs[3], runs[4]):
            time.sleep(0.3)
            write_json(run.result_file, {"status": "done", "final": {"test/loss": 2.0}, "error": None})
        shutil.copytree(runs[0].folder, runs[5].folder)

    thread = threading.Thread(target=go_on)
    thread.start()
    lines = said(tmp_path, capsys, "--watch")
    thread.join()
    assert lines[0].startswith("fabricated: 6 runs: 1 done, 1 diverged, 1 failed, 1 running")
    assert "rms s0 done  test/loss 2.000" in lines and "rms s1 done  test/loss 2.000" in lines
    assert lines[-1] == "fabricated: 6 runs: 4 done, 1 diverged, 1 failed"


def test_watching_waits_for_the_first_study(tmp_path, monkeypatch, capsys):
    folder, waits = tmp_path / "results", []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            fabricate(folder, {"norm": ["ln", "rms"]})

    monkeypatch.setattr("ablate.cli.status.time.sleep", sleep)
    lines = said(folder, capsys, "--watch")
    assert lines == [f"no study in {folder} yet; waiting for one (Ctrl-C ends)", "fabricated: 6 runs: 6 done"]
    assert status.main(["--results-dir", str(folder), "--watch", "fabricatd"]) == 2
    assert "did you mean fabricated?" in capsys.readouterr().err


def test_watching_waits_for_the_next_look_of_a_sequence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ablate.runs.progress.TICK", 0.02)
    monkeypatch.setattr("ablate.runs.progress.PLANNING", 0.3)
    looks = {"looks": [3, 5], "at": 3, "max": 5}
    fabricate(tmp_path, {"norm": ["ln", "rms"]}, sequential=looks)
    manifest, shown = read_manifest(tmp_path, "fabricated"), []
    for rounds in status.polls(tmp_path, "fabricated"):
        shown.append(len(rounds[-1].runs))
        if len(shown) == 3:
            write_manifest(tmp_path, replace(manifest, seeds=[0, 1, 2, 3, 4]))
    assert len(shown) == 4, "the last look is over when its runs are"
    write_manifest(tmp_path, manifest)
    assert len(list(status.polls(tmp_path, "fabricated"))) > 4, "it may go on, and did not"
    assert "interim analyses at 3, 5 seeds" in said(tmp_path, capsys)[0]


def test_watching_a_study_that_is_removed_ends_with_a_line(tmp_path, monkeypatch, capsys):
    fabricate(tmp_path, {"norm": ["ln", "rms"]}, sequential={"looks": [3, 5], "at": 3, "max": 5})
    rest = partial(shutil.rmtree, tmp_path / "studies/fabricated")
    monkeypatch.setattr(status, "polls", partial(status.polls, rest=lambda _: rest()))
    assert status.main(["--results-dir", str(tmp_path), "--watch", "fabricated"]) == 2
    assert f"fabricated is no longer in {tmp_path}" in capsys.readouterr().err


def command(results: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "ablate", "status", "--results-dir", str(results), *arguments]


def test_watching_on_a_terminal_and_control_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TERM", "xterm")
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, command(tmp_path, "--watch"))
    STARTED.append(child)
    shown = ""
    while "not compared" not in shown:
        shown += os.read(terminal, 4096).decode()
    os.kill(child, signal.SIGINT)
    shown += read_terminal(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert "Traceback" not in shown and "1 interrupted" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is back"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["norm-fnn"], "no study norm-fnn in results: did you mean norm-ffn-3fa94c?"),
        (["zzz"], "no study zzz in results: there is only norm-ffn-3fa94c"),
        (["--wacth"], "--wacth: no such option; did you mean --watch?"),
        (["--results-dir", "nowhere"], "no results folder at nowhere"),
        (["--results-dir", "."], "no study in ."),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, arguments: list[str], line: str) -> None:
    fabricate(tmp_path / "results", GRID, study="norm-ffn-3fa94c")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_RESULTS", "results")
    with contextlib.suppress(SystemExit):  # argparse's way
        assert status.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and shown.err.startswith("ablate status: " + line)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    fabricate(tmp_path, GRID, status=lambda *_: "failed")
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command(tmp_path, "--watch"), stdout=writing, stderr=subprocess.PIPE, env=environment)
    assert (ended.returncode, ended.stderr) == (0, b"")
    os.close(writing)
