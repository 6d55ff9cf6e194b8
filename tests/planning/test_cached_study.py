"""A finished sweep starts again from what is kept of its study, without torch, and just as if it were checked anew."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Cli, importing, latest

from ablate.planning import cached_study
from ablate.planning.cached_study import finished
from ablate.planning.plan import plan_study

START = """
import sys
sys.argv[1:] = {words!r}
from ablate.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
assert not (loaded := {{"torch", "hydra"}} & sys.modules.keys()), loaded
"""


@pytest.fixture
def words(small: list[str]) -> list[str]:
    steps = ["train.steps=2", "train.eval_every=2", "train.parallel=1"]
    return latest(*small, "norm=ln,rms", "seeds=2", *steps, "margin=0.01")


@pytest.fixture
def ended(words: list[str], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a sweep that has ended, in the folder where it was started."""
    assert cli("-m", *words).returncode == 0
    monkeypatch.chdir(tmp_path)
    return words


def start(*words: str, cwd: Path, **more: str) -> str:
    """What a command prints from a process that must not load torch."""
    command = [sys.executable, "-c", START.format(words=list(words))]
    done = subprocess.run(command, cwd=cwd, env=importing(**more), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_start_reads_the_disk_and_loads_no_torch(ended: list[str], cli: Cli, tmp_path: Path) -> None:
    [file] = (tmp_path / "results" / "studies").glob("*/manifest.json")
    anew = cli("-m", *ended, ABLATE_CACHE=str(tmp_path / "cache"))
    before = json.loads(file.read_text())
    assert start("-m", *ended, cwd=tmp_path) == anew.stdout != ""
    after = json.loads(file.read_text())
    assert {key for key in before if before[key] != after[key]} <= {"updated", "looks", "sha256"}
    dry = cli("-m", *ended, "dry_run=true", ABLATE_CACHE=str(tmp_path / "cache"))
    assert start("-m", *ended, "dry_run=true", cwd=tmp_path) == dry.stdout != ""
    assert "done" in start("status", cwd=tmp_path)
    runs = sorted(str(folder.relative_to(tmp_path)) for folder in (tmp_path / "results" / "runs").glob("*/*"))
    assert start("diff", runs[0], runs[-1], cwd=tmp_path)


def test_a_cached_study_is_the_checked_one(ended: list[str]) -> None:
    kept, checked = finished(ended, None), plan_study(ended)
    assert kept and not kept.todo and not checked.todo
    assert kept.notes == checked.notes and kept.statuses == checked.statuses
    assert kept.study.settings == checked.study.settings and kept.study.cells.rows == checked.study.cells.rows
    now = {"updated": "", "created": ""}
    assert kept.manifest.as_json() | now == checked.manifest.as_json() | now


def test_whatever_it_depends_on_has_it_checked_again(ended, text, tmp_path, monkeypatch):
    assert finished(ended, None)
    assert finished([*ended, "train.log_every=1"], None) is None and finished(ended[1:], None) is None
    with monkeypatch.context() as other:
        other.setattr("torch.__version__", "9.9")
        assert finished(ended, None) is None
    with monkeypatch.context() as other:
        other.setenv("CUDA_VISIBLE_DEVICES", "7")
        assert finished(ended, None) is None
    with monkeypatch.context() as other:
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "config.yaml").write_text("norm: rms")
        other.setattr(cached_study, "CONF", tmp_path / "conf")
        assert finished(ended, None) is None
    [result, *_] = sorted((tmp_path / "results" / "runs").glob("*/*/result.json"))
    result.rename(tmp_path / "result.json")
    assert finished(ended, None) is None
    (tmp_path / "result.json").rename(result)
    assert finished(ended, None)
    whole = text.read_bytes()
    try:
        text.write_bytes(whole + b"\nOne more line.")
        assert finished(ended, None) is None
    finally:
        text.write_bytes(whole)


@pytest.mark.parametrize(
    "more", [["placebo_seeds=3"], ["step_equivalents=true"], ["tune.key=optim.lr", "tune.values=[1e-3,3e-3]"]]
)
def test_other_rounds_than_the_studys_own_are_planned_anew(words: list[str], more: list[str], tmp_path: Path) -> None:
    place = tmp_path / "kept.json"
    cached_study.keep(place, plan_study(latest(*words, "train.steps=6", *more)).requested)
    assert not place.exists()
    cached_study.keep(place, plan_study(words).requested)
    assert place.exists()


def test_an_editors_link_to_nowhere_is_left_to_the_checks(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine" / "norm").mkdir(parents=True)
    (tmp_path / "mine" / "norm" / ".#x.yaml").symlink_to("me@host.1:2")
    assert finished(words, str(tmp_path / "mine")) is None
