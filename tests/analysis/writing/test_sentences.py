"""Sentences of effects: what was found, what it rests on, what it is worth, and where it holds."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from analysed_studies import analysed, case
from fake_studies import fabricate, whole, with_cells
from ladders import climbed
from shown_studies import claim

from ablate import evidence
from ablate.config.typed_json import stored
from ablate.formatting import p_text, p_words
from ablate.runs.records import Cell
from ablate.runs.study import Study, load_study
from analysis.case import Case, case_of
from analysis.writing import sections, tables
from analysis.writing.sentences import sentence, sentences


def about(found: Case, label: str, **changed: Any) -> str:
    """The sentence of a row, with some of its numbers changed."""
    row = next(found.effects[found.effects["label"] == label].assign(**changed).itertuples())
    contrasts = {each.label: each for each in evidence.contrasts(found.study.manifest)}
    return sentence(found.study.manifest, row, contrasts[label])


def test_a_decided_effect_is_told_by_its_size_its_interval_its_grounds_and_its_scope(tmp_path: Path) -> None:
    found = case(tmp_path, seeds=range(8))
    row = next(found.effects.query("factor == 'ffn'").itertuples())
    said = sentences(found)[1]
    pattern = (
        r"SwiGLU in place of ReLU MLP lowers the test loss by 0\.(\d+) \[0\.(\d+), 0\.(\d+)\] nats per byte, "
        r"averaged over norm \(8 seeds, Bonferroni p < 0\.0001, "
        r"\+0\.1 % parameters; 0\.12 M parameters, stdlib-3\.11, 800 steps\)\."
    )
    shown = re.fullmatch(pattern, said)
    assert shown, said
    expected = [-row.mean, -row.high, -row.low]  # of a reduction, so that the ends change places
    assert [float(f".{digits}") for digits in shown.groups()] == pytest.approx(expected, abs=6e-5)


def test_an_interaction_is_told_as_a_difference_of_differences(tmp_path: Path) -> None:
    """Main effects are means over the other factor: they add up to what both changes do, whatever the interaction."""
    found = case(tmp_path, seeds=range(5))
    mean = found.effects.query("kind != 'cell'").set_index("label")["mean"]
    both = found.effects.set_index("label").loc["RMSNorm + SwiGLU against LayerNorm + ReLU MLP", "mean"]
    assert mean["norm: RMSNorm − LayerNorm"] + mean["FFN: SwiGLU − ReLU MLP"] == pytest.approx(both)
    cell = found.cells.set_index("label")["mean"]
    with_rms, with_ln = (cell[f"{norm} + SwiGLU"] - cell[f"{norm} + ReLU MLP"] for norm in ("RMSNorm", "LayerNorm"))
    assert mean["RMSNorm × SwiGLU"] == pytest.approx(with_rms - with_ln)
    numbers: dict[str, Any] = {"mean": -0.01, "low": -0.015, "high": -0.005}
    said = about(found, "RMSNorm × SwiGLU", verdict="better", **numbers)
    assert said.startswith(
        "interaction of RMSNorm and SwiGLU: the difference that SwiGLU in place of ReLU MLP makes to the test loss "
        "is lower by 0.0100 [0.0050, 0.0150] nats per byte with RMSNorm than with LayerNorm ("
    ), said
    said = about(found, "RMSNorm × SwiGLU", verdict="undecided", note="", mean=0.01, low=-0.01, high=0.03)
    assert said.startswith(
        "interaction of RMSNorm and SwiGLU: undecided, test loss +0.010 [−0.010, +0.030] nats per byte: the difference "
        "that SwiGLU in place of ReLU MLP makes with RMSNorm, minus that with LayerNorm ("
    ), said


def test_small_p_keep_a_digit() -> None:
    shown = {0.0003: "0.0003", 0.031: "0.031", 1e-9: "< 0.0001", 1.0: "1.000", math.nan: "–"}
    assert {p: p_text(p) for p in shown} == shown
    assert [p_words(p, "Holm") for p in (0.031, 1e-9, math.nan)] == ["Holm p = 0.031", "Holm p < 0.0001", ""]


GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def written(tmp_path: Path, factors: dict[str, list[Any]] = GRID, **options: Any) -> tuple[Study, Path]:
    study = load_study(tmp_path, fabricate(tmp_path, factors, **options))
    folder = tmp_path / "out"
    folder.mkdir()
    tables.write(case_of(study, tmp_path), folder)
    return study, folder


def test_csv_keeps_every_digit(tmp_path: Path) -> None:
    study, folder = written(tmp_path)
    read = pandas.read_csv(folder / "effects.csv")
    expected = evidence.effects(study)
    assert list(read.columns) == list(expected.columns) and len(read) == 6
    assert read["mean"].tolist() == expected["mean"].tolist() and read["low"].tolist() == expected["low"].tolist()
    assert pandas.read_csv(folder / "cells.csv")["sd"].tolist() == evidence.cells(study)["sd"].tolist()
    assert len(pandas.read_csv(folder / "runs.csv")) == 12


def test_what_vectors_took_stands_beside_the_cells_that_have_any(tmp_path: Path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}))
    took = study.runs["seed"].add(1.5).where(study.runs["cell"] == "c1")
    shown = tables.cells_sheet(case_of(replace(study, runs=study.runs.assign(vectors_seconds=took)), tmp_path))
    at = [head.replace("\n", " ") for head in shown.head].index("vectors, CPU-s")
    assert [row[at] for row in shown.rows] == ["–", "2.5"]


def report(found: Case) -> dict[str, str]:
    """The sections of the report by their titles."""
    return {part.split("\n")[0]: part for part in re.split(r"(?m)^## ", sections.report(found))[1:]}


def test_the_command_writes_it_with_links_to_the_figures_beside_it() -> None:
    folder = analysed()
    text = (folder / "report.md").read_text()
    links = re.findall(r"!\[(\w+)\]\(([^)]+)\)", text)
    assert {name for name, _ in links} == {"effects", "curves"} and len(links) == len(list(folder.glob("*.png")))
    assert all((folder / link).is_file() for _, link in links)
    assert re.search(r"!\[effects\]\(effects\.png\)\n\nEvery effect .*\.  \n.*simultaneous 95 % intervals", text)
    assert (folder / "methods.md").read_text().strip() in text, "with the same escapes: names may hold markup"
    for name in ("macros.tex", "methods.tex", "effects.tex", "cells.tex", "particulars.tex"):
        assert (folder / name).stat().st_size > 100
    assert not (folder / "references.bib").exists()  # the study names no papers


def test_only_settings_that_differ_are_shown(tmp_path: Path) -> None:
    name = fabricate(tmp_path, GRID)

    def configured(i: int, _: Cell) -> dict[str, Any]:
        norm = {"_target_": f"x.Norm{i // 2}", "_partial_": True}
        more = {"norm": norm} | ({"ffn": {"width": 1}} if i else {})
        return {"config": stored(whole(more) | {"results_dir": f"somewhere{i}"})}

    study = with_cells(load_study(tmp_path, name), configured)
    (sheet,) = sections.differences(case_of(study, tmp_path)).sheets
    assert sheet.head == [
        "setting",
        *(f"{norm} + {ffn}" for norm in ("LayerNorm", "RMSNorm") for ffn in ("ReLU MLP", "SwiGLU")),
    ]
    assert sheet.rows == [["norm", "x.Norm0", "x.Norm0", "x.Norm1", "x.Norm1"], ["ffn.width", "–", "1", "1", "1"]]


def test_one_seed_looks_and_withdrawn_claims_are_said(tmp_path: Path) -> None:
    one = report(case(tmp_path, study="one", seeds=[0]))
    assert "This study has one seed, from which nothing can be concluded." in one["Verdicts"]
    looks = [{"seeds": [0, 1], "when": "2026-01-02"}, {"seeds": [0, 1, 2], "when": "2026-01-03", "study": "other"}]
    lower = claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}], metric="test/loss")
    claims = {"claims": {"lower": lower}, "withdrawn": {"old": lower | {"withdrawn": lower["written"]}}}
    found = report(case(tmp_path, study="late", seeds=range(5), looks=looks, **claims))
    assert "unadjusted" in found["Verdicts"] and "- 2026-01-03: 3 seeds, in other" in found["Interim analyses"]
    assert "lower (registered): " in found["Claims"] and "old (registered): withdrawn" in found["Claims"]


HOSTILE = "<img src=x onerror=alert(1)>[l](javascript:x)*b*`c`"


@pytest.mark.parametrize("factors", [{"ffn": ["mlp", HOSTILE]}, {"norm": ["ln", "_i_"], "ffn": ["mlp", "a|b"]}])
def test_no_value_is_markup(tmp_path: Path, factors: dict[str, list[Any]]) -> None:
    text = "".join(report(case(tmp_path, factors)).values())
    bare = re.sub(r"\\.", "", text)
    assert not re.search(r"<[a-z]|\]\(javascript|`|(?<![\w*])\*b\*|\b_i_\b", bare)
    for table in re.findall(r"(?m)(?:^\|.*\n)+", text):
        assert len({re.sub(r"\\\|", "", line).count("|") for line in table.splitlines()}) == 1


def test_a_ladder_is_told_with_its_worth_its_cost_and_its_trend(tmp_path: Path) -> None:
    given = case_of(climbed(lambda c: 0.3, noise=1e-3, count=3), tmp_path)
    text = sections.report(given)
    (told,) = (line for line in text.splitlines() if line.startswith("- FFN: SwiGLU − ReLU MLP: at the top rung"))
    for part in (
        "it is worth +3",
        "takes ×1.05 the reference's FLOPs",
        "in compute it is worth ×1.",
        "On rung 2",
        "per tenfold",
    ):
        assert part in told, told
    (top,) = (line for line in text.splitlines() if line.startswith("| FFN: SwiGLU − ReLU MLP | 3 | 8 |"))
    assert "×1.05" in top and " % [+" in top


def test_a_ladder_without_worths_is_told_with_the_reason(tmp_path: Path) -> None:
    text = sections.report(case_of(climbed(lambda c: 0.3, other_steps=False), tmp_path))
    why = "its reference was trained for no other numbers of steps"
    assert f"its worth is not known, because {why}." in text and f"No trend: rung 1: {why}." in text
