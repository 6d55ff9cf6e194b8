"""report.md: every section says what is on disk, links what was drawn, and shows no value as markup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from analysed_studies import analysed, case
from fake_studies import fabricate, whole, with_cells

from ablate.config.typed_json import stored
from ablate.results.records import Cell
from ablate.results.study import load_study
from analysis.case import Case, case_of
from analysis.writing import markdown, sections

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
TITLES = ["Question", "Verdicts", "Plan", "Tables", "Runs", "Configuration differences", "What was left out, and why"]
TITLES += ["Methods", "Provenance"]


def report(found: Case) -> dict[str, str]:
    """The sections of the report by their titles."""
    text = markdown.page("x", sections.sections(found))
    return {part.split("\n")[0]: part for part in re.split(r"(?m)^## ", text)[1:]}


def test_the_command_writes_it_with_links_to_the_figures_beside_it() -> None:
    folder = analysed()
    text = (folder / "report.md").read_text()
    links = re.findall(r"!\[(\w+)\]\(([^)]+)\)", text)
    assert {name for name, _ in links} >= {"effects", "seeds", "curves"} and len(links) == len(
        list(folder.glob("*.png"))
    )
    assert all((folder / link).is_file() for _, link in links)
    assert re.search(r"!\[effects\]\(effects\.png\)\n\nEvery effect .*\.  \n.*simultaneous 95 % intervals", text)
    assert (folder / "methods.md").read_text().strip() in text, "with the same escapes: names may hold markup"
    for name in ("macros.tex", "methods.tex", "effects.tex", "cells.tex", "particulars.tex"):
        assert (folder / name).stat().st_size > 100
    assert not (folder / "references.bib").exists()  # the study names no papers


def test_sections_come_in_order_and_have_something_to_say(tmp_path: Path) -> None:
    found = report(case(tmp_path, seeds=range(5)))
    assert list(found) == TITLES
    assert all(text.count("\n") > 1 for text in found.values())
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", "".join(found.values()))


def test_every_run_is_listed_with_its_status_and_what_was_lost_with_its_reason(tmp_path: Path) -> None:
    ends = ["diverged", "failed", "missing", "done"]
    found = case(
        tmp_path, seeds=range(4), status=lambda v, s: ends[s] if v == {"norm": "rms", "ffn": "mlp"} else "done"
    )
    parts = report(found)
    rows = [line for line in parts["Runs"].splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 16 and "16 runs: 13 done, 1 diverged, 1 failed, 1 missing." in parts["Runs"]
    assert [line.split(" | ")[2] for line in rows if line.startswith("| rms + mlp |")] == ends
    lost = parts["What was left out, and why"]
    assert "| rms + mlp | failed | 1 of 4 | 1 of 2 [9 %, 91 %] | 1 | shapes do not fit |" in lost
    assert "val/loss 7.1 is above 1.1 x its first value" in lost


def test_only_settings_that_differ_are_shown(tmp_path: Path) -> None:
    name = fabricate(tmp_path, GRID)

    def configured(i: int, _: Cell) -> dict[str, Any]:
        norm = {"_target_": f"x.Norm{i // 2}", "_partial_": True}
        more = {"norm": norm} | ({"ffn": {"width": 1}} if i else {})
        return {"config": stored(whole(more) | {"results_dir": f"somewhere{i}"})}

    study = with_cells(load_study(tmp_path, name), configured)
    (sheet,) = sections.differences(case_of(study, tmp_path)).sheets
    assert sheet.head == ["setting", "ln + mlp", "ln + swiglu", "rms + mlp", "rms + swiglu"]
    assert sheet.rows == [["norm", "x.Norm0", "x.Norm0", "x.Norm1", "x.Norm1"], ["ffn.width", "–", "1", "1", "1"]]


def test_many_cells_stand_below_each_other(tmp_path: Path) -> None:
    found = case(tmp_path, {"ffn": [f"v{i}" for i in range(9)]})
    (sheet,) = sections.differences(found).sheets
    assert sheet.head == ["cell", "ffn"] and [row[0] for row in sheet.rows] == [f"v{i}" for i in range(9)]


def test_one_seed_looks_and_withdrawn_claims_are_said(tmp_path: Path) -> None:
    one = report(case(tmp_path, study="one", seeds=[0]))
    assert "This study has one seed: nothing can be concluded from it." in one["Verdicts"]
    looks = [{"seeds": [0, 1], "when": "2026-01-02"}, {"seeds": [0, 1, 2], "when": "2026-01-03", "study": "other"}]
    said, when = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "metric": "test/loss"}, "2026-01-01T00:00:00+00:00"
    claim = {"claim": said, "written": when, "registered": True, "earlier": []}
    claims = {"claims": {"lower": claim}, "withdrawn": {"old": claim | {"withdrawn": when}}}
    found = report(case(tmp_path, study="late", seeds=range(5), looks=looks, **claims))
    assert "unadjusted" in found["Verdicts"] and "- 2026-01-03: 3 seeds, in other" in found["Looks at results"]
    assert "lower (registered): " in found["Claims"] and "old (registered): withdrawn" in found["Claims"]


HOSTILE = "<img src=x onerror=alert(1)>[l](javascript:x)*b*`c`"


@pytest.mark.parametrize("factors", [{"ffn": ["mlp", HOSTILE]}, {"norm": ["ln", "_i_"], "ffn": ["mlp", "a|b"]}])
def test_no_value_is_markup(tmp_path: Path, factors: dict[str, list[Any]]) -> None:
    text = "".join(report(case(tmp_path, factors)).values())
    bare = re.sub(r"\\.", "", text)
    assert not re.search(r"<[a-z]|\]\(javascript|`|(?<![\w*])\*b\*|\b_i_\b", bare)
    for table in re.findall(r"(?m)(?:^\|.*\n)+", text):
        assert len({re.sub(r"\\\|", "", line).count("|") for line in table.splitlines()}) == 1


def test_placebos_say_what_noise_makes(tmp_path: Path) -> None:
    fabricate(tmp_path, {"seed.placebo": [None, "ffn", "chaos"]}, study="main-aa", seeds=range(8))
    found = case(tmp_path, study="main", placebos="main-aa")
    assert sections.noise(found).items and "placebos (placebo_seeds=8" in sections.noise(found).items[0]
    assert not sections.noise(case(tmp_path, study="plain")).items
