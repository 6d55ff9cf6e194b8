"""A figure and the report of a study, from Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_studies import draw_effects_alone, fabricate
from matplotlib.figure import Figure

import ablate
import analysis
from ablate.config.errors import Refused
from ablate.python.shown_study import Study
from ablate.results.kept_tables import write_tables
from analysis.cli.main import main

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    fabricate(tmp_path, GRID)
    found = ablate.load(tmp_path / "studies" / "fabricated")
    assert isinstance(found, Study)
    return found


def test_a_figure_is_matplotlibs_and_shows_itself(study: Study, tmp_path: Path) -> None:
    drawn = analysis.plot(study, "effects")
    assert isinstance(drawn, Figure) and drawn._repr_png_().startswith(b"\x89PNG")
    assert not (tmp_path / "figures").exists(), "nothing is written"


def test_a_figure_has_the_edits_of_its_folder(study: Study, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "figures.yaml").write_text("labels: {ffn: feed-forward}\n")
    texts = [
        label.get_text()
        for axis in analysis.plot(study, "effects", tmp_path / "mine").axes
        for label in axis.get_yticklabels()
    ]
    assert any("feed-forward" in text for text in texts)


def test_a_figure_that_there_is_not_is_told(study: Study) -> None:
    with pytest.raises(Refused, match="did you mean effects"):
        analysis.plot(study, "efects")
    with pytest.raises(Refused, match=r"nothing for a figure placebos; there are .*effects"):
        analysis.plot(study, "placebos")


def test_the_report_is_that_of_the_command(study: Study, tmp_path: Path) -> None:
    draw_effects_alone(tmp_path)
    shutil.copytree(tmp_path / "figures" / "fabricated", tmp_path / "other")
    page = analysis.report(study)
    assert page == tmp_path / "figures" / "fabricated" / "report.html"
    assert main(["--results-dir", str(tmp_path), "--to", str(tmp_path / "other")]) == 0
    files = {file.name for file in (tmp_path / "other").iterdir()}
    assert {file.name for file in page.parent.iterdir()} == files and "effects.pdf" in files
    assert page.read_text() == (tmp_path / "other" / "report.html").read_text()


def test_kept_tables_are_not_written_over(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tables(study, tmp_path / "kept")
    kept = ablate.load(tmp_path / "kept")
    with pytest.raises(Refused, match="which must stay as they are"):
        analysis.report(kept, tmp_path / "kept")
    monkeypatch.setenv("ABLATE_RESULTS", str(tmp_path / "here"))
    draw_effects_alone(tmp_path / "here")
    assert analysis.report(kept) == tmp_path / "here" / "figures" / "fabricated" / "report.html"
