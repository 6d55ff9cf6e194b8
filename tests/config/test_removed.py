"""Words that are gone: whoever still writes one is told in one line what to write instead."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_studies import fabricate

from ablate.config.errors import PlanError, Refused
from ablate.config.removed import REMOVED
from ablate.planning.plan import plan_study
from ablate.results.study import load_study
from analysis import plot

STUDY_FILES: dict[str, dict[str, Any]] = {
    "figure: looks": {"figure": "looks"},
    "figure: main_effects": {"figure": "main_effects"},
    "figure: proxy": {"figure": "proxy"},
}


def test_every_word_that_is_gone_has_a_row() -> None:
    assert set(STUDY_FILES) == set(REMOVED)


@pytest.mark.parametrize("word", STUDY_FILES)
def test_a_study_file_with_a_word_that_is_gone_is_told_what_to_write(tmp_path: Path, word: str) -> None:
    (tmp_path / "experiment").mkdir()
    content = {"factors": {"norm": ["ln", "rms"]}, **STUDY_FILES[word]}
    (tmp_path / "experiment" / "mine.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(PlanError) as raised:
        plan_study(("+experiment=mine", f"results_dir={tmp_path / 'results'}"), str(tmp_path))
    (problem,) = raised.value.problems
    assert REMOVED[word] in str(problem)


FIGURES = [word.removeprefix("figure: ") for word in REMOVED if word.startswith("figure: ")]


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_that_is_gone_is_refused_by_plot_and_by_figures_yaml(tmp_path: Path, figure: str) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}))
    with pytest.raises(Refused, match=REMOVED[f"figure: {figure}"]):
        plot(study, figure, tmp_path)
    (tmp_path / "figures.yaml").write_text(f"subset: {{figures: [{figure}]}}\n")
    with pytest.raises(Refused, match=REMOVED[f"figure: {figure}"]):
        plot(study, "effects", tmp_path)
