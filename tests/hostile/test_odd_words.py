"""Command lines and study files that would not end, or end in a traceback: a line each."""

import time
from pathlib import Path
from typing import Any

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


RANGES = ["range(1,1e9)", "sort(range(1,1e9))", "range(1,inf)", "range(0,1,1e-300)"]


@pytest.mark.parametrize("value", RANGES)
def test_a_range_is_not_written_out(value: str) -> None:
    began = time.process_time()
    _, refused = read_words([f"train.batch_size={value}"], read_groups())
    problem = Problem(f"train.batch_size={value}", "has too many values; a sweep has at most 10,000")
    assert refused == [problem]
    assert time.process_time() - began < 5


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("key", "kind"), [("seeds_max", "a whole number ≥ 5 and ≤ 1000"), ("step_equivalents", "true or false")]
)
def test_a_value_of_the_environment_is_of_its_keys_type(key: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNT", "many")
    assert problems(f"{key}=${{oc.env:COUNT}}") == [f"{key}: must be {kind}, not many"]


@pytest.mark.parametrize("level", ["[ln]", "{a:1}"])
def test_a_level_of_a_group_is_a_name(level: str) -> None:
    lines = problems(f"norm={level},rms")
    assert any(line.startswith(f"norm={level}") and "no such norm" in line for line in lines), lines


LEVELS = [("norm", "[[ln], rms]", "[ln] is not a variant"), ("model.dim", "[{a: 1}, 32]", "not a mapping")]


@pytest.mark.parametrize(("key", "levels", "message"), LEVELS)
def test_a_level_of_a_study_file_is_a_name_or_a_value(key: str, levels: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "odd.yaml").write_text(f"study: odd\nfactors: {{{key}: {levels}}}\n")
    lines = problems("+experiment=odd", folder=tmp_path)
    assert any(message in line for line in lines), lines


@pytest.mark.parametrize(("key", "value"), [("eval.lengths", "[[]]"), ("optim.betas", "[{a:1},0.9]")])
def test_a_list_of_numbers_holds_numbers(key: str, value: str) -> None:
    lines = problems(f"{key}={value}")
    assert any(line.startswith(key) and "must be a list of" in line for line in lines), lines


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


def test_user_code_that_takes_long_is_named_and_goes_on(
    plan: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reports: list[str] = []

    def listen(text: str) -> None:
        if text.startswith("running"):
            reports.append(text)
            (tmp_path / "printed").touch()

    name = write_module(tmp_path, monkeypatch, SLOW.format(file=str(tmp_path / "printed")), "norm", {"slow": ""})
    with reporting_to(listen):
        assert plan("norm=slow", f"user=[{name}]", config_dir=str(tmp_path / "conf")).manifest.cells
    assert reports[0] == f"running {name}.Slow; Ctrl-C stops it"


NORM = """
from torch import nn

class Norm(nn.LayerNorm):
    def __init__(self, dim: int, at: int = 1):
        super().__init__(dim)
        if at == 7:
            raise RuntimeError("not seven")

    def forward(self, x, mask=None):
        return super().forward(x)
"""


def test_the_level_whose_constructor_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_odd.py").write_text(NORM)
    (tmp_path / "conf" / "norm").mkdir(parents=True)
    (tmp_path / "conf" / "norm" / "odd.yaml").write_text("# Odd.\n_target_: mine_odd.Norm\n_partial_: true\nat: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    [line] = problems("norm=odd", "norm.at=6,7", "user=[mine_odd]", folder=tmp_path / "conf")
    assert line.startswith("norm.at=7: ")
    assert "not seven" in line
