"""python -m analysis export: tables to go on with elsewhere, and that come back as they went."""

import importlib.util
from pathlib import Path

import pandas
from analysed_studies import refused_line
from fake_studies import fabricate

from ablate.runs.study import load_study
from analysis.cli.main import main

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def export(tmp_path: Path, *arguments: str) -> int:
    return main(["export", "--results-dir", str(tmp_path), *arguments])


def test_runs_and_curves_are_written_where_one_says(tmp_path, capsys):
    fabricate(tmp_path, GRID)
    assert export(tmp_path) == 0
    assert export(tmp_path, "fabricated", "--to", str(tmp_path / "out")) == 0
    study = load_study(tmp_path, "fabricated")
    for folder in (tmp_path / "figures" / "fabricated", tmp_path / "out"):
        runs = pandas.read_csv(folder / "runs.csv")
        for column in ("test/loss", "path", "norm"):
            assert runs[column].tolist() == study.runs[column].tolist()
        pandas.testing.assert_frame_equal(
            pandas.read_parquet(folder / "curves.parquet"), study.curves, check_dtype=False, check_exact=True
        )
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [f"{tmp_path}/figures/fabricated/{name}" for name in ("runs.csv", "curves.parquet")]


def test_nothing_is_written_without_what_parquet_needs(tmp_path, capsys, monkeypatch):
    fabricate(tmp_path, GRID)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = refused_line(capsys, "export", "--results-dir", str(tmp_path))
    assert "pip install -e '.[export]'" in said
    assert not (tmp_path / "figures").exists()


def test_a_study_without_curves_and_one_that_is_not_there(tmp_path, capsys):
    fabricate(tmp_path, GRID, status=lambda levels, seed: "missing")
    assert export(tmp_path) == 0
    assert not (tmp_path / "figures" / "fabricated" / "curves.parquet").exists()
    assert capsys.readouterr().out == f"{tmp_path}/figures/fabricated/runs.csv\n"
    said = refused_line(capsys, "export", "fabricatde", "--results-dir", str(tmp_path))
    assert "did you mean fabricated?" in said
