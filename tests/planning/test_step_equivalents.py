"""References trained for other numbers of steps: which runs are planned, and effects in training steps."""

import math
import shutil
from typing import Any

import numpy as np
import pytest
from planned_rounds import rounds

from ablate import evidence
from ablate.cli.preview import preview
from ablate.cli.status import main as status
from ablate.cli.sweep import verdicts
from ablate.config.schema import typed
from ablate.planning.rounds import distinct_ratios, with_steps
from ablate.runs.manifest import read_manifest
from ablate.runs.progress import rounds_of, unsettled
from ablate.runs.records import Manifest
from ablate.runs.study import load_study

SLOPES = {0.001: 0.3, 0.01: 0.1}  # by learning rate
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def noise(*key: int) -> float:
    return float(np.random.default_rng(key).normal(0, 0.004))


def planted(levels: dict[str, Any], lr: float, seed: int) -> float:
    """A loss that falls by the slope times log(steps / 6), and by 0.02 more for rms."""
    fall = SLOPES[lr] * math.log(levels.get("train.steps", 6) / 6)
    is_rms = levels.get("norm") == "rms"
    gain = 0.02 if is_rms else 0.0
    return 2.0 + seed / 100 - fall - gain + noise(seed, is_rms)


def at_one_rate(levels: dict[str, Any], lr: float, seed: int) -> float:
    return planted(levels, 0.001, seed)


def steps_of(manifest: Manifest) -> list[int]:
    return [cell.planned_config.train.steps for cell in manifest.cells]


def test_references_of_all_strata_are_trained_for_other_numbers_of_steps(plan, capsys):
    command = ["norm=ln,rms", "optim.lr=1e-3,1e-2", "step_equivalents=true", "seeds=3"]
    page = preview(plan(*command))
    assert "4 configurations × 3 seeds = 12 runs" in page
    assert "then 2 references for 0.8, 1.25 and 1.6 times the steps" in page
    code, plans, trained = rounds(plan, *command, score=planted)
    study, exchange = plans[-1].manifest, plans[-1].ended[-1].manifest
    assert code == 0 and trained == 4 * 3 + 2 * 3 * 3
    assert "then 2 references" not in " ".join(plans[-1].notes), "they have been trained"
    assert study.exchange == exchange.study == f"{study.study}-exchange" and exchange.exchange_of == study.study
    assert exchange.seeds == study.seeds
    assert exchange.factors == {"optim.lr": [0.001, 0.01], "train.steps": [5, 6, 8, 10]}
    assert steps_of(exchange) == [5, 6, 8, 10] * 2
    assert [cell.reference for cell in exchange.cells] == [False, True, False, False] * 2
    shared = {run.path for run in study.runs} & {run.path for run in exchange.runs}
    assert len(shared) == 2 * 3, "the runs at the study's own steps are its own"
    assert capsys.readouterr().out.count("simultaneous 95 % intervals") == 1, "one summary, when all is there"
    assert rounds(plan, *command, score=planted)[2] == 0


def beyond(levels: dict[str, Any], lr: float, seed: int) -> float:
    """Losses for which rms needs 2.3 times the steps of ln, and group 0.7 times."""
    worth = {"rms": math.log(2.3), "group": math.log(0.7)}.get(str(levels.get("norm")), 0.0)
    loss = 2.0 - 0.1 * (math.log(levels.get("train.steps", 20) / 20) + worth)
    return loss + noise(seed, len(str(levels))) / 10


def test_further_steps_are_trained_while_a_variant_lies_beyond_and_nothing_twice(plan):
    command = ["norm=ln,rms,group", "train.steps=20", "step_equivalents=true", "seeds=3", "study=s"]
    code, plans, trained = rounds(plan, *command, score=beyond, stop_after=9 + 9 + 4)
    assert (code, trained) == (130, 22) and steps_of(plans[-1].manifest) == [13, 16, 20, 25, 32, 40]
    code, plans, trained = rounds(plan, *command, score=beyond)
    results = plans[-1].results
    assert code == 0 and steps_of(read_manifest(results, "s-exchange")) == [13, 16, 20, 25, 32, 40, 50]
    assert trained == 3 * 7 + 3 * 2 - 22, "each run once, over both commands"
    assert rounds(plan, *command, score=beyond)[2] == 0
    table = evidence.effects(load_study(results, "s")).set_index("level")
    assert table.loc["rms", "worth"] == pytest.approx(1.3, abs=0.05)
    assert table.loc["group", "worth"] == pytest.approx(-0.3, abs=0.02)
    assert rounds(plan, *command, "seeds=4", score=beyond)[2] == 3 + 6, "a fourth seed of every number of steps"


def test_of_multiples_that_round_to_one_number_of_steps_the_nearest_is_trained():
    assert distinct_ratios(100) == [0.5, 0.64, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0]
    assert distinct_ratios(3) == [0.8, 1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0]  # 2, 3, 4, 5, 6, 8, 10, 12


def test_looks_have_other_steps_for_all_seeds_and_a_killed_one_goes_on(plan):
    def close(levels, lr, seed):
        own = noise(seed, 5) if levels.get("norm") == "rms" else 0.0
        return planted(levels | {"norm": "ln"}, 0.001, seed) + own + 0.001

    command = ["norm=ln,rms", "step_equivalents=true", "seeds=auto", "seeds_max=8"]
    code, plans, trained = rounds(plan, *command, score=close, stop_after=13)
    assert (code, trained) == (130, 13) and plans[-1].manifest.study.endswith("-exchange")
    assert read_manifest(plans[-1].results, plans[-1].ended[-1].manifest.study).seeds == list(range(5))
    code, plans, trained = rounds(plan, *command, score=close)
    assert code == 0 and trained == 2 * 8 + 3 * 8 - 13
    study, exchange = (read_manifest(planned.results, planned.manifest.study) for planned in (plans[-1], plans[-2]))
    assert study.seeds == exchange.seeds == list(range(8))
    assert not [look for look in study.looks if look.study] and not evidence.unadjusted(study)


def test_status_waits_for_other_numbers_of_steps(plan, capsys):
    command = ["norm=ln,rms", "step_equivalents=true", "seeds=3", "study=s"]
    results = rounds(plan, *command, score=at_one_rate, stop_after=6)[1][-1].results
    shutil.rmtree(results / "studies" / "s-exchange", ignore_errors=True)
    assert unsettled(rounds_of(results, "s")), "all runs on disk have ended, and the command goes on"
    rounds(plan, *command, score=at_one_rate)
    assert not unsettled(rounds_of(results, "s"))
    capsys.readouterr()
    assert status(["s-exchange", "--results-dir", str(results)]) == 0
    assert "other numbers of steps (s-exchange): 12 runs: 12 done" in capsys.readouterr().out


def test_a_confirmation_has_other_steps_with_its_fresh_seeds(plan):
    command = ["norm=ln,rms", "step_equivalents=true", "seeds=3", "study=s"]
    rounds(plan, *command, score=at_one_rate)
    _, plans, trained = rounds(plan, *command, "confirm=2", score=at_one_rate)
    study, exchange = plans[-1].manifest, read_manifest(plans[-1].results, "s-confirm-2-exchange")
    assert trained == 2 * 2 + 3 * 2 and study.seeds == exchange.seeds == [3, 4]
    assert study.exchange == "s-confirm-2-exchange" and exchange.exchange_of == "s-confirm-2"


LADDER = ["design=ladder", "ladder=3", "parametrization=mup", "ffn=mlp,gelu", "model.layers=2", "train.steps=24"]
LADDER += ["study=s"]


def on_a_ladder(levels, lr, seed):
    """Losses that fall with the steps alike on every rung."""
    return 2.0 + seed / 100 - 0.1 * math.log(float(levels.get("train.steps", "x1")[1:]))


def test_the_references_of_all_rungs_are_trained_for_other_steps_and_nothing_twice(plan):
    results = rounds(plan, *LADDER, "seeds=3", score=on_a_ladder)[1][-1].results
    table = verdicts(load_study(results, "s"))["ladder"]
    assert list(table["rung"]) == [1, 2, 3]
    exchange = read_manifest(results, "s-exchange")
    rungs = {cell.id: cell.levels["rung"] for cell in exchange.cells}
    assert {*rungs.values()} == {1, 2, 3}, "none at another learning rate"
    assert {"x0.8", "x1", "x1.25", "x1.6"} <= {*exchange.factors["train.steps"]}
    assert {run.seed for run in exchange.runs if rungs[run.cell] == 1} == {*range(6)}, "those of the rung's reference"
    assert {run.seed for run in exchange.runs if rungs[run.cell] == 3} == {*range(3)}
    assert rounds(plan, *LADDER, "seeds=3", score=on_a_ladder)[2] == 0


def test_further_seeds_of_lower_rungs_stay_once_they_were_looked_at(plan):
    rounds(plan, *LADDER, "seeds=[0,1]", score=on_a_ladder)
    plans = rounds(plan, *LADDER, "seeds=[0,1,9]", score=on_a_ladder)[1]
    for name in ("s", "s-exchange"):
        manifest = read_manifest(plans[-1].results, name)
        bottom = {cell.id for cell in manifest.cells if cell.levels["rung"] == 1}
        assert manifest.seeds == [0, 1, 9]
        assert {run.seed for run in manifest.runs if run.cell in bottom} == {0, 1, 2, 3, 9, 10}


def test_the_warm_up_shrinks_only_where_it_would_not_end():
    config = typed({"train": {"steps": 100}, "optim": {"warmup": 90}, "eval": {"lengths": [8]}})
    assert with_steps(config, 80).optim.warmup == 72
    assert with_steps(config, 125).optim.warmup == 90
    assert with_steps(config.with_value("optim.warmup", 100), 80).optim.warmup == 100, "it never ended"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "step_equivalents: nothing varies"),
        (["norm=ln,rms", "train.steps=6,9"], "step_equivalents: sets train.steps by itself"),
        (["norm=ln,rms", "match=flops_total"], "step_equivalents: match=flops_total gives configurations other steps"),
        (["norm=ln,rms", "train.steps=2"], "step_equivalents: train.steps=2 is too few"),
    ],
)
def test_nonsense_is_refused(refused, overrides, message):
    [line] = refused(*overrides, "step_equivalents=true")
    assert line.startswith(message)
