"""What maximal update parametrization has no rule for; stopped and continued runs of it are in test_resume.py."""

import pytest

GROUPED = "attention=gqa attention.kv_heads=4 parametrization.base_head_dim=4 model.heads=8"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("optim=muon", "has no rule for muon"),
        ("attention=mqa parametrization.base_head_dim=4 model.heads=8", "writes 4 features"),
        (GROUPED, "base_dim: 8 makes no model"),
    ],
)
def test_what_there_is_no_rule_for_is_one_line_of_the_plan(words, message, refused):
    wide = ("parametrization=mup", "parametrization.base_dim=8", "model.dim=32", "model.heads=4", "seeds=1")
    [problem] = refused(*wide, *words.split())
    assert problem.startswith("parametrization") and message in problem
