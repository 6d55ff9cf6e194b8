"""ablate clean: what it says it would remove, what it removes, and what it never touches."""

import contextlib
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_studies import fabricate

from ablate.cli import clean
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest, study_folder, write_manifest

STATES = ("done", "diverged", "failed", "running")


def put(file: Path, size: int = 1000) -> Path:
    """A file that nobody has written to for long."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    old = time.time() - 2 * clean.OLD
    os.utime(file, (old, old))
    return file


def all_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def run_of(results: Path, seed: int, study: str = "fabricated") -> Run:
    return Run(results, read_manifest(results, study).runs[seed].path)


def command(results: Path, *arguments: str) -> int:
    return clean.main([*arguments, "--results-dir", str(results)])


@pytest.fixture
def results(tmp_path) -> Path:
    """A study with a run in each state, which all have a checkpoint and weights."""
    folder = tmp_path / "results"
    fabricate(folder, {"norm": ["ln"]}, seeds=range(4), status=lambda _, seed: STATES[seed])
    for seed in range(4):
        run = run_of(folder, seed)
        put(run.checkpoint_file)
        put(run.weights_file, 500)
    return folder


@pytest.fixture
def removable(results) -> set[Path]:
    """What nobody needs: leftovers of interrupted writes, files set aside."""
    return {
        put(run_of(results, 0).folder / ".weights.safetensors.77.tmp", 300),
        put(run_of(results, 2).folder / "checkpoint.pt.corrupt-2", 200),
        put(study_folder(results, "fabricated") / "manifest.json.corrupt", 100),
    }


def test_without_yes_it_says_what_would_go(results, removable, capsys):
    before = all_files(results)
    assert command(results) == 0
    assert all_files(results) == before
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{results}: would remove 600 bytes"
    assert any(line.startswith("  leftovers of interrupted writes: 1, 300 bytes: ") for line in lines)
    assert any(line.startswith("  files set aside as corrupt: 2, 300 bytes: ") for line in lines)
    assert lines[-1] == "nothing was removed; add --yes to remove it"


def test_with_yes_that_goes_and_nothing_else(results, removable, capsys):
    study = study_folder(results, "fabricated")
    (study / ".manifest.json.78.tmp").write_text("somebody may be writing it")
    before = all_files(results)
    assert command(results, "--yes") == 0
    assert before - all_files(results) == removable
    assert capsys.readouterr().out.startswith(f"{results}: removed 600 bytes\n")


def test_a_run_in_use_is_never_touched(results, capsys):
    run = run_of(results, 0)
    before = all_files(run.folder)
    with run.lock(lambda: False):
        assert command(results, "--yes", "--weights", "--orphans") == 0
    assert f"untouched: {run.folder} is in use" in capsys.readouterr().out
    assert before <= all_files(run.folder)
    assert not run_of(results, 1).weights_file.exists()


def test_a_run_that_is_locked_after_the_survey_is_not_touched(results):
    run = run_of(results, 0)
    [weights] = [item for item in clean.survey(results)[0] if item.path == run.weights_file]
    with run.lock(lambda: False):
        assert not clean.remove(weights)
    assert run.weights_file.exists()


@pytest.fixture
def orphan(results) -> Run:
    """A run whose study is gone."""
    fabricate(results, {"norm": ["ln"]}, seeds=[0], study="gone")
    run = run_of(results, 0, "gone")
    shutil.rmtree(study_folder(results, "gone"))
    return run


def test_a_run_of_no_study_goes_only_when_asked_for(results, orphan, capsys):
    assert command(results, "--yes") == 0
    assert orphan.result_file.exists()
    assert "kept: runs that no study refers to: 1, " in capsys.readouterr().out
    assert command(results, "--yes", "--orphans") == 0
    assert not orphan.folder.exists()
    assert orphan.folder.parent.exists(), "another seed of its configuration lies there"
    assert run_of(results, 0).result_file.exists()


def test_runs_of_no_study_stay_while_a_command_is_at_work(results):
    """They may be its, though another command has written the manifest anew."""
    fabricate(results, {"norm": ["ln"]}, seeds=range(3), study="both")
    manifest = read_manifest(results, "both")
    ended = run_of(results, 1, "both")
    in_use = run_of(results, 2, "both")
    write_manifest(results, replace(manifest, seeds=[0], runs=manifest.runs[:1]))
    with in_use.lock(lambda: False):
        assert command(results, "--yes", "--orphans") == 0
    assert ended.result_file.exists()
    assert command(results, "--yes", "--orphans") == 0
    assert not ended.folder.exists()


@pytest.mark.parametrize("damage", ["torn", "set aside"])
def test_an_unreadable_study_keeps_what_may_be_its(damage, results, capsys):
    fabricate(results, {"norm": ["ln"]}, seeds=[0], study="torn")
    run = run_of(results, 0, "torn")
    files = {put(run.weights_file), run.result_file, put(study_folder(results, "torn") / ".x.1.tmp")}
    manifest = study_folder(results, "torn") / "manifest.json"
    if damage == "torn":
        manifest.write_text("{")
    else:
        manifest.rename(manifest.with_name("manifest.json.corrupt"))
    assert command(results, "--yes", "--orphans", "--weights") == 0
    assert files <= all_files(results)
    assert "untouched: 1 run of no readable study: " in capsys.readouterr().out
    assert not run_of(results, 0).weights_file.exists(), "the others' are removed"


def test_weights_go_only_when_asked_for(results, capsys):
    run = run_of(results, 0)
    assert command(results, "--yes") == 0
    assert run.weights_file.exists()
    assert "kept: weights of runs: 4, 2.0 kB; --weights removes" in capsys.readouterr().out
    assert command(results, "--yes", "--weights") == 0
    assert not run.weights_file.exists()
    assert run.result_file.exists()


def test_an_interrupted_removal_is_finished(results, orphan):
    for file in orphan.folder.iterdir():
        if file.name != "lock":
            file.unlink()
    assert command(results, "--yes", "--orphans") == 0
    assert not orphan.folder.exists()


@pytest.mark.parametrize("words", [["--results-dir", "mine"], ["--results-dir", "none"], ["--yess"], ["x"]])
def test_a_mistake_is_one_line_and_removes_nothing(words, tmp_path, monkeypatch, capsys):
    file = put(tmp_path / "mine" / "runs" / "precious" / "s" / "x.corrupt")
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):  # argparse's way
        assert clean.main([*words, "--yes"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("ablate clean: ")
    assert file.exists()


LINKS = {
    "a file": ("runs/CELL/RUN/x.corrupt", "studies/other/x.corrupt"),
    "a folder": ("runs/CELL/RUN/link", "studies/other"),
    "a run": ("runs/cell/s0-link", "runs/CELL/OTHER"),
    "a cell": ("runs/linked", "runs/CELL"),
    "a study": ("studies/other", "studies/other"),
}


@pytest.mark.parametrize("what", LINKS)
def test_what_a_link_leads_to_stays(what, results):
    other = results.parent / "other"
    fabricate(other, {"norm": ["ln"]}, seeds=[0], study="other")
    theirs = run_of(other, 0, "other")
    run = run_of(results, 0)
    put(theirs.weights_file)
    put(study_folder(other, "other") / "x.corrupt")
    names = {"CELL": run.folder.parent.name, "RUN": run.folder.name, "OTHER": theirs.folder.name}
    link, target = LINKS[what]
    for name, folder in names.items():
        link, target = link.replace(name, folder), target.replace(name, folder)
    (results / link).parent.mkdir(exist_ok=True)
    (results / link).symlink_to(other / target)
    before = all_files(other)
    assert command(results, "--yes", "--orphans", "--weights") == 0
    assert all_files(other) == before


def test_a_linked_folder_of_runs_is_no_results_folder(results):
    before = all_files(results)
    mine = results.parent / "mine"
    mine.mkdir()
    (mine / "runs").symlink_to(results / "runs")
    assert command(mine, "--yes", "--orphans", "--weights") == 2
    assert all_files(results) == before


def test_weights_that_were_set_aside_stay_until_the_run_has_others(results):
    """They are what says that the run is trained again: without them it would count as one whose weights went."""
    run = run_of(results, 0)
    aside = put(run.folder / f"{run.weights_file.name}.corrupt")
    run.weights_file.unlink()
    assert command(results, "--yes") == 0
    assert aside.exists()
    put(run.weights_file)
    assert command(results, "--yes") == 0
    assert not aside.exists()
