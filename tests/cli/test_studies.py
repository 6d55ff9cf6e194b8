"""ablate studies: the list, and what is deleted, also after an interruption."""

import os
import shutil
from pathlib import Path
from unittest import mock

import pytest
from fake_studies import edit_json, fabricate
from test_clean import all_files

from ablate.cli import studies
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest, study_folder

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study with exchange runs and a confirmation, and another one that shares its first run."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "results"
    fabricate(folder, GRID, study="s", exchange="s-exchange")
    fabricate(folder, {"norm": ["ln", "rms"]}, study="s-exchange", exchange_of="s", seeds=[7])
    fabricate(folder, GRID, study="s-confirm-2", confirms="s", seeds=[8, 9], exchange="s-exchange")
    fabricate(folder, {"norm": ["ln"]}, study="other", seeds=[0], status=lambda *_: "missing")
    path = read_manifest(folder, "s").runs[0].path
    edit_json(study_folder(folder, "other") / "manifest.json", lambda told: told["runs"][0].update(path=path))
    for own in ("figures", "tensorboard"):
        (folder / own / "s").mkdir(parents=True)
        (folder / own / "s" / "figures.yaml").write_text("{}")
    (folder / "studies" / ".s.tmp" / "of an earlier removal").mkdir(parents=True)
    for age, name in enumerate(["other", "s", "s-confirm-2", "s-exchange"]):
        os.utime(study_folder(folder, name) / "manifest.json", (1e9 - age, 1e9 - age))
    return folder


def said(results: Path, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[str]:
    assert studies.main([*words, "--results-dir", str(results)]) == code
    shown = capsys.readouterr()
    return (shown.out + shown.err).splitlines()


def test_each_study_is_a_line_the_newest_first(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study_folder(results, "s-confirm-2") / "manifest.json").write_text("{")
    lines = said(results, capsys)
    assert [line.split()[0] for line in lines[1:3]] == ["other", "s"] and "s-confirm-2" in lines[3]
    assert "norm=ln,rms ffn=mlp,swiglu  4 × 3" in lines[2] and "14 runs: 14 done" in lines[2] and "days" in lines[2]
    assert "remove it by hand" in said(results, capsys, "delete", "s-confirm-2", code=2)[0]


@pytest.mark.parametrize(
    ("word", "message"), [("delet", "did you mean delete?"), ("rm", "did you mean delete?"), ("delete", "delete NAME")]
)
def test_a_mistake_in_the_words_is_one_line(results: Path, capsys, word: str, message: str) -> None:
    [line] = said(results, capsys, word, code=2)
    assert message in line


def test_what_is_deleted_is_what_nobody_else_uses(results: Path, capsys) -> None:
    """Runs first, so that the same command goes on after an interruption; nothing of a study that is being trained."""
    shared, *alone = (Run(results, run.path) for run in read_manifest(results, "s").runs)
    before, lines = all_files(results), said(results, capsys, "delete", "s")
    assert lines[-1] == "nothing was removed; add --yes to remove it" and all_files(results) == before
    assert f"  runs of no other study: {len(alone)}, " in "\n".join(lines)
    (results / "studies" / "linked").symlink_to(study_folder(results, "other"))
    assert not any("stay for now" in line for line in said(results, capsys, "delete", "other")), "s has its run"
    (results / "studies" / "linked").unlink()
    with alone[0].lock(lambda: False):
        assert "has a run in use" in said(results, capsys, "delete", "s", "--yes", code=2)[0]
    with mock.patch.object(shutil, "rmtree", side_effect=KeyboardInterrupt):
        said(results, capsys, "delete", "s", "--yes", code=130)
    assert any(line.startswith("s ") and "done, " in line for line in said(results, capsys))
    said(results, capsys, "delete", "s", "--yes")
    assert shared.result_file.exists() and not any(run.folder.exists() for run in alone)
    assert {path.name for path in (results / "studies").glob("[!.]*")} == {"s-exchange", "s-confirm-2", "other"}, (
        "aa is of both"
    )
    assert not any((results / own / "s").exists() for own in ("figures", "tensorboard"))
