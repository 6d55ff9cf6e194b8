"""ablate studies: the list, and what is deleted, also after an interruption."""

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from fake_studies import edit_manifest, fabricate

from ablate.cli import studies
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest, study_folder

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


@pytest.fixture
def results(tmp_path) -> Path:
    """A study with exchange runs and a confirmation, and another one that shares its first run."""
    folder = tmp_path / "results"
    fabricate(folder, GRID, study="s", exchange="s-exchange")
    fabricate(folder, {"norm": ["ln", "rms"]}, study="s-exchange", exchange_of="s", seeds=[7])
    fabricate(folder, GRID, study="s-confirm-2", confirms="s", seeds=[8, 9], exchange="s-exchange")
    fabricate(folder, {"norm": ["ln"]}, study="other", seeds=[0], status=lambda *_: "missing")
    path = read_manifest(folder, "s").runs[0].path
    edit_manifest(folder, "other", lambda manifest: manifest["runs"][0].update(path=path))
    for kind in ("figures", "tensorboard"):
        (folder / kind / "s").mkdir(parents=True)
    for age, name in enumerate(["other", "s", "s-confirm-2", "s-exchange"]):
        os.utime(study_folder(folder, name) / "manifest.json", (1e9 - age, 1e9 - age))
    return folder


@pytest.fixture
def lines_of(results, capsys) -> Callable[..., list[str]]:
    """The lines of the command, which ends with a code."""

    def run(*words, code=0):
        assert studies.main([*words, "--results-dir", str(results)]) == code
        return "".join(capsys.readouterr()).splitlines()

    return run


@pytest.fixture
def own_runs(results) -> list[Run]:
    """The runs of the study that no other has."""
    return [Run(results, run.path) for run in read_manifest(results, "s").runs[1:]]


def test_each_study_is_a_line_the_newest_first(results, lines_of):
    (study_folder(results, "s-confirm-2") / "manifest.json").write_text("{")
    lines = lines_of()
    assert [line.split()[0] for line in lines[1:3]] == ["other", "s"]
    assert "s-confirm-2" in lines[3]
    assert "norm=ln,rms ffn=mlp,swiglu  4 × 3" in lines[2]
    assert "14 runs: 14 done" in lines[2]


MISTAKES = [
    (["rm"], "invalid choice: 'rm' (choose from 'delete')"),
    (["delete"], "write delete NAME ..."),
    (["--yes"], "--yes goes with delete"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_in_the_words_is_one_line(words, message, capsys):
    with pytest.raises(SystemExit):
        studies.main(words)
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_study_that_cannot_be_read_is_not_deleted(results, lines_of):
    (study_folder(results, "s").joinpath("manifest.json")).write_text("{")
    assert "remove it by hand" in lines_of("delete", "s", "--yes", code=2)[0]
    assert study_folder(results, "s").exists()


def test_nothing_is_deleted_without_yes(results, own_runs, lines_of):
    before = sorted(results.rglob("*"))
    lines = lines_of("delete", "s")
    assert lines[-1] == "nothing was removed; add --yes to remove it"
    assert any(line.startswith(f"  runs of no other study: {len(own_runs)}, ") for line in lines)
    assert sorted(results.rglob("*")) == before


def test_a_study_goes_with_its_runs_that_no_other_has(results, own_runs, lines_of):
    shared = Run(results, read_manifest(results, "s").runs[0].path)
    lines_of("delete", "s", "--yes")
    assert shared.result_file.exists()
    assert not any(run.folder.exists() for run in own_runs)
    assert not any((results / kind / "s").exists() for kind in ("studies", "figures", "tensorboard"))
    assert {"s-exchange", "s-confirm-2", "other"} == {path.name for path in (results / "studies").iterdir()}


def test_a_study_in_training_is_not_deleted(results, own_runs, lines_of):
    with own_runs[0].lock(lambda: False):
        assert "has a run in use" in lines_of("delete", "s", "--yes", code=2)[0]
    assert all(run.result_file.exists() for run in own_runs)


def test_an_interrupted_deletion_is_finished_by_the_same_command(own_runs, lines_of):
    with mock.patch.object(Path, "rmdir", side_effect=KeyboardInterrupt):
        lines_of("delete", "s", "--yes", code=130)
    assert any(line.startswith("s ") for line in lines_of()), "the study goes last"
    lines_of("delete", "s", "--yes")
    assert not any(run.folder.exists() for run in own_runs)
