"""tune.per_seed: tuning anew for each scored seed, so that intervals include what tuning chooses by chance."""

from typing import Any

import pytest
from one_run import train, write_plan
from test_tuning import GRID, TUNE, rounds

from ablate.cli.summary import summary
from ablate.cli.sweep import preview
from ablate.results.manifest import read_manifest
from ablate.results.records import Manifest
from ablate.results.study import load_study

EACH = [*TUNE, "tune.per_seed=true"]
pytestmark = pytest.mark.usefixtures("untried", "uncounted")
OWN = {0: 1e-3, 1: 3e-3, 2: 3e-3, 3: 1e-2, 4: 3e-3, 5: 1e-3}  # where the loss is lowest for tuning seeds of each


def score(levels: dict[str, Any], lr: float, seed: int) -> float:
    """Lowest at a rate that depends on whose tuning seeds these are; the scored loss is that of the rate."""
    whose = (seed - 1_000_000) // 2
    own = OWN[whose] if seed >= 1_000_000 and levels["norm"] == "rms" else 3e-3
    return 2 + abs(lr - own) + seed % 7 / 1000


def chosen(manifest: Manifest) -> dict[str, list[float]]:
    labels = {cell.id: cell.label for cell in manifest.cells}
    found: dict[str, list[float]] = {}
    for run in manifest.runs:
        found.setdefault(labels[run.cell], []).append(run.tuned["optim.lr"])
    return found


def test_each_seed_is_tuned_on_seeds_of_its_own(plan: Any, capsys: Any) -> None:
    first = plan("norm=ln,rms", *EACH, "seeds=4")
    assert "2 seeds each for each of 4 scored seeds (48 runs, 4 times the cost of tuning once)" in preview(first)
    assert first.manifest.seeds == list(range(1_000_000, 1_000_008)) and len(first.todo) == 48
    code, done, trained = rounds(plan, "norm=ln,rms", *EACH, "seeds=4", score=score)
    assert code == 0 and trained == 48 + 8
    study = done[-1].manifest
    assert chosen(study) == {"ln": [3e-3] * 4, "rms": [OWN[seed] for seed in range(4)]}
    plain = plan("norm=ln,rms", "optim.lr=3e-3", "seeds=4").manifest
    ours = {run.path for run in study.runs}
    assert len(ours & {run.path for run in plain.runs}) == 6, "runs are those of the value that they have"
    assert not {cell.id for cell in study.cells} & {cell.id for cell in plain.cells}
    assert {len(cell.values) for cell in study.tuning.cells.values()} == {4}
    out = capsys.readouterr().out
    assert "each at its own learning rate" not in out
    assert "tuned anew for each seed: lrs 1e-3, 3e-3, 0.01" in out
    assert "optim.lr=1e-3 (1), 3e-3 (2), 0.01 (1)" in out
    assert "at each common optim.lr, validation split, 8 tuning" in out


def test_units_train_the_value_of_their_seed_and_readers_take_them_for_the_planned_runs(plan: Any) -> None:
    """One real run: what is on disk is what the plan says, and it is read without a word of another run."""
    command = ["norm=rms", "ffn=mlp", "tune.key=optim.lr", GRID, "tune.per_seed=true", "seeds=[3]", "tune.seeds=1"]
    rounds(plan, *command, score=lambda levels, lr, seed: -lr, stop_after=3)
    planned = plan(*command)
    write_plan(planned)
    status, run = train(planned)
    assert status == "done" and max(row.get("lr", 0) for row in run.metrics()[0]) == pytest.approx(1e-2)
    study = load_study(planned.results, planned.manifest.study)
    assert study.runs["status"].tolist() == ["done"] and not study.notes
    assert "tuned anew for each seed: lr 0.01" in summary(study, planned.results)


def test_more_seeds_are_tuned_for_and_nothing_is_trained_twice(plan: Any) -> None:
    code, _, first = rounds(plan, "norm=ln,rms", *EACH, "study=mine", score=score, stop_after=37)
    assert (code, first) == (130, 37)
    _, done, trained = rounds(plan, "norm=ln,rms", *EACH, "study=mine", score=score)
    assert chosen(done[-1].manifest)["rms"] == [OWN[seed] for seed in range(3)]
    before = {(run.cell, run.seed): run for run in done[-1].manifest.runs}
    assert first + trained == 36 + 6
    _, done, trained = rounds(plan, "norm=ln,rms", *EACH, "study=mine", "seeds=5", score=score)
    after = {(run.cell, run.seed): run for run in done[-1].manifest.runs}
    assert trained == 24 + 4 and before.items() <= after.items()
    _, done, trained = rounds(plan, "norm=ln,rms", *EACH, "study=mine", "seeds=2", score=score)
    assert trained == 0 and done[-1].manifest.seeds == [0, 1, 2, 3, 4], "those that were looked at stay"


def test_a_confirmation_is_tuned_anew_for_its_fresh_seeds(plan: Any) -> None:
    rounds(plan, "norm=ln,rms", *EACH, "study=mine", score=score)
    code, done, trained = rounds(plan, "norm=ln,rms", *EACH, "study=mine", "confirm=3", score=score)
    manifest = done[-1].manifest
    assert code == 0 and trained == 36 + 6 and manifest.seeds == [3, 4, 5] and manifest.confirms == "mine"
    assert chosen(manifest)["rms"] == [OWN[seed] for seed in (3, 4, 5)]
    tuning = read_manifest(done[-1].results, "mine-confirm-3-tune")
    assert tuning.seeds == list(range(1_000_006, 1_000_012)) and tuning.tunes == "mine-confirm-3"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["tune.per_seed=true"], "tune.key: is not given"),
        ([*EACH, "seeds=auto"], "tune.per_seed: tunes for seeds that are known beforehand"),
        ([*EACH, "placebo_seeds=3"], "placebo_seeds: takes one value for all seeds"),
        ([*EACH, "seeds=[600000]"], "tune.per_seed: has tuning seeds for seeds up to 499,999"),
        (["tune.key=ffn.mult", "tune.values=[2.0,4.0]", "tune.per_seed=true"], "goes with keys of optim"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_line(refused: Any, overrides: list[str], said: str) -> None:
    [line] = refused("norm=ln,rms", *overrides)
    assert said in line
