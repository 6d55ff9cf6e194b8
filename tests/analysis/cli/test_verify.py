"""python -m analysis verify: a figure's file says what it was made of, and whether that still holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_studies import fabricate
from PIL import Image

from ablate.results.atomic import write_json
from ablate.results.manifest import study_folder
from ablate.results.study import load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli.main import main
from analysis.figures import stamp
from analysis.figures.draw.page import page_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """The folder of a study's figures: only the effects."""
    name = fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]})
    folder = tmp_path / "figures" / name
    folder.mkdir(parents=True)
    (folder / "figures.yaml").write_text("subset: {figures: [effects]}\n")
    figures.write(case_of(load_study(tmp_path, name), folder), folder)
    return folder


def verify(file: Path, results: Path, capsys: Capture) -> tuple[int, str]:
    code = main(["verify", str(file), "--results-dir", str(results)])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_both_files_carry_the_study_the_hashes_and_the_command(drawn: Path) -> None:
    found = [stamp.read_stamp((drawn / f"effects.{kind}").read_bytes()) for kind in ("pdf", "png")]
    assert found[0] == found[1] and found[0] is not None
    assert found[0]["study"] == "fabricated" and found[0]["command"] == "ablate analyse fabricated"
    assert found[0]["analysis"] == stamp.source_hash() and len(found[0]["runs"].split(",")) == 6
    assert b"CreationDate" not in (drawn / "effects.pdf").read_bytes()
    with Image.open(drawn / "effects.png") as image:
        assert image.text["Title"] == "effects of fabricated"  # type: ignore[attr-defined]


def test_a_figure_of_todays_results_matches(drawn: Path, tmp_path: Path, capsys: Capture) -> None:
    for kind in ("pdf", "png"):
        assert verify(drawn / f"effects.{kind}", tmp_path, capsys) == (
            0,
            f"{drawn}/effects.{kind}: matches fabricated\n",
        )


def test_a_damaged_study_is_refused_in_one_line(drawn: Path, tmp_path: Path, capsys: Capture) -> None:
    manifest = study_folder(tmp_path, "fabricated") / "manifest.json"
    content = json.loads(manifest.read_text())
    write_json(manifest, content | {"cells": [{"id": "c0"}]})
    code, said = verify(drawn / "effects.pdf", tmp_path, capsys)
    assert code == 2 and "has no cells[0].name" in said and said.count("\n") == 1


def test_a_changed_run_is_named(drawn: Path, tmp_path: Path, capsys: Capture) -> None:
    result = next((tmp_path / "runs").glob("*swiglu*/s1-*/result.json"))
    content = json.loads(result.read_text())
    content["final"]["test/loss"] += 1e-6
    write_json(result, content)
    code, said = verify(drawn / "effects.pdf", tmp_path, capsys)
    assert code == 1 and "the table differs" in said and "1 run changed: swiglu seed 1\n" in said


def test_edits_that_came_later_are_told_from_runs(drawn: Path, tmp_path: Path, capsys: Capture) -> None:
    (drawn / "figures.yaml").write_text("labels: {swiglu: SwiGLU}\n")
    code, said = verify(drawn / "effects.png", tmp_path, capsys)
    assert code == 1 and "figures.yaml has changed since; no run has changed" in said


def test_other_code_with_the_same_table(
    drawn: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamp, "source_hash", lambda: "0" * 16)
    assert verify(drawn / "effects.pdf", tmp_path, capsys)[1].endswith(
        "made by other analysis code; it gives the same table\n"
    )
    assert main(["verify", str(drawn / "effects.pdf"), "--results-dir", str(tmp_path)]) == 1


def test_what_cannot_be_told(drawn: Path, tmp_path: Path, capsys: Capture) -> None:
    foreign = tmp_path / "foreign.png"
    Image.new("RGB", (2, 2)).save(foreign)
    torn = tmp_path / "torn.pdf"
    torn.write_bytes((drawn / "effects.pdf").read_bytes()[:200])
    for file in (foreign, torn):
        code, said = verify(file, tmp_path, capsys)
        assert code == 2 and "is no figure of ablate analyse" in said and said.count("\n") == 1
    assert verify(tmp_path / "none.pdf", tmp_path, capsys)[0] == 2
    (tmp_path / "studies" / "fabricated" / "manifest.json").unlink()
    code, said = verify(drawn / "effects.pdf", tmp_path, capsys)
    assert code == 2 and "no study" in said


def test_figures_of_a_csv(tmp_path: Path, capsys: Capture) -> None:
    rows = [f"{ffn},{seed},{2 + seed / 100 - (ffn == 'glu') / 10}" for ffn in ("mlp", "glu") for seed in range(5)]
    table = tmp_path / "my runs.csv"
    table.write_text("\n".join(["ffn,seed,test/loss", *rows]) + "\n")
    assert main(["--runs", str(table), "--results-dir", str(tmp_path)]) == 0
    file = tmp_path / "figures" / "my runs" / "effects.pdf"
    assert verify(file, tmp_path, capsys)[0] == 0
    found = stamp.read_stamp(file.read_bytes())
    assert found is not None and found["content"] == stamp.content(found["command"]) != ""
    report = (file.parent / "report.md").read_text()
    assert "lines join the runs of a seed\n" in report  # whether they saw equal batches, the CSV does not say
    table.write_text(table.read_text().replace("2.04", "2.05"))
    code, said = verify(file, tmp_path, capsys)
    assert code == 1 and "1 run changed: mlp seed 4" in said
    table.unlink()
    assert verify(file, tmp_path, capsys)[0] == 2


def test_the_hash_of_a_table_is_of_all_that_is_drawn(tmp_path: Path) -> None:
    case = case_of(load_study(tmp_path, fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]})), tmp_path)
    table, page = figures.tables(case)["seeds"], page_of(case.study.manifest, figures.Edits())
    first = stamp.table_hash(table, page)
    assert first == stamp.table_hash(table.copy(), page)
    close = table.assign(value=table["value"] * (1 + 1e-14))  # a sum in another order
    assert stamp.table_hash(close, page) == first
    others = [table.assign(value=table["value"] * (1 + 1e-8)), table.rename(columns={"name": "label"}), table.head(3)]
    told = table.copy()
    told.attrs = {**table.attrs, "caption": ["x"]}
    hashes = {stamp.table_hash(each, page) for each in [*others, told]}
    hashes |= {stamp.table_hash(table, page._replace(width=3.3)), first}
    assert len(hashes) == 6


def test_comments_are_no_other_code() -> None:
    code = 'def f(a: int) -> int:\n    """One."""\n    return a + 1  # why\n'
    assert stamp._code(code) == stamp._code('def f(a: int) -> int:\n    """Two."""\n\n    return (a + 1)\n')
    assert stamp._code(code) != stamp._code(code.replace("+ 1", "+ 2"))


def test_a_figure_is_held_against_the_results_that_it_lies_in(
    drawn: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["verify", str(drawn / "effects.pdf")]) == 0
    moved = tmp_path / "effects.pdf"
    moved.write_bytes((drawn / "effects.pdf").read_bytes())
    assert main(["verify", str(moved)]) == 2 and "no results folder at results" in capsys.readouterr().err
    assert main(["verify", str(drawn / "effects.pdf"), "--results-dir", "none"]) == 2
