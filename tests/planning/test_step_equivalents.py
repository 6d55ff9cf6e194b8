"""Exchange runs: which are trained, and effects told in training steps, on planted slopes and on one real sweep."""

import itertools
import math
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from fake_studies import STEPS, TASK, edit_manifest, fabricate
from scipy import stats
from test_tuning import rounds

from ablate import evidence
from ablate.cli.status import main as status
from ablate.cli.sweep import preview
from ablate.config.schema import typed
from ablate.evidence.estimates import welch
from ablate.evidence.step_equivalents import Worth, fieller, outside, within
from ablate.planning.rounds import with_steps
from ablate.results import run_key
from ablate.results.code_hash import Code
from ablate.results.manifest import read_manifest
from ablate.results.progress import rounds_of, unsettled
from ablate.results.study import load_study

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
    assert "then exchange runs: 2 reference configurations at 5 and 8 steps, with the same seeds" in shown
    code, done, trained = rounds(plan, *command, score=planted)
    study, exchange = done[-1].manifest, done[-1].ended[-1].manifest
    assert "then exchange runs" not in " ".join(done[-1].notes), "they have been trained"
    assert code == 0 and trained == 4 * 3 + 2 * 2 * 3
    assert study.exchange == exchange.study == f"{study.study}-exchange"
    assert exchange.exchange_of == study.study and exchange.seeds == study.seeds
    assert exchange.factors == {"optim.lr": [0.001, 0.01], "train.steps": [5, 6, 8]}
    assert [cell.config.train.steps for cell in exchange.cells] == [5, 6, 8] * 2
    assert [cell.reference for cell in exchange.cells] == [False, True, False] * 2
    assert {cell.config.optim.warmup for cell in exchange.cells} == {2}
    plain, all_of_it = ({run.path for run in manifest.runs} for manifest in (study, exchange))
    assert len(plain & all_of_it) == 2 * 3, "the runs at the study's own steps are its own"
    out = capsys.readouterr().out
    assert out.count("simultaneous 95 % intervals") == 1, "one summary, of the study itself, when all is there"
    rate = r"exchange rate: 25 % more steps of ln \+ optim\.lr=0\.001: −0\.06(7|69)"  # planted: its SD is rounding
    [line, _] = evidence.exchange_lines(load_study(done[-1].results, study.study))
    assert re.search(rate, line)
    assert rounds(plan, *command, score=planted)[2] == 0
    table = evidence.effects(load_study(done[-1].results, study.study))
    assert evidence.worth_words(table.iloc[0], "steps") in out
    for row, (lr, slope) in zip(table[table["kind"] == "main"].itertuples(), RATES.items(), strict=True):
        differences = [planted({"norm": "rms"}, lr, s) - planted({"norm": "ln"}, lr, s) for s in range(3)]
        assert math.log1p(row.worth) == pytest.approx(np.mean(differences) / -slope)
        assert row.worth_low < row.worth < row.worth_high
        # The slopes have no noise of their own here, so that the interval is the difference's, divided.
        assert math.log1p(row.worth_low) == pytest.approx(row.high / -slope)
        assert math.log1p(row.worth_high) == pytest.approx(row.low / -slope)


def test_looks_have_exchange_runs_for_all_seeds_and_a_killed_one_goes_on(plan):
    def close(levels: dict, lr: float, seed: int) -> float:
        return planted(levels | {"norm": "ln"}, 0.001, seed) + noise(seed, 5) * (levels.get("norm") == "rms") + 0.001

    command = ["norm=ln,rms", "step_equivalents=true", "seeds=auto", "seeds_max=8"]
    code, done, trained = rounds(plan, *command, score=close, stop_after=13)
    assert (code, trained) == (130, 13) and done[-1].manifest.study.endswith("-exchange")
    assert read_manifest(done[-1].results, done[-1].ended[-1].manifest.study).seeds == list(range(5))
    code, done, trained = rounds(plan, *command, score=close)
    assert code == 0 and trained == 2 * 8 + 2 * 8 - 13
    study, exchange = (read_manifest(done[-1].results, plan.manifest.study) for plan in (done[-1], done[-2]))
    assert study.seeds == exchange.seeds == list(range(8))
    assert not [look for look in study.looks if look.study] and not evidence.unadjusted(study)


def test_a_confirmation_has_exchange_runs_with_its_fresh_seeds_and_status_waits_for_them(plan, capsys):
    command = ["norm=ln,rms", "step_equivalents=true", "seeds=3", "study=s"]
    done = rounds(plan, *command, score=at_one_rate, stop_after=6)[1]
    results = done[-1].results
    shutil.rmtree(results / "studies" / "s-exchange", ignore_errors=True)
    assert unsettled(rounds_of(results, "s")), "all runs on disk have ended, and the command goes on"
    rounds(plan, *command, score=at_one_rate)
    assert not unsettled(rounds_of(results, "s"))
    capsys.readouterr()
    assert status(["s-exchange", "--results-dir", str(results)]) == 0
    assert "exchange runs (s-exchange): 9 runs: 9 done" in capsys.readouterr().out
    _, done, trained = rounds(plan, *command, "confirm=2", score=at_one_rate)
    manifests = [done[-1].manifest, read_manifest(results, "s-confirm-2-exchange")]
    assert trained == 2 * 2 + 2 * 2 and [manifest.seeds for manifest in manifests] == [[3, 4]] * 2
    assert manifests[0].exchange == "s-confirm-2-exchange" and manifests[1].exchange_of == "s-confirm-2"


def test_a_later_command_without_them_keeps_what_belongs_to_its_reference(plan):
    command = ["norm=ln,rms", "seeds=3", "study=s"]
    _, done, _ = rounds(plan, *command, "step_equivalents=true", score=at_one_rate)
    results, links = done[-1].results, {"exchange": "s-exchange"}
    before = evidence.effects(load_study(results, "s"))
    for more, trained in (([], 0), (["seeds=4"], 2)):
        assert rounds(plan, *command, *more, score=at_one_rate)[2] == trained, "no exchange runs that nobody asked for"
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
    monkeypatch.setattr(run_key, "code_of", lambda config: Code("edited", {}))
    edited, asked = plan(*command), plan(*command, "step_equivalents=true")
    assert not edited.manifest.beside(), "its slope was measured by code that is gone"
    left = [note for note in edited.notes if "other code or versions" in note]
    assert [note.partition(" ")[0] for note in left] == ["s-exchange"]
    assert asked.manifest.exchange == "s-exchange" and "s-exchange was" not in " ".join(asked.notes)


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


def pairs(rng: np.random.Generator, n: int, worth: float, slope: float = -0.3) -> np.ndarray:
    """Differences and slopes (n, 2) with correlated noise, of a level that is worth `worth` more steps."""
    shared = rng.normal(0, 0.01, n)
    differences = math.log1p(worth) * slope + shared + rng.normal(0, 0.01, n)
    return np.stack([differences, slope + shared + rng.normal(0, 0.02, n)], axis=1)


def test_the_interval_ends_where_a_t_test_turns_and_agrees_with_the_difference():
    rng = np.random.default_rng(1)
    kinds = set()
    for n, slope in itertools.product((3, 5, 8), (-0.3, -0.02)):
        for _ in range(20):
            rows = pairs(rng, n, 0.02, slope)
            ratio, low, high = fieller([rows], 0.05)
            clear, bounded = stats.ttest_1samp(rows[:, 1], 0).pvalue < 0.05, math.isfinite(low)
            kinds.add((bounded, clear))
            if bounded:
                for end in (low, high):
                    assert stats.ttest_1samp(rows[:, 0] - end * rows[:, 1], 0).pvalue == pytest.approx(0.05)
                assert low <= ratio <= high
            zero = low <= 0 <= high
            assert zero == (stats.ttest_1samp(rows[:, 0], 0).pvalue >= 0.05) or not bounded
    assert kinds == {(True, True), (False, False)}


def compared(tmp_path, slope: float, difference: float, spread: float = 0.002, bend: float = 0.0, **more) -> object:
    """The effect of swiglu where the reference's score moves by `slope` per unit of log(steps)."""
    sign, seeds = more.pop("sign", 1), more.pop("exchange_seeds", range(6))

    def score(levels: dict, seed: int) -> float:
        x = math.log(levels.get("train.steps", STEPS) / STEPS)
        own = np.random.default_rng([seed, int(1e6 + 1e4 * x), len(levels.get("ffn", "mlp"))]).normal(0, spread)
        return sign * (2.0 + slope * x + bend * x * x + difference * (levels.get("ffn") == "swiglu")) + own

    tasks = {"f0": TASK | {"metrics": {"accuracy": "max"}}} if sign < 0 else {"f0": TASK}
    steps = {"train.steps": [STEPS, STEPS * 4 // 5, STEPS * 5 // 4]}
    fabricate(tmp_path, steps, seeds, score, study="x", tasks=tasks, exchange_of="s")
    own = {"study": "s", "exchange": "x", "tasks": tasks, "batches": more.pop("batches", lambda _: "b0")}
    name = fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, range(6), score, **own)
    return evidence.effects(load_study(tmp_path, name)).iloc[0]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_planted_slope_is_recovered_whichever_way_is_better(tmp_path, sign):
    row = compared(tmp_path, -0.3, -0.03, sign=sign)
    assert row.worth_low < math.expm1(0.1) < row.worth_high and row.worth == pytest.approx(math.expm1(0.1), rel=0.15)
    assert row.worth_note == "" and row.verdict == "better"
    assert re.fullmatch(r"worth 1.*\] more training steps", evidence.worth_words(row))
    row = compared(tmp_path / "unpaired", -0.3, -0.03, sign=sign, batches=lambda levels: levels["ffn"])
    assert not row.paired and row.worth_low < math.expm1(0.1) < row.worth_high


def test_over_several_strata_seeds_pair_whatever_their_batches(tmp_path):
    """A claim over two rates, whose sides pair by seed within each: both slopes pair with it, too."""

    def told(folder, batches):
        rates, steps = {"optim.lr": [*RATES]}, {"train.steps": [STEPS, STEPS * 4 // 5, STEPS * 5 // 4]}

        def score(levels, seed):
            at = 6 * levels.get("train.steps", STEPS) / STEPS
            own = noise(seed, int(at * 1000), int(levels["optim.lr"] * 1000))
            return planted(levels | {"train.steps": at}, levels["optim.lr"], seed) + own

        def within_rates(manifest):
            cells = [cell | {"reference": cell["levels"]["train.steps"] == STEPS} for cell in manifest["cells"]]
            manifest.update(reference={"train.steps": STEPS}, cells=cells)

        exchange = fabricate(folder, rates | steps, range(6), score, study="x", exchange_of="s", batches=batches)
        edit_manifest(folder, exchange, within_rates)
        claim = {"less": [{"norm": "rms"}, {"norm": "ln"}], "metric": "test/loss"}
        claims = {"less": {"claim": claim, "written": "t", "registered": True}}
        more = {"study": "s", "exchange": "x", "batches": batches, "claims": claims}
        name = fabricate(folder, {"norm": ["ln", "rms"]} | rates, range(6), score, **more)
        row = evidence.claims(load_study(folder, name)).iloc[0]
        return [row.worth, row.worth_low, row.worth_high]

    of_rates = told(tmp_path / "rates", lambda levels: str(levels["optim.lr"]))
    assert of_rates == pytest.approx(told(tmp_path / "all", lambda levels: "b0")) and math.isfinite(of_rates[2])


def test_what_cannot_be_told_is_said(tmp_path):
    far = compared(tmp_path / "far", -0.1, -0.05)
    assert "beyond what was measured" in far.worth_note
    assert evidence.worth_words(far) == "worth more than 25 % more training steps"
    worse = compared(tmp_path / "worse", 0.1, -0.05)
    assert math.isnan(worse.worth) and "more steps make its reference worse" in worse.worth_note
    flat = compared(tmp_path / "flat", -0.001, -0.05, 0.01)
    assert (flat.worth_low, flat.worth_high) == (-1, math.inf) and "these seeds do not show" in flat.worth_note
    assert evidence.worth_words(flat) == "not bounded in training steps"
    assert evidence.worth_text(flat) == "not bounded in training steps, these seeds do not show what more steps do"
    assert evidence.worth_text(worse) == worse.worth_note and evidence.worth_text(far) == evidence.worth_words(far)
    bent = compared(tmp_path / "bent", -0.3, -0.03, bend=0.3)
    assert "curve bends" in bent.worth_note
    few = compared(tmp_path / "few", -0.3, -0.03, exchange_seeds=range(4))
    assert "over 4 seeds that have exchange runs" in few.worth_note and few.n == 6
    one = compared(tmp_path / "one", -0.3, -0.03, exchange_seeds=range(1))
    assert math.isnan(one.worth) and "fewer than 2 seeds" in one.worth_note


@pytest.mark.parametrize(
    ("worth", "low", "high", "said"),
    [
        (0.09, 0.06, 0.13, "worth 9 % [6, 13] more steps"),
        (-0.09, -0.13, -0.06, "worth 9 % [6, 13] fewer steps"),
        (0.0912, 0.085, 0.097, "worth 9.1 % [8.5, 9.7] more steps"),
        (0.3, 0.2, 0.9, "worth more than 25 % [20, >25] more steps"),
        (-0.1, -0.3, 0.04, "worth 10 % [−4, >20] fewer steps"),
        (0.01, -0.3, 0.3, "worth 1 % [<−20, >25] more steps"),
        (0.01, -1.0, math.inf, "not bounded in steps"),
        (-0.1, -1.0, -0.05, "worth 10 % [5, >20] fewer steps"),
        (math.nan, math.nan, math.nan, ""),
    ],
)
def test_a_worth_in_words(worth, low, high, said):
    assert evidence.worth_words(SimpleNamespace(worth=worth, worth_low=low, worth_high=high), "steps") == said


def test_of_unpaired_sides_the_interval_has_the_fewer_degrees_of_freedom() -> None:
    """Welch's at g = 0, where the side without a slope counts alone, and at the ratio; groups of 30 and of 4 seeds."""
    rng = np.random.default_rng(3)
    wide = np.stack([rng.normal(0.5, 0.3, 30), np.zeros(30)], axis=1)
    steep = np.stack([np.zeros(4), rng.normal(-1.0, 0.2, 4)], axis=1)
    ratio, *ends = fieller([wide, steep], 0.05)
    for end in ends:
        sides = [part @ [1.0, -end] for part in (wide, steep)]
        error = math.sqrt(sum(np.var(side, ddof=1) / len(side) for side in sides))
        at = [welch([part @ [1.0, -g] for part in (wide, steep)]).df for g in (0.0, ratio)]
        assert min(at) < 0.95 * max(at), "or either would do"
        assert abs(sum(side.mean() for side in sides)) / error == pytest.approx(stats.t.ppf(0.975, min(at)))


def test_a_share_of_the_steps_is_as_far_in_both_directions() -> None:
    """2 % more steps, and what 2 % more steps make up for: 1/1.02 − 1, which is −1.96 %, not −2 %."""
    assert within(-0.0196, 0.0199, 0.02) and not within(-0.0197, 0.01, 0.02) and not within(0.0, 0.02, 0.02)
    assert not within(-1.0, math.inf, 0.02) and not within(math.nan, math.nan, 0.02)
    told = Worth(-0.03, -0.04, -0.0197)
    assert outside(told, 0.02) and not outside(told._replace(worth_high=-0.0195), 0.02)
