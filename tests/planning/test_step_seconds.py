"""match=seconds: steps by sums by hand, measured once in turn, and taken over by whoever continues the study."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import latest
from one_run import sweep_here, write_plan

from ablate.cli.sweep import preview
from ablate.planning import measured
from ablate.planning.checks.user_code import Failed
from ablate.planning.plan import plan_study
from ablate.results.naming import matched as matched_text
from ablate.results.records import Cell
from ablate.results.run import Run
from ablate.results.study import load_study
from analysis.case import case_of
from analysis.writing import methods

MATCH = "match=seconds"
MINE = ["ffn=mlp,swiglu", MATCH, "train.steps=60", "study=mine"]
Steps = Callable[..., list[str]]

pytestmark = pytest.mark.usefixtures("untried", "uncounted")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Say what a step of each cell takes, in each of its turns; returns whose turn it was."""

    def given(**seconds: list[float]) -> list[str]:
        asked: list[str] = []

        def timed(row: Cell, folder: Path) -> float:
            asked.append(row.label)
            each = seconds[row.label.split()[0]]
            return each[(len(asked) - 1) // len(seconds) % len(each)]

        monkeypatch.setattr(measured, "timed", timed)
        monkeypatch.setattr(measured, "ROUNDS", (3, 9))
        return asked

    return given


def test_cells_get_the_steps_that_take_their_references_seconds(plan: Any, steps: Steps) -> None:
    steps(mlp=[0.02], gelu=[0.01], swiglu=[0.03, 0.031, 0.0311])
    planned = plan("ffn=mlp,gelu,swiglu", MATCH, "train.steps=100", "optim.warmup=10")
    found = {cell.label: cell for cell in planned.manifest.cells}
    taken = {label: (cell.config.train.steps, cell.config.optim.warmup) for label, cell in found.items()}
    assert taken == {"mlp": (100, 10), "gelu": (200, 20), "swiglu": (65, 7)}, "65.2 of the mean ratio"
    mean = 0.02 * math.exp(np.mean(np.log([1.5, 1.55, 1.555])))
    matched = found["swiglu"].matched
    assert matched and (matched.value, matched.reference) == pytest.approx((65 * mean, 2.0))
    assert "seconds" in matched.quantity and matched.difference == pytest.approx(65 * mean / 2 - 1)
    said = preview(planned).splitlines()
    assert said[0].split("  ")[-3:] == [MATCH, "to do", "done"] and "train.steps" in said[0]
    error = np.std(np.log([0.03, 0.031, 0.0311]), ddof=1) / 3**0.5
    assert [line for line in said if f"swiglu 30.7 ms ± {error:.1%} SE; measured when".replace("%", " %") in line]
    assert f"± {error * 100:.2g} % SE" in matched_text(planned.manifest)


def test_what_differs_from_round_to_round_is_measured_longer_and_at_last_refused(
    plan: Any, refused: Any, steps: Steps
) -> None:
    """Against the reference of the same round: what slows both down is no error of their ratio."""
    asked = steps(mlp=[0.02, 0.08], swiglu=[0.04, 0.16])
    [_, cell] = plan("ffn=mlp,swiglu", MATCH, "train.steps=100").manifest.cells
    assert len(asked) == 6 and cell.config.train.steps == 50 and not cell.step_seconds.error
    asked = steps(mlp=[0.02], swiglu=[0.04, 0.043, 0.037, 0.04, 0.04, 0.04])
    plan("ffn=mlp,swiglu", MATCH, "train.steps=100")
    assert 6 < len(asked) < 18
    asked = steps(mlp=[0.02], swiglu=[0.04, 0.06])
    [line] = refused("ffn=mlp,swiglu", MATCH)
    assert len(asked) == 18 and line.startswith("match: ") and "swiglu" in line and "match=flops_total" in line


def test_a_ratio_is_that_of_steps_in_the_same_rounds(plan: Any, steps: Steps) -> None:
    """Whatever the machine does from one round to the next: the median of each would be of another round here."""
    steps(mlp=[0.02, 0.021, 0.04], swiglu=[0.04, 0.0401, 0.0763])
    [_, cell] = plan("ffn=mlp,swiglu", MATCH, "train.steps=100").manifest.cells
    ratio = math.exp(np.mean(np.log([0.04 / 0.02, 0.0401 / 0.021, 0.0763 / 0.04])))
    assert cell.step_seconds.seconds == pytest.approx(0.021 * ratio)


def test_each_distinct_cell_is_measured_in_turn(plan: Any, steps: Steps) -> None:
    asked = steps(mlp=[0.02], swiglu=[0.04])
    plan("ffn=mlp,swiglu", "optim.lr=1e-3,1e-2", MATCH)
    one, other = asked[:2]
    assert asked == [one, other, other, one, one, other] and {one.split()[0], other.split()[0]} == {"mlp", "swiglu"}


@pytest.mark.parametrize("words", [(), ("confirm=2",), ("tune.key=optim.lr", "tune.values=[1e-3,1e-2]")], ids=" ".join)
def test_who_continues_a_study_takes_its_seconds_over(plan: Any, steps: Steps, words: tuple[str, ...]) -> None:
    steps(mlp=[0.02], swiglu=[0.04])
    asked = ["ffn=mlp,swiglu", MATCH, "train.steps=60", *words]
    first = plan(*asked)
    write_plan(first)
    assert not steps(mlp=[0.01], swiglu=[0.07])
    again = plan(*asked)
    assert {run.path for run in again.manifest.runs} == {run.path for run in first.manifest.runs}
    assert [cell.step_seconds for cell in again.manifest.cells] == [cell.step_seconds for cell in first.manifest.cells]
    steps(mlp=[], swiglu=[])  # neither is asked for more seeds
    assert {run.path for run in first.manifest.runs} <= {run.path for run in plan(*asked, "seeds=5").manifest.runs}


def test_a_confirmation_of_other_steps_takes_over_no_seconds(plan: Any, steps: Steps) -> None:
    steps(mlp=[0.02], swiglu=[0.04])
    write_plan(plan(*MINE))
    steps(mlp=[0.03], swiglu=[0.09])
    for more, seconds in ([], [0.02, 0.04]), (["train.batch_size=5"], [0.03, 0.09]):
        cells = plan(*MINE, "confirm=2", *more).manifest.cells
        assert [cell.step_seconds.seconds for cell in cells] == pytest.approx(seconds)


def test_who_starts_the_same_study_meanwhile_joins_it(plan: Any, monkeypatch: pytest.MonkeyPatch, steps: Steps) -> None:
    steps(mlp=[0.02], swiglu=[0.04])
    first = plan(*MINE)

    def slower(row: Cell, folder: Path) -> float:
        write_plan(first)
        return 0.03

    monkeypatch.setattr(measured, "timed", slower)
    assert {run.path for run in plan(*MINE).manifest.runs} == {run.path for run in first.manifest.runs}


def test_a_damaged_manifest_is_not_measured_anew(plan: Any, refused: Any, steps: Steps) -> None:
    """Its runs would be others, and those that ended would be none of them."""
    steps(mlp=[0.02], swiglu=[0.04])
    first = plan(*MINE)
    write_plan(first)
    (first.results / "studies" / "mine" / "manifest.json").write_text("{")
    again = steps(mlp=[0.02], swiglu=[0.05])
    for more in ([], ["confirm=2"]):
        [line] = refused(*MINE, *more)
        assert line.startswith("study: ") and "mine/manifest.json" in line and "another name" in line and not again


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train.steps=6,60"], ["train.steps: ", MATCH]),
        (["step_equivalents=true"], ["step_equivalents: ", MATCH]),
        (["tune.key=model.dropout", "tune.values=[0,0.1]"], ["tune.key: ", MATCH, "optim"]),
        (["train.steps=1"], ["match: ", "train.steps=1"]),  # which takes twice the reference's seconds
        (["train.device=cuda"], ["match: ", "no GPU here"]),
    ],
)
def test_what_does_not_go_with_seconds_is_refused(
    refused: Any, steps: Steps, words: list[str], told: list[str]
) -> None:
    steps(mlp=[0.02], swiglu=[0.04])
    [line] = refused("ffn=mlp,swiglu", MATCH, *words)
    assert line.startswith(told[0]) and all(word in line for word in told)


def test_where_nothing_can_be_measured_it_says_so(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(call: Any) -> None:
        raise Failed("out of memory")

    monkeypatch.setattr(measured, "run_in_subprocess", fails)
    [line] = refused("ffn=mlp,swiglu", MATCH)
    assert line.startswith("match: ") and "no step of mlp" in line and "out of memory" in line


def test_a_sweep_at_equal_seconds_trains_by_what_was_measured(small, tmp_path, monkeypatch, capsys):
    for name, value in {"EACH": 0.0, "BLOCK": 0.01, "ROUNDS": (2, 2), "WARM_UP": 1}.items():
        monkeypatch.setattr(measured, name, value)
    monkeypatch.setattr(measured, "VAGUE", 9.0)  # whatever else this machine does
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))  # or sweeps of other tests would be waited for
    words = latest(*small, "ffn=mlp,swiglu", "seeds=1", MATCH, "train.steps=20", "train.eval_every=10")
    assert sweep_here(*words) == 0
    done = capsys.readouterr()
    assert "steps matched: seconds of training steps" in done.out
    shown = preview(plan_study([*words, "dry_run=true"]))
    [told] = re.findall("match=seconds: a step of .*", shown)
    assert told in done.err and "0 to do" in shown
    results = tmp_path / "results"
    [file] = results.glob("studies/*/manifest.json")
    study = load_study(results, file.parent.name)
    planned = {cell.id: cell for cell in study.manifest.cells}
    for run in study.runs.itertuples():
        found = Run(results, run.path).result()
        assert found and found.steps == planned[run.cell].config.train.steps and planned[run.cell].step_seconds
    assert "by the seconds of a step" in methods.markdown(case_of(study, results))
