"""A study of one cell compares nothing: its plan, its summary and Python say what to write for a comparison."""

import pytest
from one_run import sweep_here

import ablate
from ablate.cli.preview import preview

pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def test_only_one_variant_is_said_before_training_in_the_summary_and_in_python(small, tmp_path, capsys):
    line = "only one variant; for a comparison write several, as in norm=ln,rms"
    assert sweep_here("norm=rms", "seeds=1", "study=alone", *small) == 0
    printed = capsys.readouterr()
    assert f"ablate: {line}" in printed.err.splitlines()
    assert line in printed.out.splitlines()
    assert line in repr(ablate.load(tmp_path / "results" / "studies" / "alone"))


def test_a_comparison_has_no_such_remark(plan):
    assert "only one variant; for a comparison write several, as in norm=ln,rms" in preview(plan("norm=rms"))
    assert "only one variant" not in preview(plan("norm=ln,rms"))
    assert "only one variant" not in preview(plan("model.dim=16,32"))
