"""Command lines and study files that would not end, or end in a traceback: a line each."""

import time
from pathlib import Path

import pytest
from own_module import write_module

from ablate.config.errors import PlanError, Problem
from ablate.config.groups import read_groups
from ablate.config.words import read_words
from ablate.planning.plan import plan_study
from ablate.planning.reporting import reporting_to


def problems(*words: str, folder: Path | None = None) -> list[str]:
    """What a command line is refused for."""
    with pytest.raises(PlanError) as refused:
        plan_study((*words, "scale=tiny", "seeds=1", "dry_run=true"), str(folder) if folder else None)
    return [str(problem) for problem in refused.value.problems]


RANGES = ["range(1,1e9)", "range(1,inf)"]


@pytest.mark.parametrize("value", RANGES)
def test_a_range_is_not_written_out(value):
    began = time.process_time()
    _, refused = read_words([f"train.batch_size={value}"], read_groups())
    problem = Problem(f"train.batch_size={value}", "has too many values; a sweep has at most 10,000")
    assert refused == [problem]
    assert time.process_time() - began < 5


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("key", "kind"), [("seeds_max", "a whole number ≥ 5 and ≤ 1000"), ("step_equivalents", "true or false")]
)
def test_a_value_of_the_environment_is_of_its_keys_type(key, kind, monkeypatch):
    monkeypatch.setenv("COUNT", "many")
    assert problems(f"{key}=${{oc.env:COUNT}}") == [f"{key}: must be {kind}, not many"]


SLOW = """
import time
from pathlib import Path
from torch import nn

class Slow(nn.LayerNorm):
    def __init__(self, dim: int):
        while not Path({file!r}).exists():
            time.sleep(0.01)
        super().__init__(dim)

    def forward(self, x, mask=None):
        return 2 * super().forward(x)
"""


def test_user_code_that_takes_long_is_named_and_goes_on(plan, monkeypatch, tmp_path):
    reports: list[str] = []

    def listen(text):
        if text.startswith("running"):
            reports.append(text)
            (tmp_path / "printed").touch()

    name = write_module(tmp_path, monkeypatch, SLOW.format(file=str(tmp_path / "printed")), "norm", {"slow": ""})
    with reporting_to(listen):
        assert plan("norm=slow", f"user=[{name}]", config_dir=str(tmp_path / "conf")).manifest.cells
    assert reports[0] == f"running {name}.Slow; Ctrl-C stops it"
