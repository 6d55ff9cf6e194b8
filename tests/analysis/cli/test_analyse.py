"""python -m analysis: what it writes, how it refuses, what it never loads."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from analysed_studies import analysed, refused_line
from conftest import ROOT
from fake_studies import draw_effects_alone, fabricate

import ablate
import analysis
from ablate.config.key_checks import TAKEN
from ablate.python import Study
from ablate.runs.kept_tables import write_tables
from ablate.runs.manifest import study_folder
from ablate.runs.study import load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli.main import COMMANDS, main
from analysis.sources import read, read_saved

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
Capture = pytest.CaptureFixture[str]
WRITTEN = {"curves.pdf", "curves.png", "effects.pdf", "effects.png", "effects.csv", "effects.md", "effects.tex"}
WRITTEN |= {"runs.csv", "cells.csv", "cells.md", "methods.tex", "effects-full.tex", "cells.tex"}


def test_everything_is_written_and_listed():
    folder = analysed()
    said = (folder.parents[1] / "printed.txt").read_text().splitlines()
    written = {path.name for path in folder.iterdir()}
    assert said[-1] == f"{len(written)} files in {folder}; to read: {folder / 'report.html'}"
    assert written >= WRITTEN
    assert all((folder / name).stat().st_size > 100 for name in WRITTEN)
    [line] = [line for line in said if line.startswith("FFN: SwiGLU − ReLU MLP  −0.05")]
    assert line.endswith("better (lower loss)")


def test_a_study_called_as_a_command_is_reached_after_two_dashes(tmp_path, undrawn):
    assert set(TAKEN) == set(COMMANDS), "no study can be planned under such a name"
    fabricate(tmp_path, {"norm": ["ln"]}, study="export", seeds=[0])
    assert main(["--results-dir", str(tmp_path), "--", "export"]) == 0
    assert (tmp_path / "figures" / "export" / "report.md").exists()


def test_the_newest_study_is_meant_unless_one_is_named(tmp_path):
    for age, name in enumerate(["third", "first", "second"]):
        fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, study=name)
        os.utime(study_folder(tmp_path, name) / "manifest.json", (1e9 - age, 1e9 - age))
    assert read(tmp_path, None).manifest.study == "third"
    assert read(tmp_path, "second").manifest.study == "second"


def test_help_and_a_refusal_load_no_library_of_numbers(tmp_path):
    fabricate(tmp_path, GRID)
    code = (
        "import sys, analysis.cli.main as command\n"
        f"assert command.main(['nobody', '--results-dir', {str(tmp_path)!r}]) == 2\n"
        "try: command.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'numpy', 'pandas', 'scipy', 'matplotlib', 'plotly', 'jinja2'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout.endswith("set()\n") and "--runs PATH" in ended.stdout, ended.stdout + ended.stderr


def test_a_full_disk_leaves_the_earlier_files_whole_and_says_so(tmp_path, capsys, monkeypatch):
    fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]})
    draw_effects_alone(tmp_path)
    folder = tmp_path / "figures" / "fabricated"
    assert main(["--results-dir", str(tmp_path)]) == 0
    capsys.readouterr()
    (folder / "figures.yaml").write_text("subset: {figures: [effects]}\nlabels: {swiglu: SwiGLU}\n")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    fitting = iter(["effects.png", "effects.pdf", "runs.csv"])

    def full(descriptor: int) -> None:
        if next(fitting, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = refused_line(capsys, "--results-dir", str(tmp_path))
    assert "cannot write" in said
    assert "No space left on device" in said
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(after) == set(before), "something half written stayed"
    assert {name for name in before if after[name] != before[name]} == {"effects.png", "effects.pdf"}
    assert after["effects.pdf"].endswith(b"%%EOF\n")
    assert after["effects.png"].endswith(b"IEND\xaeB`\x82")


def test_no_results_folder_no_study_and_no_place_to_write(tmp_path, capsys):
    results = ["--results-dir", str(tmp_path)]
    assert f"no study in {tmp_path}" in refused_line(capsys, *results)
    assert f"no results folder at {tmp_path}/none" in refused_line(capsys, "--results-dir", f"{tmp_path}/none")
    assert not (tmp_path / "none").exists()
    for name in ("norm-ffn-3fa94c", "position-11aa22"):
        fabricate(tmp_path, {"ffn": ["mlp"]}, [0], study=name)
    assert refused_line(capsys, "norm-fnn", *results).endswith("did you mean norm-ffn-3fa94c?\n")
    assert "there are norm-ffn-3fa94c, position-11aa22" in refused_line(capsys, "zzz", *results)
    assert "no study ../runs" in refused_line(capsys, "../runs", *results)
    (tmp_path / "figures").write_text("")
    assert "cannot write" in refused_line(capsys, "position-11aa22", *results)


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    """The tables of a study whose results are gone, in the folder where commands are given."""
    name = fabricate(tmp_path / "other", {"ffn": ["mlp", "swiglu"]}, seeds=range(5))
    write_tables(load_study(tmp_path / "other", name), tmp_path / "kept" / name)
    shutil.rmtree(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "figures.yaml").write_text("subset: {figures: [effects]}\n")
    return Path("kept") / name


def test_a_folder_of_tables_is_analysed_in_place_of_a_study(kept, capsys, undrawn):
    assert main([str(kept)]) == 0 and "FFN: SwiGLU − ReLU MLP" in capsys.readouterr().out
    assert Path("results/figures/fabricated/report.html").exists()
    assert read(Path("results"), str(kept.absolute())).manifest == read_saved(kept).manifest


def test_figures_beside_tables_are_held_against_them(kept, capsys):
    shutil.copy("figures.yaml", kept)
    study = read_saved(kept)
    figures.write(case_of(study, kept), kept)
    assert main(["verify", str(kept / "effects.png")]) == 0
    assert "matches fabricated" in capsys.readouterr().out
    study.runs.loc[study.runs["seed"] == 1, "test/loss"] += 1e-6 * (study.runs["cell"] == "c1")
    write_tables(study, kept)
    assert main(["verify", str(kept / "effects.pdf")]) == 1
    assert "1 run changed, new or gone: swiglu seed 1" in capsys.readouterr().out


def test_tables_are_never_written_over(kept, capsys):
    before = {file: file.read_bytes() for file in kept.iterdir()}
    for command in ([], ["export"]):
        assert "--to" in refused_line(capsys, *command, str(kept), "--to", str(kept))
    assert {file: file.read_bytes() for file in kept.iterdir()} == before


@pytest.mark.parametrize("name", ["manifest.json", "runs.csv", "curves.csv", "tables.json"])
def test_what_is_damaged_is_named_in_one_line(kept, name, capsys):
    (kept / name).unlink()
    assert str(kept / name) in refused_line(capsys, str(kept))
    assert not Path("results").exists()


def test_the_report_is_that_of_the_command(tmp_path, undrawn):
    fabricate(tmp_path, GRID)
    study = ablate.load(tmp_path / "studies" / "fabricated")
    assert isinstance(study, Study)
    page = analysis.report(study)
    assert page == tmp_path / "figures" / "fabricated" / "report.html"
    assert main(["--results-dir", str(tmp_path), "--to", str(tmp_path / "other")]) == 0
    files = {file.name: file.read_bytes() for file in (tmp_path / "other").iterdir()}
    assert {file.name for file in page.parent.iterdir()} == files.keys()
    assert page.read_bytes() == files["report.html"]
