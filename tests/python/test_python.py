"""What Python calls: keywords as words, a study planned and run, who is told about it, and what a notebook shows."""

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas
import pytest
import torch
from conftest import ROOT, SHAPE, STEPS, latest
from fake_studies import fabricate
from hydra.core.override_parser.overrides_parser import OverridesParser
from one_run import here

import ablate
from ablate import api, evidence
from ablate.cli.preview import preview
from ablate.config.errors import PlanError, Refused
from ablate.python import Study, html_table, words_of
from ablate.runs.folder import Run
from ablate.training.trainer import Trainer


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(api, "run_plan", here)


def test_a_study_is_what_was_planned_as_tables_and_prints_nothing(small, in_this_process, capfd):
    words, listener, again = latest("norm=ln,rms", "seeds=1", *small), MagicMock(), MagicMock()
    plan = ablate.plan(*words)
    assert len(plan.todo) == 2 and not plan.results.exists()
    study = ablate.run(*words, reporter=listener)
    assert list(study.runs["status"]) == ["done", "done"] and study.runs["test/loss"].notna().all()
    assert {"step", "val/loss"} <= {*study.curves}
    assert [call[0] for call in listener.method_calls] == ["training", "ended"]
    assert len(listener.training.call_args.args[0].todo) == 2 and listener.training.return_value.__exit__.called
    assert len(listener.ended.call_args.args[1].runs) == 2 and listener.ended.call_args.args[2] > 0
    assert ablate.plan(*words).todo == [] and capfd.readouterr() == ("", "")
    assert len(ablate.run(*words, reporter=again).runs) == 2
    assert [call[0] for call in again.method_calls] == ["ended"] and again.ended.call_args.args[2] is None


def test_a_mistake_is_raised_before_anything_is_written(small, tmp_path):
    for words in (["nrom=ln"], ["norm=ln,rmss"], ["hydra/launcher=nowhere"], ["hydra.mode=RUN"]):
        with pytest.raises(PlanError) as refused:
            ablate.run(*small[-3:], *words)  # its data, and where results would go
        [problem] = refused.value.problems
        assert words[0].partition("=")[0] in str(problem)
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_cannot_be_written_is_refused(small, in_this_process, monkeypatch):
    def full(*_) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(api, "renew_manifest", full)
    with pytest.raises(Refused, match=r"results_dir: .*results cannot be written \(Permission denied"):
        ablate.run("seeds=1", *small)


def test_only_what_there_is_is_offered():
    assert {"build", "load", "plan", "run"} <= {*ablate.__all__}
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = ablate.rum


WORDS = ("norm=ln,rms", "ffn=mlp,swiglu")
pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture(scope="module")
def study(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    where = [f"data.path={text}", f"results_dir={tmp_path_factory.mktemp('shown') / 'results'}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "run_plan", here)
        patch.setattr("ablate.planning.check_study.try_out", lambda rows, checked, settings: [])
        yield ablate.run(*WORDS, *SHAPE, *STEPS, "data=text", *where, seeds=2)


def test_a_plan_shows_the_table_of_a_dry_run(small: list[str]) -> None:
    plan = ablate.plan(*WORDS, *small, seeds=2)
    assert repr(plan) == preview(plan) and "ln + swiglu" in repr(plan)
    html = plan._repr_html_()
    assert html.count("<tr") == 5 and "<td>rms + swiglu</td>" in html and "8 to do" in html


def test_a_table_in_html_escapes_its_texts() -> None:
    html = html_table(pandas.DataFrame([["<i>"]], columns=["<b>"]))
    assert "<th>&lt;b&gt;</th>" in html and "<td>&lt;i&gt;</td>" in html and "<i>" not in html


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
    assert len(lines) == 10 and "ln + mlp (reference)" in lines[2] and len(repr(study)) < 900
    assert lines[6].startswith("effects, ") and all("undecided" in line for line in lines[7:])
    assert [*study.effects][:6] == ["label", "mean", "low", "high", "n", "verdict"]
    mean = study.runs[study.runs["label"] == "rms + mlp"]["test/loss"].mean()
    assert f"{mean:.3f}" in next(line for line in lines if line.startswith("rms + mlp"))
    html = study._repr_html_()
    assert "rms is not told apart from ln" in html and "undecided" in html and html.count("<tr") == 4


def test_a_run_of_a_study_is_at_hand(study: Study) -> None:
    run = study.run("rms + mlp", 1)
    assert run.config.seeds == [1] and run.result and run.result.status == "done"
    assert sum(weight.numel() for weight in run.model().parameters()) == run.result.params
    assert study.results
    again = ablate.load(study.results / "studies" / study.manifest.study, user="my_package")
    assert isinstance(again, Study) and again.run("rms + mlp", 1).run.path == run.run.path
    assert again.run("rms + mlp", 1).config.user == ["my_package"] and again.run("rms + mlp", 1, []).config.user == []
    with pytest.raises(KeyError, match="did you mean rms \\+ mlp"):
        study.run("rms + mpl", 1)
    with pytest.raises(KeyError, match="seed 5; there are 0, 1"):
        study.run("rms + mlp", 5)


def test_a_model_is_built_without_a_study(small: list[str], tmp_path: Path) -> None:
    [cell] = ablate.plan("norm=rms", "ffn=swiglu", *small, seeds=1).manifest.cells
    step_0 = Trainer(Run(tmp_path / "at", "cell/run"), cell.config, 3).model.state_dict()
    before = torch.get_rng_state()
    with torch.device("meta"):  # and it needs no folder for results
        model = ablate.build("norm=rms", *small[:-1], ffn="swiglu", seed=3, results_dir="/proc/none")
    assert torch.equal(torch.get_rng_state(), before), "the caller's draws go on"
    assert all(torch.equal(weight, step_0.pop(name)) for name, weight in model.state_dict().items()) and not step_0
    assert model(torch.zeros(2, 5, dtype=torch.long)).shape == (2, 5, 256) and not (tmp_path / "results").exists()
    mistakes = {
        "norm=rmss": "did you mean rms",
        "norm=ln,rms": "norm: takes one value here, since only one model is made",
    }
    mistakes |= dict.fromkeys(("seeds=5", "seed=5"), r"^seeds?: .* build makes one model, .* build\(..., seed=5\)$")
    mistakes |= {"dry_run=true": "dry_run: is of a study", "-m": "-m: is an option of the command line; leave -m out"}
    for word, told in mistakes.items():
        with pytest.raises(PlanError, match=told):
            ablate.build(word, *small)
    for keys in ({"seeds": 5}, {"seed": [1, 2]}, {"seed": True}, {"seed": -1}):
        with pytest.raises(PlanError, match=r"^seeds?: (is of a study|must be a whole number)"):
            ablate.build(*small, **keys)  # type: ignore[arg-type]


def test_a_bar_tells_how_far_runs_are(small, in_this_process, monkeypatch) -> None:
    seen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setattr(seen, "isatty", lambda: True)
    ablate.run("norm=ln", *small, seeds=1)
    last = re.split(r"[\r\n]", seen.getvalue().strip())[-1]
    assert last.startswith("100 %") and "1/1 ended" in last


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


SWEPT = [
    ({"norm": ["ln", "rms"]}, "norm=ln,rms"),
    ({"norm": ["ln"]}, "norm=ln"),
    ({"optim.lr": [np.float64(1e-3), np.float64(3e-3)]}, "optim.lr=0.001,0.003"),
    ({"model.layers": range(1, 4)}, "model.layers=1,2,3"),
    ({"optim.betas": [(0.9, 0.95), (0.9, 0.99)]}, "optim.betas=[0.9,0.95],[0.9,0.99]"),
]


@pytest.mark.parametrize(("keys", "word"), SWEPT)
def test_a_list_sweeps(keys: dict[str, Any], word: str) -> None:
    assert words_of([], keys) == [word]


VALUES = [
    ("seeds", 5, 5),
    ("seeds", [3, 7], [3, 7]),
    ("zip", ["model.layers", "model.dim"], ["model.layers", "model.dim"]),
    ("reference", {"norm": "rms"}, {"norm": "rms"}),
    ("optim.betas", (0.9, 0.95), [0.9, 0.95]),
    ("step_equivalents", True, True),
    ("study", None, None),
    ("study", "a study, with 'odd' words=[1]", "a study, with 'odd' words=[1]"),
    ("study", "true", "true"),
    ("study", "1e3", "1e3"),
    ("margin", "2 %", "2 %"),
    ("data.path", Path("/a folder/text,1.txt"), "/a folder/text,1.txt"),
    ("optim.lr", float("1e-30"), 1e-30),
]


@pytest.mark.parametrize(("key", "value", "read"), VALUES)
def test_a_value_is_read_back_as_it_is(key: str, value: object, read: object) -> None:
    """By Hydra's own parser, and not as a sweep."""
    [word] = words_of([], {key: value})
    override = OverridesParser.create().parse_override(word)
    assert override.key_or_group == key and not override.is_sweep_override()
    found = override.value()
    assert str(found) == read if isinstance(read, str) else found == read


def test_all_that_cannot_be_a_word_is_said_at_once() -> None:
    with pytest.raises(PlanError) as refused:
        words_of(["seeds=1", ["norm=ln"]], {"norm": [], "optim.lr": object(), "data.path": {"a": b"x"}})  # type: ignore[list-item]
    keys = [problem.key for problem in refused.value.problems]
    assert keys == ["", "norm", "optim.lr", "data.path"] and "['norm=ln']" in str(refused.value)


def test_keywords_plan_what_words_plan(small: list[str]) -> None:
    by_words = ablate.plan("seeds=[3,7]", "optim.lr=0.001,0.003", *small)
    by_keys = ablate.plan(*small, seeds=[3, 7], **{"optim.lr": [1e-3, 3e-3]})
    assert {run.path for run in by_keys.manifest.runs} == {run.path for run in by_words.manifest.runs}
    assert len(by_keys.todo) == 4


def test_a_study_whose_seeds_were_added_after_a_look_says_so(tmp_path: Path) -> None:
    name = fabricate(tmp_path, {"norm": ["ln", "rms"]}, range(6), looks=[{"seeds": [0, 1, 2], "when": "2026-01-02"}])
    study = ablate.load(tmp_path / "studies" / name)
    said = "unadjusted: seeds were added after an interim analysis of 3 of the 6"
    assert said in repr(study) and said in study._repr_html_()
