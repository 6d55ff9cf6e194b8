"""python -m analysis: what it writes, how it refuses, what it never loads."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from analysed_studies import analysed
from conftest import ROOT
from fake_studies import draw_effects_alone, fabricate
from shown_studies import claim

import ablate
import analysis
from ablate.config.errors import Refused
from ablate.python import Study
from ablate.runs.kept_tables import write_tables
from ablate.runs.manifest import study_folder
from ablate.runs.study import load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli.main import main
from analysis.sources import read, read_saved

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
Capture = pytest.CaptureFixture[str]
FIGURES = [f"{name}.{kind}" for name in ("curves", "effects") for kind in ("pdf", "png")]
TABLES = ["runs.csv", "cells.csv", "effects.csv", "cells.md", "effects.md"]


def test_everything_is_written_and_listed() -> None:
    folder = analysed()
    said = (folder.parents[1] / "printed.txt").read_text().splitlines()
    written = {path.name for path in folder.iterdir()} - {".written.json"}
    assert said[-1] == f"{len(written)} files in {folder}; to read: {folder / 'report.html'}"
    assert written >= set(FIGURES + TABLES)
    assert all((folder / name).stat().st_size > 100 for name in FIGURES + TABLES)
    end = "better (lower loss)"
    assert any(line.startswith("FFN: SwiGLU − ReLU MLP  −0.05") and line.endswith(end) for line in said)


def test_a_study_called_as_a_command_is_refused_and_one_that_is_there_is_reached(tmp_path, capsys, undrawn):
    from ablate.config.key_checks import TAKEN
    from analysis.cli.main import COMMANDS

    assert set(TAKEN) == set(COMMANDS)
    fabricate(tmp_path, {"norm": ["ln"]}, study="export", seeds=[0])
    assert main(["--results-dir", str(tmp_path), "--", "export"]) == 0
    assert "files in" in capsys.readouterr().out and (tmp_path / "figures" / "export" / "report.md").exists()


def test_a_style_of_the_command_line_is_kept_in_figures_yaml(tmp_path: Path, capsys: Capture) -> None:
    fabricate(tmp_path, {"norm": ["ln", "rms"]}, seeds=[0, 1])
    draw_effects_alone(tmp_path, "fabricated")
    where, file = ["--results-dir", str(tmp_path)], tmp_path / "figures" / "fabricated" / "figures.yaml"
    before = file.read_text()
    assert main(["fabricated", "style=nips", *where]) == 2 and file.read_text() == before
    assert capsys.readouterr().err == "ablate analyse: style=nips: no such style; did you mean neurips?\n"
    assert main(["style=acl", *where]) == 0 and file.read_text() == f"style: acl\n{before}"
    assert f"style=acl is kept in {file}" in capsys.readouterr().out
    assert main(["sort=size", *where]) == 2 and "sort=size: no such sort" in capsys.readouterr().err
    assert main(["sort=effect", *where]) == 0 and file.read_text() == f"sort: effect\nstyle: acl\n{before}"
    assert main(["verify", str(file.with_name("effects.png"))]) == 0


def test_the_newest_study_is_meant_unless_one_is_named(tmp_path: Path) -> None:
    for age, name in enumerate(["third", "first", "second"]):
        fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, study=name)
        os.utime(study_folder(tmp_path, name) / "manifest.json", (1e9 - age, 1e9 - age))
    assert read(tmp_path, None).manifest.study == "third"
    assert read(tmp_path, "second").manifest.study == "second"


def test_help_and_a_refusal_load_no_library_of_numbers(tmp_path: Path) -> None:
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


def test_what_an_earlier_analysis_wrote_does_not_stay(tmp_path: Path, capsys: Capture, undrawn: None) -> None:
    def analysed(results: Path, **options: Any) -> str:
        fabricate(results, {"ffn": ["mlp", "swiglu"]}, **options)
        assert main(["--results-dir", str(results), "--to", str(folder)]) == 0
        return capsys.readouterr().out

    folder = tmp_path / "to"
    claims = {"lower": claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}])}
    assert "removed" not in analysed(tmp_path / "first", claims=claims)
    mine = folder / "divergence.png"
    mine.write_text("of the user")
    (folder / "claims.tex").write_text("edited by hand")
    assert (folder / "claims.md").exists()
    said = analysed(tmp_path / "second")
    assert "removed, of an earlier analysis: " in said and "claims.md" in said
    assert not (folder / "claims.md").exists() and (folder / "effects.md").exists()
    assert mine.read_text() == "of the user" and (folder / "claims.tex").read_text() == "edited by hand"


def test_a_full_disk_leaves_the_earlier_files_whole_and_says_so(tmp_path, capsys, monkeypatch):
    fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]})
    draw_effects_alone(tmp_path)
    folder = tmp_path / "figures" / "fabricated"
    assert main(["--results-dir", str(tmp_path)]) == 0
    capsys.readouterr()
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    fitting = iter(["effects.png", "effects.pdf", "runs.csv"])

    def full(descriptor: int) -> None:
        if next(fitting, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (folder / "figures.yaml").write_text("subset: {figures: [effects]}\nlabels: {swiglu: SwiGLU}\n")
    said = refused(capsys, "--results-dir", str(tmp_path))
    assert "cannot write" in said and "No space left on device" in said
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(after) == set(before), "something half written stayed"
    assert {name for name in before if after[name] != before[name]} == {"figures.yaml", "effects.png", "effects.pdf"}
    assert after["effects.pdf"].endswith(b"%%EOF\n") and after["effects.png"].endswith(b"IEND\xaeB`\x82")


def refused(capsys: Capture, *arguments: str) -> str:
    """The one line with which a command line is refused."""
    assert main(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


def test_no_results_folder_no_study_and_no_place_to_write(tmp_path: Path, capsys: Capture) -> None:
    assert f"no study in {tmp_path}" in refused(capsys, "--results-dir", str(tmp_path))
    assert f"no results folder at {tmp_path}/none" in refused(capsys, "--results-dir", f"{tmp_path}/none")
    assert not (tmp_path / "none").exists()
    for name in ("norm-ffn-3fa94c", "position-11aa22"):
        fabricate(tmp_path, {"ffn": ["mlp"]}, [0], study=name)
    said = refused(capsys, "norm-fnn", "--results-dir", str(tmp_path))
    assert said.endswith("did you mean norm-ffn-3fa94c?\n")
    assert "there are norm-ffn-3fa94c, position-11aa22" in refused(capsys, "zzz", "--results-dir", str(tmp_path))
    assert "no study ../runs" in refused(capsys, "../runs", "--results-dir", str(tmp_path))
    fabricate(tmp_path, GRID)
    (tmp_path / "figures").write_text("")
    assert "cannot write" in refused(capsys, "--results-dir", str(tmp_path))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tables of a study whose results are gone, in the folder where commands are given."""
    name = fabricate(tmp_path / "other", {"ffn": ["mlp", "swiglu"]}, seeds=range(5))
    write_tables(load_study(tmp_path / "other", name), tmp_path / "kept" / name)
    shutil.rmtree(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "figures.yaml").write_text("subset: {figures: [effects]}\n")
    return Path("kept") / name


def test_a_folder_of_tables_is_analysed_in_place_of_a_study(kept: Path, capsys: Capture, undrawn: None) -> None:
    assert main([str(kept)]) == 0 and "FFN: SwiGLU − ReLU MLP" in capsys.readouterr().out
    assert Path("results/figures/fabricated/report.html").exists()
    assert read(Path("results"), str(kept.absolute())).manifest == read_saved(kept).manifest


def test_figures_beside_tables_are_held_against_them(kept: Path, capsys: Capture) -> None:
    shutil.copy("figures.yaml", kept)
    figures.write(case_of(read_saved(kept), kept), kept)
    assert main(["verify", str(kept / "effects.png")]) == 0
    assert "matches fabricated" in capsys.readouterr().out
    study = read_saved(kept)
    study.runs.loc[study.runs["seed"] == 1, "test/loss"] += 1e-6 * (study.runs["cell"] == "c1")
    write_tables(study, kept)
    assert main(["verify", str(kept / "effects.pdf")]) == 1
    assert "1 run changed: swiglu seed 1" in capsys.readouterr().out
    (kept / "runs.csv").write_text("")
    assert main(["verify", str(kept / "effects.pdf")]) == 2 and "runs.csv is damaged" in capsys.readouterr().err


def test_tables_are_never_written_over(kept: Path, capsys: Capture) -> None:
    before = {file: file.read_bytes() for file in kept.iterdir()}
    for command in ([], ["export"]):
        assert main([*command, str(kept), "--to", str(kept)]) == 2
        assert "--to" in capsys.readouterr().err and {file: file.read_bytes() for file in kept.iterdir()} == before


@pytest.mark.parametrize("name", ["manifest.json", "runs.csv", "curves.csv", "tables.json"])
def test_what_is_damaged_is_named_in_one_line(kept: Path, name: str, capsys: Capture) -> None:
    (kept / name).unlink()
    assert main([str(kept)]) == 2 and not Path("results").exists()
    said = capsys.readouterr().err
    assert str(kept / name) in said and said.count("\n") == 1


def test_a_study_of_the_results_comes_first(kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    fabricate(Path("results").absolute(), {"norm": ["ln", "rms"]})
    monkeypatch.chdir(kept.parent)
    assert list(read(Path("../results"), "fabricated").manifest.factors) == ["norm"]
    assert main(["../kept", "--results-dir", "../results"]) == 2 and "no study ../kept" in capsys.readouterr().err


@pytest.fixture
def study(tmp_path: Path) -> Study:
    fabricate(tmp_path, GRID)
    found = ablate.load(tmp_path / "studies" / "fabricated")
    assert isinstance(found, Study)
    return found


def test_a_figure_that_there_is_not_is_told(study: Study) -> None:
    with pytest.raises(Refused, match="did you mean effects"):
        analysis.plot(study, "efects")
    with pytest.raises(Refused, match=r"no data for the figure ladder; there are .*effects"):
        analysis.plot(study, "ladder")


def test_the_report_is_that_of_the_command(study: Study, tmp_path: Path, undrawn: None) -> None:
    page = analysis.report(study)
    assert page == tmp_path / "figures" / "fabricated" / "report.html"
    assert main(["--results-dir", str(tmp_path), "--to", str(tmp_path / "other")]) == 0
    files = {file.name for file in (tmp_path / "other").iterdir()}
    assert {file.name for file in page.parent.iterdir()} == files and "effects.tex" in files
    assert page.read_text() == (tmp_path / "other" / "report.html").read_text()
