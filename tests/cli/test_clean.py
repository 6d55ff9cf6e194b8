"""ablate clean: what it says it would remove, what it removes, and what it never touches."""

import contextlib
import fcntl
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fake_studies import fabricate

from ablate.cli import clean
from ablate.data.corpus import exclusive
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest, study_folder, write_manifest

OLD = time.time() - 2 * clean.OLD


def put(file: Path, size: int = 1000, old: bool = True) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    if old:
        os.utime(file, (OLD, OLD))
    return file


def all_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of runs that ended as done, diverged and failed, of one that goes on, each with all files it can have."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    folder, states = tmp_path / "results", ("done", "diverged", "failed", "running")
    fabricate(folder, {"norm": ["ln"]}, seeds=range(4), status=lambda _, seed: states[seed])
    for planned in read_manifest(folder, "fabricated").runs:
        run = Run(folder, planned.path)
        run.config_file.write_text(yaml.safe_dump({"keep": "weights"}))
        put(run.checkpoint_file, 2_000_000)
        put(run.weights_file, 500)
    return folder


def run_of(results: Path, seed: int, study: str = "fabricated") -> Run:
    return Run(results, read_manifest(results, study).runs[seed].path)


def command(results: Path, *arguments: str) -> int:
    return clean.main([*arguments, "--results-dir", str(results)])


def test_nothing_goes_without_yes_and_only_what_was_named_with_it(results, capsys):
    done, diverged, failed = (run_of(results, seed) for seed in range(3))
    removable = {
        done.checkpoint_file,
        diverged.checkpoint_file,
        put(done.folder / ".weights.safetensors.77.tmp", 300),
        put(failed.folder / "result.json.corrupt", 200),
        put(failed.folder / "checkpoint.pt.corrupt-2", 200),
        put(study_folder(results, "fabricated") / "manifest.json.corrupt", 100),
    }
    put(study_folder(results, "fabricated") / ".manifest.json.78.tmp", old=False)  # somebody may be writing it
    before = all_files(results)
    assert command(results) == 0 and all_files(results) == before
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{results}: would remove 4.0 MB" and shown[-1] == "nothing was removed; add --yes to remove it"
    assert "  checkpoints of ended runs: 2, 4.0 MB" in shown and f"    runs/{done.path}/checkpoint.pt" in shown
    assert "  leftovers of interrupted writes: 1, 300 bytes" in shown
    assert "  files set aside as corrupt: 3, 500 bytes" in shown
    assert any(line.startswith("kept: weights of runs: 4, 2.0 kB; --weights removes") for line in shown)
    assert command(results, "--yes") == 0 and before - all_files(results) == removable
    assert capsys.readouterr().out.startswith(f"{results}: removed 4.0 MB\n")
    assert command(results, "--yes") == 0 and before - all_files(results) == removable
    assert capsys.readouterr().out.startswith(f"{results}: removed nothing\n")


def test_a_checkpoint_that_was_to_be_kept_stays(results: Path) -> None:
    done, diverged = run_of(results, 0), run_of(results, 1)
    done.config_file.write_text(yaml.safe_dump({"keep": "all"}))
    diverged.config_file.write_text("[")  # nobody knows
    assert command(results, "--yes") == 0
    assert done.checkpoint_file.exists() and diverged.checkpoint_file.exists()


@pytest.mark.parametrize("how", ["lock", "lease"])
def test_a_run_in_use_is_never_touched(results: Path, capsys: pytest.CaptureFixture[str], how: str) -> None:
    run, other = run_of(results, 0), run_of(results, 1)
    before = {path for path in all_files(results) if run.folder in path.parents}
    with open(run.folder / "lock", "w") as file:
        if how == "lock":
            fcntl.flock(file, fcntl.LOCK_EX)
        else:
            write_json(run.lease_file, {"host": "node7", "pid": 1, "device": "cpu", "started": ""})
        assert command(results, "--yes", "--weights", "--orphans") == 0
        assert f"untouched: {run.folder} is in use" in capsys.readouterr().out
        assert before <= all_files(results) and not other.checkpoint_file.exists()
    run.lease_file.unlink(missing_ok=True)
    assert command(results, "--yes") == 0 and not run.checkpoint_file.exists()


def test_a_run_that_is_taken_after_the_look_is_not_touched(results: Path) -> None:
    run = run_of(results, 0)
    items = [item for item in clean.survey(results)[0] if item.kind in clean.ALWAYS]
    with run.lock(lambda: False) as mine:
        assert mine and [item.path for item in clean.remove(items)] == [run.checkpoint_file]
    run.result_file.unlink()  # trained again meanwhile
    assert [item.path for item in clean.remove(items)] == [run.checkpoint_file] and run.checkpoint_file.exists()


def test_runs_of_no_study_are_named_and_go_only_when_asked_for(results, capsys):
    fabricate(results, {"norm": ["ln"]}, seeds=range(2), study="gone")
    lone = [run_of(results, seed, "gone") for seed in range(2)]
    put(lone[0].folder / "x.corrupt")
    shutil.rmtree(study_folder(results, "gone"))
    assert command(results, "--yes") == 0 and all(run.result_file.exists() for run in lone)
    assert "kept: runs that no study refers to: 2, " in capsys.readouterr().out
    assert command(results, "--yes", "--orphans") == 0 and not any(run.folder.exists() for run in lone)
    assert run_of(results, 0).result_file.exists()
    assert "--orphans" not in capsys.readouterr().out


def test_runs_of_a_command_at_work_stay_though_another_has_written_the_manifest(results: Path) -> None:
    fabricate(results, {"norm": ["ln"]}, seeds=range(3), study="both")
    manifest = read_manifest(results, "both")
    fewer = replace(manifest, seeds=[0], runs=manifest.runs[:1])
    write_manifest(results, fewer)
    ended, other = (Run(results, run.path) for run in manifest.runs[1:])
    with other.lock(lambda: False) as mine:
        assert mine and command(results, "--yes", "--orphans") == 0
        assert ended.result_file.exists() and other.result_file.exists()
    assert command(results, "--yes", "--orphans") == 0 and not ended.folder.exists() and not other.folder.exists()


def test_a_study_that_cannot_be_read_keeps_whatever_may_be_its_own(results, capsys):
    fabricate(results, {"norm": ["ln"]}, seeds=[0], study="torn")
    run = run_of(results, 0, "torn")
    run.config_file.write_text(yaml.safe_dump({"keep": "weights"}))
    theirs = {put(run.checkpoint_file), run.result_file}
    theirs |= {put(study_folder(results, "torn") / ".x.1.tmp"), put(run.folder / "x.corrupt")}
    for damage in ("torn", "set aside"):
        file = study_folder(results, "torn") / "manifest.json"
        file.write_text("{") if damage == "torn" else file.rename(file.with_name("manifest.json.corrupt"))
        assert command(results, "--yes", "--orphans", "--weights") == 0
        shown = capsys.readouterr().out
        assert "untouched: " in shown and "studies/torn" in shown and theirs <= all_files(results)
        assert "untouched: 1 run of no readable study: an unreadable study may use them" in shown
    assert not run_of(results, 0).checkpoint_file.exists(), "the others' are removed"


def test_weights_and_corpora_go_only_when_asked_for(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = results.parent / "cache"
    corpus, other = put(cache / ("0a" * 16) / "train.npy", 5_000_000), put(cache / "probes" / "x")
    busy, killed = (put(cache / f"corpus-{letter * 32}.making" / "scan-0.json", 10) for letter in "ef")
    vectors, lock = put(cache / "vectors" / "0b.npz", 2_000_000), put(cache / "vectors" / "0b.lock")
    assert command(results, "--yes") == 0 and corpus.exists() and run_of(results, 0).weights_file.exists()
    shown = capsys.readouterr().out
    assert f"kept: tokenised corpora in {cache}: 3, 5.0 MB; --cache removes them" in shown
    assert f"kept: trained vectors in {vectors.parent}: 1, 2.0 MB; --cache removes them" in shown and vectors.exists()
    assert command(results, "--yes", "--weights") == 0 and corpus.exists()
    assert not list(results.rglob("weights.safetensors")) and run_of(results, 0).result_file.exists()
    with exclusive(busy.parent.with_suffix(".lock")):  # in preparation
        assert command(results, "--yes", "--cache") == 0 and not corpus.parent.exists() and other.exists()
    assert busy.exists() and not killed.exists()
    assert not vectors.exists() and lock.exists(), "whoever trains may hold the lock"


def test_the_cache_is_cleaned_without_a_study(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    corpus = put(tmp_path / "cache" / ("0a" * 16) / "train.npy", 5000)
    assert command(tmp_path / "results") == 2 and corpus.exists()
    assert command(tmp_path / "results", "--cache") == 0 and corpus.exists()
    assert "tokenised corpora: 1, 5.0 kB" in capsys.readouterr().out
    assert command(tmp_path / "results", "--cache", "--yes") == 0 and not corpus.exists()


def test_a_removal_that_was_cut_off_is_finished(results: Path) -> None:
    """But no study of such a name, with its figures, and no link."""
    folder, named = run_of(results, 0).folder, ".a.tmp"
    rest = [put(folder.with_name(name) / "x") for name in (".s9-gone.tmp", "..s9-gone.tmp.abc.tmp")]
    rest.append(put(results / "tensorboard" / ".gone.tmp" / "x"))
    fabricate(results, {"norm": ["ln"]}, seeds=[0], study=named)
    figure, link = put(results / "figures" / named / "x"), results / "figures" / ".b.tmp"
    link.symlink_to(folder)
    assert command(results, "--yes") == 0 and not any(each.parent.exists() for each in rest)
    assert figure.exists() and link.is_symlink() and read_manifest(results, named).runs


@pytest.mark.parametrize(
    "arguments", [["--results-dir", "mine"], ["--results-dir", "none"], ["--yess"], ["--yes", "x"]]
)
def test_mistakes_are_one_line_and_remove_nothing(tmp_path, monkeypatch, capsys, arguments: list[str]) -> None:
    file = put(tmp_path / "mine" / "runs" / "precious" / "s" / "x.corrupt")
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):  # argparse's way
        assert clean.main([*arguments, *["--yes"] * ("--yes" not in arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and file.exists()
    assert shown.err.startswith("ablate clean: ")


def test_what_links_lead_to_lies_elsewhere_and_stays(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file, a folder, a run, a cell, a study, and all runs."""
    other, run = results.parent / "other", run_of(results, 0)
    fabricate(other, {"norm": ["rms"]}, seeds=[0], study="other")
    put(run_of(other, 0, "other").weights_file)
    precious = put(study_folder(other, "other") / "x.corrupt")
    [cell] = (other / "runs").iterdir()
    (results / "runs" / "cell").mkdir()
    links = {run.folder / "link": precious.parent, run.folder / "x.corrupt": precious}
    links |= {results / "runs" / "cell" / "s0-link": next(cell.iterdir()), results / "runs" / cell.name: cell}
    study = results / "studies" / "other"
    for link, there in (links | {study: study_folder(other, "other")}).items():
        link.symlink_to(there)
    before = all_files(other)
    for more in ("with its study", "without"):
        assert command(results, "--yes", "--orphans", "--weights") == 0 and all_files(other) == before
        assert f"untouched: {results / 'runs' / cell.name} is a link" in capsys.readouterr().out, more
        study.unlink(missing_ok=True)
    mine, before = results.parent / "mine", all_files(results)
    (mine / "studies").mkdir(parents=True)
    (mine / "runs").symlink_to(results / "runs")
    assert command(mine, "--yes", "--orphans", "--weights") == 2 and all_files(results) == before


def test_weights_that_were_set_aside_stay_until_the_run_has_others(results: Path) -> None:
    """They are what says that the run is trained again: without them it would count as one whose weights went."""
    run = run_of(results, 0)
    aside = put(run.folder / f"{run.weights_file.name}.corrupt")
    run.weights_file.unlink()
    assert command(results, "--yes") == 0 and aside.exists()
    put(run.weights_file)
    assert command(results, "--yes") == 0 and not aside.exists()
