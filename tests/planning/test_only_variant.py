"""A study of one cell compares nothing: its plan, its summary and Python say what to write for a comparison."""

import pytest
from one_run import sweep_here

import ablate
from ablate.cli.preview import preview
from ablate.config.command import read_command
from ablate.planning.composition import only_variant

pytestmark = pytest.mark.usefixtures("untried", "uncounted")


@pytest.mark.parametrize(
    ("words", "example"),
    [
        ("optim.lr=0.01", "norm=ln,rms"),
        ("norm=ln", "norm=ln,rms"),
        ("norm=rms", "norm=ln,rms"),
        ("norm=group(groups=4)", "'norm=ln,group(groups=4)'"),
        ("ffn=mlp norm=ln", "norm=ln,rms"),
        ("attention=gqa", "attention=mha,gqa"),
        ("optim=lion", "optim=adamw,lion"),
    ],
)
def test_only_one_variant_is_answered_by_its_group_and_the_reference_variant(words, example):
    line = only_variant(read_command(words.split(), None)[0])
    assert line == f"only one variant; for a comparison write {example}"


def test_only_one_variant_is_said_before_training_in_the_summary_and_in_python(small, tmp_path, capsys):
    line = "only one variant; for a comparison write norm=ln,rms"
    assert sweep_here("norm=rms", "seeds=1", "study=alone", *small) == 0
    printed = capsys.readouterr()
    assert f"ablate: {line}" in printed.err.splitlines()
    assert line in printed.out.splitlines()
    assert line in repr(ablate.load(tmp_path / "results" / "studies" / "alone"))


def test_a_comparison_has_no_such_remark(plan):
    assert "only one variant; for a comparison write norm=ln,rms" in preview(plan("norm=rms"))
    assert "only one variant" not in preview(plan("norm=ln,rms"))
    assert "only one variant" not in preview(plan("model.dim=16,32"))
