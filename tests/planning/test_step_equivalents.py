"""References trained for other numbers of steps: which runs are planned, and effects in training steps."""

import math
import shutil

import numpy as np
import pytest
from test_tuning import rounds

from ablate import evidence
from ablate.cli.preview import preview
from ablate.cli.status import main as status
from ablate.config.schema import typed
from ablate.planning.rounds import with_steps
from ablate.runs import key as identity
from ablate.runs.code_digest import Code
from ablate.runs.manifest import read_manifest
from ablate.runs.progress import rounds_of, unsettled
from ablate.runs.study import load_study

RATES = {0.001: 0.3, 0.01: 0.1}  # slopes by learning rate
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def noise(*key: int) -> float:
    return float(np.random.default_rng(key).normal(0, 0.004))


def planted(levels: dict, lr: float, seed: int) -> float:
    """A loss that falls by the slope times log(steps / 6), and by 0.02 more for rms."""
    falls = RATES[lr] * math.log(levels.get("train.steps", 6) / 6)
    gain = 0.02 * (levels.get("norm") == "rms")
    return 2.0 + seed / 100 - falls - gain + noise(seed, levels.get("norm") == "rms")


def at_one_rate(levels: dict, lr: float, seed: int) -> float:
    return planted(levels, 0.001, seed)


def test_references_of_all_strata_are_trained_longer_and_shorter_and_effects_told_in_their_steps(plan, capsys):
    command = ["norm=ln,rms", "optim.lr=1e-3,1e-2", "step_equivalents=true", "seeds=3"]
    shown = preview(plan(*command))
    assert "4 configurations × 3 seeds = 12 runs" in shown
    assert "then 2 references for 0.8, 1.25 and 1.6 times the steps" in shown
    code, done, trained = rounds(plan, *command, score=planted)
    study, exchange = done[-1].manifest, done[-1].ended[-1].manifest
    assert "then 2 references" not in " ".join(done[-1].notes), "they have been trained"
    assert code == 0 and trained == 4 * 3 + 2 * 3 * 3
    assert study.exchange == exchange.study == f"{study.study}-exchange"
    assert exchange.exchange_of == study.study and exchange.seeds == study.seeds
    assert exchange.factors == {"optim.lr": [0.001, 0.01], "train.steps": [5, 6, 8, 10]}
    assert [cell.config.train.steps for cell in exchange.cells] == [5, 6, 8, 10] * 2
    assert [cell.reference for cell in exchange.cells] == [False, True, False, False] * 2
    assert {cell.config.optim.warmup for cell in exchange.cells} == {2}
    plain, all_of_it = ({run.path for run in manifest.runs} for manifest in (study, exchange))
    assert len(plain & all_of_it) == 2 * 3, "the runs at the study's own steps are its own"
    out = capsys.readouterr().out
    assert out.count("simultaneous 95 % intervals") == 1, "one summary, of the study itself, when all is there"
    assert rounds(plan, *command, score=planted)[2] == 0
    table = evidence.effects(load_study(done[-1].results, study.study))
    assert evidence.worth_words(table.iloc[0], "steps") in out
    for row, (lr, slope) in zip(table[table["kind"] == "main"].itertuples(), RATES.items(), strict=True):
        differences = [planted({"norm": "rms"}, lr, s) - planted({"norm": "ln"}, lr, s) for s in range(3)]
        assert math.log1p(row.worth) == pytest.approx(np.mean(differences) / -slope)
        # The curve has no noise of its own here, so that the interval is the difference's, divided.
        low = max(row.high / -slope, math.log(5 / 6))
        assert math.log1p(row.worth_low) == pytest.approx(low) or row.worth_low == -1
        assert math.log1p(row.worth_high) == pytest.approx(row.low / -slope) or row.worth_high == math.inf


def beyond(levels: dict, lr: float, seed: int) -> float:
    """Losses for which rms needs 2.3 times the steps of ln, and group 0.7 times."""
    own = {"rms": math.log(2.3), "group": math.log(0.7)}.get(str(levels.get("norm")), 0.0)
    return 2.0 - 0.1 * (math.log(levels.get("train.steps", 20) / 20) + own) + noise(seed, len(str(levels))) / 10


def test_further_steps_are_trained_while_a_variant_lies_beyond_and_nothing_twice(plan):
    command = ["norm=ln,rms,group", "train.steps=20", "step_equivalents=true", "seeds=3", "study=s"]
    code, done, trained = rounds(plan, *command, score=beyond, stop_after=9 + 9 + 4)
    assert (code, trained) == (130, 22)
    last = done[-1].manifest
    assert [cell.config.train.steps for cell in last.cells] == [13, 16, 20, 25, 32, 40]
    code, done, trained = rounds(plan, *command, score=beyond)
    results = done[-1].results
    steps = [cell.config.train.steps for cell in read_manifest(results, "s-exchange").cells]
    assert code == 0 and steps == [13, 16, 20, 25, 32, 40, 50]
    assert trained == 3 * 7 + 3 * 2 - 22, "each run once, over both commands"
    assert rounds(plan, *command, score=beyond)[2] == 0
    table = evidence.effects(load_study(results, "s")).set_index("level")
    assert table.loc["rms", "worth"] == pytest.approx(1.3, abs=0.05)
    assert table.loc["group", "worth"] == pytest.approx(-0.3, abs=0.02)
    _, done, trained = rounds(plan, *command, "seeds=4", score=beyond)
    assert trained == 3 + 6, "a fourth seed of every number of steps that is there"


def test_further_steps_end_at_half_and_at_four_times(plan):
    def far(levels: dict, lr: float, seed: int) -> float:
        return planted(levels | {"norm": "ln"}, 0.01, seed) - {"rms": 1.0, "group": -1.0}.get(levels.get("norm"), 0.0)

    rounds(plan, "norm=ln,rms,group", "train.steps=20", "step_equivalents=true", "seeds=2", "study=s", score=far)
    results = plan("norm=ln", "study=x").results
    steps = [cell.config.train.steps for cell in read_manifest(results, "s-exchange").cells]
    assert steps == [10, 13, 16, 20, 25, 32, 40, 50, 64, 80]


def test_looks_have_other_steps_for_all_seeds_and_a_killed_one_goes_on(plan):
    def close(levels: dict, lr: float, seed: int) -> float:
        return planted(levels | {"norm": "ln"}, 0.001, seed) + noise(seed, 5) * (levels.get("norm") == "rms") + 0.001

    command = ["norm=ln,rms", "step_equivalents=true", "seeds=auto", "seeds_max=8"]
    code, done, trained = rounds(plan, *command, score=close, stop_after=13)
    assert (code, trained) == (130, 13) and done[-1].manifest.study.endswith("-exchange")
    assert read_manifest(done[-1].results, done[-1].ended[-1].manifest.study).seeds == list(range(5))
    code, done, trained = rounds(plan, *command, score=close)
    assert code == 0 and trained == 2 * 8 + 3 * 8 - 13
    study, exchange = (read_manifest(done[-1].results, plan.manifest.study) for plan in (done[-1], done[-2]))
    assert study.seeds == exchange.seeds == list(range(8))
    assert not [look for look in study.looks if look.study] and not evidence.unadjusted(study)


def test_a_confirmation_has_other_steps_with_its_fresh_seeds_and_status_waits_for_them(plan, capsys):
    command = ["norm=ln,rms", "step_equivalents=true", "seeds=3", "study=s"]
    done = rounds(plan, *command, score=at_one_rate, stop_after=6)[1]
    results = done[-1].results
    shutil.rmtree(results / "studies" / "s-exchange", ignore_errors=True)
    assert unsettled(rounds_of(results, "s")), "all runs on disk have ended, and the command goes on"
    rounds(plan, *command, score=at_one_rate)
    assert not unsettled(rounds_of(results, "s"))
    capsys.readouterr()
    assert status(["s-exchange", "--results-dir", str(results)]) == 0
    assert "other numbers of steps (s-exchange): 12 runs: 12 done" in capsys.readouterr().out
    _, done, trained = rounds(plan, *command, "confirm=2", score=at_one_rate)
    manifests = [done[-1].manifest, read_manifest(results, "s-confirm-2-exchange")]
    assert trained == 2 * 2 + 3 * 2 and [manifest.seeds for manifest in manifests] == [[3, 4]] * 2
    assert manifests[0].exchange == "s-confirm-2-exchange" and manifests[1].exchange_of == "s-confirm-2"


def test_a_later_command_without_them_keeps_what_belongs_to_its_reference(plan):
    command = ["norm=ln,rms", "seeds=3", "study=s"]
    _, done, _ = rounds(plan, *command, "step_equivalents=true", score=at_one_rate)
    results, links = done[-1].results, {"exchange": "s-exchange"}
    before = evidence.effects(load_study(results, "s"))
    for more, trained in (([], 0), (["seeds=4"], 2)):
        assert rounds(plan, *command, *more, score=at_one_rate)[2] == trained, "no runs that nobody asked for"
        assert read_manifest(results, "s").beside() == links
        assert not unsettled(rounds_of(results, "s"))
        study = load_study(results, "s")
        assert set(study.beside) == {"exchange"} and evidence.effects(study)["worth"].notna().all()
    assert before["worth_note"].item() == "" and "over 3 seeds" in evidence.effects(study)["worth_note"].item()
    other = plan("norm=rms,ln", "study=s").manifest
    assert not other.beside(), "what was measured on another reference says nothing of this one"
    shutil.rmtree(results / "studies" / "s-exchange")
    assert not plan(*command).manifest.beside()


def test_what_other_code_trained_is_no_longer_kept_beside_a_study(plan, monkeypatch):
    command = ["norm=ln,rms", "study=s"]
    rounds(plan, *command, "step_equivalents=true", score=at_one_rate)
    for other in (["reuse=none"], ["seeds=[7,8]"]):
        assert plan(*command, *other).manifest.exchange == "s-exchange", "of the same code, whatever the runs are"
    monkeypatch.setattr(identity, "code_of", lambda *_: Code("edited", {}))
    edited, asked = plan(*command), plan(*command, "step_equivalents=true")
    assert not edited.manifest.beside(), "its slope was measured by code that is gone"
    left = [note for note in edited.notes if "other code or versions" in note]
    assert [note.partition(" ")[0] for note in left] == ["s-exchange"]
    assert asked.manifest.exchange == "s-exchange" and "s-exchange was" not in " ".join(asked.notes)


def test_further_seeds_of_lower_rungs_stay_once_they_were_looked_at(plan):
    ladder = ["design=ladder", "ladder=3", "parametrization=mup", "ffn=mlp,gelu", "model.layers=2", "train.steps=24"]

    def by_seed(levels: dict, lr: float, seed: int) -> float:
        return 2.0 + seed / 100

    rounds(plan, *ladder, "seeds=[0,1]", "study=s", score=by_seed)
    _, done, _ = rounds(plan, *ladder, "seeds=[0,1,9]", "study=s", score=by_seed)
    for name in ("s", "s-exchange"):
        manifest = read_manifest(done[-1].results, name)
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
