"""The tables: every digit in CSV, the reading in Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from fake_studies import fabricate

from ablate import evidence, formatting
from ablate.results.study import Study, load_study
from analysis.case import case_of
from analysis.writing import tables
from analysis.writing.sentences import sentence

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def written(tmp_path: Path, factors: dict[str, list[Any]] = GRID, **options: Any) -> tuple[Study, Path]:
    study = load_study(tmp_path, fabricate(tmp_path, factors, **options))
    folder = tmp_path / "out"
    folder.mkdir()
    tables.write(case_of(study, tmp_path), folder)
    return study, folder


def cell(page: str, name: str) -> list[str]:
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    return [part.strip() for part in line.strip("|").split("|")]


def test_csv_keeps_every_digit(tmp_path: Path) -> None:
    study, folder = written(tmp_path)
    read = pandas.read_csv(folder / "effects.csv")
    expected = evidence.effects(study)
    assert list(read.columns) == list(expected.columns) and len(read) == 6
    assert read["mean"].tolist() == expected["mean"].tolist() and read["low"].tolist() == expected["low"].tolist()
    assert pandas.read_csv(folder / "cells.csv")["sd"].tolist() == evidence.cells(study)["sd"].tolist()
    assert len(pandas.read_csv(folder / "runs.csv")) == 12


def test_cells_show_what_was_lost(tmp_path: Path) -> None:
    ends = ["diverged", "failed", "missing", "done"]
    _, folder = written(
        tmp_path, seeds=range(4), status=lambda v, s: ends[s] if v == {"norm": "rms", "ffn": "mlp"} else "done"
    )
    page = (folder / "cells.md").read_text()
    assert cell(page, "rms + mlp")[2:6] == ["1 of 4", "1 of 2 [9 %, 91 %]", "1", "1"]
    assert cell(page, "rms + mlp")[1].endswith("(one seed)")
    assert cell(page, "ln + mlp (reference)")[2:] == ["4 of 4", "0 of 4 [0 %, 49 %]", "0", "0", "123,456", ""]
    assert "1 run diverged: rms + mlp seed 0" in page and "1 run failed: rms + mlp seed 1" in page


def test_what_is_withheld_has_no_difference_in_any_table(tmp_path: Path) -> None:
    claim = {"claim": {"less": [{"norm": "rms"}, {"norm": "ln"}]}, "written": "", "registered": True, "earlier": []}
    status = lambda v, s: "diverged" if v["norm"] == "rms" and not s else "done"  # noqa: E731
    _, folder = written(tmp_path, {"norm": ["ln", "rms"]}, seeds=range(6), status=status, claims={"a": claim})
    assert cell((folder / "effects.md").read_text(), "norm: rms − ln")[4] == "–"
    assert cell((folder / "particulars.md").read_text(), "norm: rms − ln")[1:3] == ["–", "paired"]
    assert cell((folder / "claims.md").read_text(), "a")[3:5] == ["–", "–"]


def test_effects_say_family_and_exploratory(tmp_path: Path) -> None:
    study, folder = written(tmp_path, seeds=range(6))
    page = (folder / "effects.md").read_text()
    row = next(evidence.effects(study).query("label == 'ffn: swiglu − mlp'").itertuples())
    shown = cell(page, "ffn: swiglu − mlp")
    assert shown[1:3] == ["6", "0"] and shown[4:] == [
        formatting.p_text(row.p_holm),
        "better (lower loss)",
        "family",
    ]
    assert row.p_holm < 0.001 and f"Holm p {shown[4]}" in sentence(study.manifest, row).replace("p = ", "p ")
    numbers = shown[3].replace("−", "-").replace("[", "").replace("]", "").replace(",", "").split()
    assert [float(number) for number in numbers] == pytest.approx([row.mean, row.low, row.high], abs=6e-4)
    assert cell(page, "rms + mlp against ln + mlp")[-1] == "exploratory"
    assert "simultaneous over the 3 rows of the family (Bonferroni-t)" in page


def test_one_seed_and_later_looks_are_said(tmp_path: Path) -> None:
    _, folder = written(tmp_path, seeds=[0])
    page = (folder / "effects.md").read_text()
    assert "a single seed can conclude nothing" in page and "[−" not in page and "nan" not in page
    (tmp_path / "more").mkdir()
    _, folder = written(tmp_path / "more", seeds=range(5), looks=[{"seeds": [0, 1], "when": ""}])
    assert "unadjusted: seeds were added after a look at 2 of the 5" in (folder / "effects.md").read_text()


def test_a_bar_in_a_name_does_not_break_the_table(tmp_path: Path) -> None:
    _, folder = written(tmp_path, {"ffn": ["mlp", "a|b"]})
    lines = [line for line in (folder / "cells.md").read_text().splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in lines} == {9}


def test_what_vectors_took_stands_beside_the_cells_that_have_any(tmp_path: Path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}))
    took = study.runs["seed"].add(1.5).where(study.runs["cell"] == "c1")
    shown = tables.cells_sheet(case_of(replace(study, runs=study.runs.assign(vectors_seconds=took)), tmp_path))
    at = [head.replace("\n", " ") for head in shown.head].index("vectors, CPU-s")
    assert [row[at] for row in shown.rows] == ["–", "2.5"]


def test_nothing_done_is_missing_not_a_number(tmp_path: Path) -> None:
    _, folder = written(tmp_path, status=lambda levels, seed: "missing")
    page = (folder / "cells.md").read_text()
    assert cell(page, "ln + swiglu")[1:6] == ["–", "0 of 3", "none ended", "0", "3"]
    assert "nan" not in page + (folder / "effects.md").read_text()
