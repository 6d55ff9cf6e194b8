"""ablate analyse on a folder that holds a study's tables and none of its runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_studies import draw_effects_alone, fabricate

from ablate.results.kept_tables import write_tables
from ablate.results.study import load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli.main import main
from analysis.sources import read_kept

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tables of a study whose results are gone, in the folder where commands are given."""
    name = fabricate(tmp_path / "other", {"ffn": ["mlp", "swiglu"]}, seeds=range(5))
    write_tables(load_study(tmp_path / "other", name), tmp_path / "kept" / name)
    shutil.rmtree(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "figures.yaml").write_text("subset: {figures: [effects]}\n")
    return Path("kept") / name


def test_a_folder_of_tables_is_analysed_in_place_of_a_study(kept: Path, capsys: Capture) -> None:
    draw_effects_alone(Path("results"))
    shutil.copytree("results/figures/fabricated", "elsewhere")
    assert main([str(kept)]) == 0 and main([str(kept.absolute()), "--to", "elsewhere"]) == 0
    assert "ffn: swiglu − mlp" in capsys.readouterr().out
    ours, others = Path("results/figures/fabricated"), Path("elsewhere")
    assert {file.name for file in ours.iterdir()} == {file.name for file in others.iterdir()} > {"effects.pdf"}
    assert (ours / "effects.csv").read_bytes() == (others / "effects.csv").read_bytes()


def test_figures_beside_tables_are_held_against_them(kept: Path, capsys: Capture) -> None:
    shutil.copy("figures.yaml", kept)
    figures.write(case_of(read_kept(kept), kept), kept)
    assert main(["verify", str(kept / "effects.png")]) == 0
    assert "matches fabricated" in capsys.readouterr().out
    assert main(["verify", str(kept / "effects.png"), "--results-dir", "none"]) == 2
    study = read_kept(kept)
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
    draw_effects_alone(Path("../results"))
    shutil.copytree("../results/figures/fabricated", "out")
    assert main(["fabricated", "--results-dir", "../results", "--to", "out"]) == 0
    assert "norm: rms − ln" in capsys.readouterr().out
    assert main(["../kept", "--results-dir", "../results"]) == 2 and "no study ../kept" in capsys.readouterr().err
