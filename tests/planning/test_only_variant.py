"""A study of one cell compares nothing: plan, summary, JSON and Python say so, with what to write for a comparison."""

from pathlib import Path

import pytest
from conftest import latest
from one_run import here, sweep_here

import ablate
from ablate import api
from ablate.cli.preview import preview
from ablate.cli.summary import summary
from ablate.config.command import read_command
from ablate.planning.composition import only_variant
from ablate.runs.study import load_study

pytestmark = pytest.mark.usefixtures("untried", "uncounted")


@pytest.mark.parametrize(
    ("words", "example"),
    [
        ([], "norm=ln,rms"),
        (["seeds=2"], "norm=ln,rms"),
        (["optim.lr=0.01"], "norm=ln,rms"),
        (["norm=ln"], "norm=ln,rms"),
        (["norm=rms"], "norm=ln,rms"),
        (["norm=group(groups=4)"], "'norm=ln,group(groups=4)'"),
        (["ffn=geglu"], "ffn=mlp,geglu"),
        (["ffn=mlp", "norm=ln"], "norm=ln,rms"),
        (["attention=gqa"], "attention=mha,gqa"),
        (["optim=lion"], "optim=adamw,lion"),
        (["scale=small"], "norm=ln,rms"),
    ],
)
def test_the_remark_names_the_group_and_its_reference_variant(words: list[str], example: str) -> None:
    line = only_variant(read_command(words, None)[0])
    assert line == f"only one variant; for a comparison write {example}"


@pytest.mark.parametrize(("words", "example"), [(["seeds=2"], "norm=ln,rms"), (["ffn=relu2"], "ffn=mlp,relu2")])
def test_a_plan_of_one_cell_has_the_remark(plan, words: list[str], example: str) -> None:
    planned = plan(*words)
    line = f"only one variant; for a comparison write {example}"
    assert planned.manifest.remarks == [line]
    assert line in preview(planned).splitlines()


def test_a_study_file_of_one_cell_is_one_variant(plan, tmp_path: Path) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "alone.yaml").write_text("# @package _global_\nstudy: alone\nnorm: rms\n")
    planned = plan("+experiment=alone", config_dir=str(tmp_path / "mine"))
    assert "only one variant; for a comparison write norm=ln,rms" in preview(planned)


def test_a_comparison_has_no_such_remark(plan) -> None:
    assert "only one variant" not in preview(plan("norm=ln,rms"))
    assert "only one variant" not in preview(plan("model.dim=16,32"))


def test_a_study_says_it_before_training_and_in_its_summary(small: list[str], tmp_path: Path, capsys) -> None:
    line = "only one variant; for a comparison write norm=ln,rms"
    assert sweep_here("norm=rms", "seeds=1", "study=alone", *small) == 0
    printed = capsys.readouterr()
    assert f"ablate: {line}" in printed.err.splitlines()
    assert line in printed.out.splitlines()
    assert line in summary(load_study(tmp_path / "results", "alone"))


def test_python_shows_it(small: list[str], monkeypatch) -> None:
    monkeypatch.setattr(api, "run_plan", here)
    words = latest("norm=rms", "seeds=1", *small)
    line = "only one variant; for a comparison write norm=ln,rms"
    assert line in repr(ablate.plan(*words))
    study = ablate.run(*words)
    assert line in repr(study)
