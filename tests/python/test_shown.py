"""What a notebook shows of plans and studies, and what a study holds in Python."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest
from conftest import ROOT, SHAPE, STEPS
from one_run import here

import ablate
from ablate import api, evidence
from ablate.cli.preview import preview
from ablate.python import shown as progress
from ablate.python.shown import Study, html_table

WORDS = ("norm=ln,rms", "ffn=mlp,swiglu")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "run_plan", here)


@pytest.fixture(scope="module")
def study(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    where = [f"data.path={text}", f"results_dir={tmp_path_factory.mktemp('shown') / 'results'}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "run_plan", here)
        yield ablate.run(*WORDS, *SHAPE, *STEPS, "data=text", *where, seeds=2)


def test_a_plan_shows_the_table_of_a_dry_run(small: list[str]) -> None:
    plan = ablate.plan(*WORDS, *small, seeds=2)
    assert repr(plan) == preview(plan) and "ln + swiglu" in repr(plan)
    html = plan._repr_html_()
    assert html.count("<tr>") == 5 and "<td>rms + swiglu</td>" in html and "8 to do" in html


def test_every_table_has_a_column_for_each_factor(study: Study) -> None:
    for each in (study.runs, study.curves):
        levels = set(zip(each["norm"], each["ffn"], each["label"], strict=True))
        assert levels == {(n, f, f"{n} + {f}") for n in ("ln", "rms") for f in ("mlp", "swiglu")}
    effects = study.effects.set_index("label")
    assert list(effects.loc["norm: rms − ln", ["norm", "ffn"]].fillna("")) == ["rms", ""]
    assert list(effects.loc["rms + swiglu against ln + mlp", ["norm", "ffn"]]) == ["rms", "swiglu"]
    assert effects.loc["norm × ffn", ["norm", "ffn"]].isna().all()
    plain = evidence.effects(study)
    pandas.testing.assert_frame_equal(study.effects[list(plain)], plain)


def test_a_study_is_a_short_table_and_a_notebook_shows_its_verdicts(study: Study) -> None:
    lines = repr(study).splitlines()
    assert len(lines) == 6 and "ln + mlp (reference)" in lines[2] and len(repr(study)) < 600
    mean = study.runs[study.runs["label"] == "rms + mlp"]["test/loss"].mean()
    assert f"{mean:.3f}" in next(line for line in lines if line.startswith("rms + mlp"))
    html = study._repr_html_()
    assert "norm: rms − ln" in html and "undecided" in html and html.count("<tr>") == 4


def test_what_is_shown_is_text() -> None:
    assert (
        html_table(["<b>"], [["<script>"]])
        == "<table><tr><th>&lt;b&gt;</th></tr><tr><td>&lt;script&gt;</td></tr></table>"
    )


def test_a_run_of_a_study_is_at_hand(study: Study) -> None:
    run = study.run("rms + mlp", 1)
    assert run.config.seeds == [1] and run.result and run.result.status == "done"
    assert sum(weight.numel() for weight in run.model().parameters()) == run.result.params
    assert study.results
    again = ablate.load(study.results / "studies" / study.manifest.study)
    assert isinstance(again, Study) and again.run("rms + mlp", 1).run.path == run.run.path
    with pytest.raises(KeyError, match="did you mean rms \\+ mlp"):
        study.run("rms + mpl", 1)
    with pytest.raises(KeyError, match="seed 5; there are 0, 1"):
        study.run("rms + mlp", 5)


def test_a_bar_tells_how_far_runs_are(small, in_this_process, monkeypatch) -> None:
    seen = io.StringIO()
    monkeypatch.setattr(progress.sys, "stderr", seen)
    monkeypatch.setattr(progress, "is_visible", lambda: True)
    ablate.run("norm=ln,rms", *small, seeds=1)
    last = re.split(r"[\r\n]", seen.getvalue().strip())[-1]
    assert last.startswith("100 %") and "2/2 ended" in last


def test_a_dry_run_is_refused_where_a_study_is_wanted(small: list[str], tmp_path: Path) -> None:
    with pytest.raises(ablate.PlanError, match="dry_run: trains nothing"):
        ablate.run("norm=ln", *small, dry_run=True)
    assert not (tmp_path / "results").exists()


def test_committed_tables_from_before_have_factors_too() -> None:
    kept = ablate.load(ROOT / "experiments" / "results" / "rms_norm")
    assert isinstance(kept, Study) and set(kept.manifest.factors) <= set(kept.curves) & set(kept.effects)
    assert kept.curves["norm"].map(type).eq(str).all() and "norm" in kept._repr_html_()
    with pytest.raises(FileNotFoundError, match="kept tables"):
        kept.run(kept.manifest.cells[0].id, kept.manifest.seeds[0])
