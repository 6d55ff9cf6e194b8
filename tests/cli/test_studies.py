"""ablate studies: the list, what is renamed and deleted, also after an interruption, and how two studies differ."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from fake_studies import edit_json, fabricate
from test_clean import all_files

from ablate.cli import clean, diff, studies
from ablate.results.manifest import read_manifest, study_folder
from ablate.results.run import Run

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
    assert said(results, capsys, "rename", "s", "t")[1].startswith("ablate: s-confirm-2 keeps its name")


@pytest.mark.parametrize("crash", [None, "write_manifest", "copystat", "rmtree"])
def test_a_study_is_renamed_with_those_named_after_it(crash: str | None, results: Path, capsys) -> None:
    """Wherever it stops, all studies can be read, and the same command goes on."""
    runs = [run.path for run in read_manifest(results, "s").runs]
    for name in ("mirror.jsonl", "notes.txt"):  # a tracking service knows runs by their study, so it has none of these
        (results / "studies" / "s" / name).touch()
    if crash:
        owner = studies if hasattr(studies, crash) else shutil
        stops = {"wraps": getattr(owner, crash), "side_effect": [mock.DEFAULT, KeyboardInterrupt]}
        with mock.patch.object(owner, crash, **stops):
            said(results, capsys, "rename", "s", "mine", code=130)
        there = "s" if crash != "rmtree" else "mine"
        assert [run.path for run in read_manifest(results, there).runs] == runs
        assert not [line for line in said(results, capsys) if "cannot" in line]
    said(results, capsys, "rename", "s", "mine")
    there = {path.name for path in (results / "studies").glob("[!.]*")}
    assert there == {"mine", "mine-exchange", "mine-confirm-2", "other"}
    assert read_manifest(results, "mine").command.endswith(" study=mine")
    assert read_manifest(results, "mine-confirm-2").beside() == {"exchange": "mine-exchange"}
    assert read_manifest(results, "mine-confirm-2").confirms == "mine"
    assert read_manifest(results, "mine-exchange").exchange_of == "mine"
    assert not [*results.glob("studies/mine/mirror.jsonl")] and (results / "studies" / "mine" / "notes.txt").exists()
    assert all((results / own / "mine" / "figures.yaml").exists() for own in ("figures", "tensorboard"))
    for words in (
        ["mine", "mine"],
        ["mine", "other"],
        ["mine-exchange", "x"],
        ["other", "a/b"],
        ["other", ".x.tmp"],
        ["s", "x"],
    ):
        assert len(said(results, capsys, "rename", *words, code=2)) == 1
    for word, told in {"compar": "did you mean compare?", "rm": "did you mean delete?", "rename": "OLD NEW"}.items():
        assert told in said(results, capsys, word, "other", code=2)[0]


def test_what_is_deleted_is_what_nobody_else_uses(results: Path, capsys) -> None:
    """Runs first, so that the same command goes on after an interruption; nothing of a study that is being trained."""
    shared, *alone = (Run(results, run.path) for run in read_manifest(results, "s").runs)
    before, lines = all_files(results), said(results, capsys, "delete", "s")
    assert lines[-1] == clean.UNSURE and all_files(results) == before
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


def test_two_studies_and_a_new_one_beside_those_there_are(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = study_folder(results, "s-confirm-2") / "manifest.json"
    edit_json(file, lambda told: [cell["config"]["train"].update(steps=1200) for cell in told["cells"]])
    lines = said(results, capsys, "compare", "s", "s-confirm-2")
    assert ["train.steps", "800", "1,200"] in [line.split() for line in lines]
    effect = next(i for i, line in enumerate(lines) if line.startswith("  ffn: swiglu − mlp  A  −0.05"))
    assert lines[effect + 1].split()[0] == "B" and "[" in lines[effect + 1]
    (results / "runs" / read_manifest(results, "s").runs[0].path / "result.json").write_text("{")
    assert any("result.json is not readable" in line for line in said(results, capsys, "compare", "s", "s-confirm-2"))
    new = replace(read_manifest(results, "s-confirm-2"), study="new", confirms=None)
    assert diff.similar_study(results, new) == "like s but for train.steps 800 → 1,200"


def test_other_data_of_equal_settings_are_a_difference(tmp_path: Path) -> None:
    fabricate(tmp_path, {"norm": ["ln", "rms"]})
    one = read_manifest(tmp_path, "fabricated")
    task = next(iter(one.tasks.values()))
    cells = [replace(cell, task="0123456789") for cell in one.cells]
    other = replace(one, cells=cells, tasks={"0123456789": replace(task, name="mine")})
    [row] = diff.study_differences(one, other)
    assert (row.key, row.second) == ("data", "mine (01234567)") and diff.study_differences(one, one) == []
