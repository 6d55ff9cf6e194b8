"""python -m analysis export: tables to go on with elsewhere, and that come back as they went."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas
import pytest
from fake_studies import fabricate

from ablate.runs.study import load_study
from analysis.cli.main import main

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def export(tmp_path: Path, *arguments: str) -> int:
    return main(["export", "--results-dir", str(tmp_path), *arguments])


def test_runs_and_curves_are_written_where_one_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate(tmp_path, GRID)
    assert export(tmp_path) == 0 and export(tmp_path, "fabricated", "--to", str(tmp_path / "out")) == 0
    study = load_study(tmp_path, "fabricated")
    for folder in (tmp_path / "figures" / "fabricated", tmp_path / "out"):
        runs, curves = pandas.read_csv(folder / "runs.csv"), pandas.read_parquet(folder / "curves.parquet")
        assert runs["test/loss"].tolist() == study.runs["test/loss"].tolist()
        assert runs["path"].tolist() == study.runs["path"].tolist()
        assert len(curves) == len(study.curves) and list(curves) == list(study.curves)
        np.testing.assert_array_equal(curves["val/loss"], study.curves["val/loss"])
        assert list(curves["norm"]) == list(study.curves["norm"]) and set(curves["norm"]) == {"ln", "rms"}
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{tmp_path}/figures/fabricated/runs.csv  12 runs" and said[1].endswith("252 logged steps")


def test_nothing_is_written_without_what_parquet_needs(tmp_path, capsys, monkeypatch):
    fabricate(tmp_path, GRID)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert export(tmp_path) == 2 and not (tmp_path / "figures").exists()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "pip install -e '.[export]'" in said


def test_a_study_without_curves_and_one_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate(tmp_path, GRID, status=lambda levels, seed: "missing")
    assert export(tmp_path) == 0 and "no curves: nothing was logged" in capsys.readouterr().out
    assert not (tmp_path / "figures" / "fabricated" / "curves.parquet").exists()
    assert export(tmp_path, "fabricatde") == 2 and "did you mean fabricated?" in capsys.readouterr().err
