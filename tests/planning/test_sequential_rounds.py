"""seeds=auto on the command line, planned from look to look, with results written by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from fake_studies import edit_manifest
from one_run import write_plan
from planned_rounds import rounds, write

from ablate import evidence
from ablate.planning.plan import Plan
from ablate.runs.manifest import log_look, read_manifest
from ablate.runs.records import Look, Sequential

AUTO = ["norm=ln,rms", "seeds=auto"]
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def apart(levels: dict[str, Any], lr: float, seed: int) -> float:
    """A difference of ten SDs."""
    return 2 + 0.1 * (levels["norm"] == "rms") + 0.01 * ((7 * seed + len(levels["norm"])) % 5)


def alike(levels: dict[str, Any], lr: float, seed: int) -> float:
    """No difference: the larger loss changes sides from seed to seed."""
    return 2 + 0.01 * (levels["norm"] == ("rms" if seed % 2 else "ln"))


@pytest.fixture
def sweep(plan, capsys) -> Callable[..., tuple[int, str, int]]:
    """A command carried out by its real rounds, with a launcher that writes scores: exit code, output, runs trained."""

    def swept(score, *overrides):
        code, _, trained = rounds(plan, *overrides, score=score)
        return code, capsys.readouterr().out, trained

    return swept


def logged(plan: Plan) -> list[tuple[list[int], Any]]:
    manifest = read_manifest(plan.results, plan.manifest.study)
    return [(look.seeds, look.planned) for look in manifest.looks]


def test_it_stops_as_soon_as_all_is_decided(plan, sweep):
    code, summary, trained = sweep(apart, *AUTO)
    assert code == 0 and trained == 10
    assert "seeds=auto: nothing left to decide at 5 seeds; intervals allow for" in summary
    assert " raises test loss by " in summary and "unadjusted" not in summary
    again = plan(*AUTO)
    assert again.todo == [] and again.manifest.sequential == Sequential(looks=[5, 8, 12, 20], at=5, max=20)
    assert logged(again) == [(list(range(5)), [5, 8, 12, 20])]


def test_it_goes_on_to_the_last_look_where_nothing_is_decided(plan, sweep):
    code, summary, trained = sweep(alike, *AUTO, "seeds_max=8")
    assert code == 0 and trained == 10 + 6
    assert "seeds=auto: 1 effect undecided at 8 seeds; intervals allow for" in summary
    assert "unadjusted" not in summary
    again = plan(*AUTO, "seeds_max=8")
    assert again.todo == [] and again.manifest.sequential.at == 8
    assert logged(again) == [(list(range(n)), [5, 8]) for n in (5, 8)]


def test_a_kill_at_any_point_resumes_at_its_look(plan):
    first = plan(*AUTO)
    write_plan(first)
    write(first, alike, 7)
    assert len(plan(*AUTO).todo) == 3, "within the first look"
    write(first, alike)
    second = plan(*AUTO)  # killed before anything was written of the second look
    assert second.manifest.seeds == list(range(8)) and len(second.todo) == 6
    assert [(look.seeds, look.planned) for look in second.manifest.looks] == [([0, 1, 2, 3, 4], [5, 8, 12, 20])]
    write_plan(second)
    write(second, apart, 1)
    third = plan(*AUTO)
    assert len(third.todo) == 5 and len(third.manifest.looks) == 1
    assert not evidence.unadjusted(third.manifest)


def test_a_failing_run_ends_the_command_at_its_look(plan, sweep):
    command = [*AUTO, "seeds_max=8"]

    def failing(levels, lr, seed):
        return None if (levels["norm"], seed) == ("rms", 3) else alike(levels, lr, seed)

    code, summary, trained = sweep(failing, *command)
    assert code == 1 and trained == 10 and "the analysis at 5 seeds lacks 1 run" in summary
    assert len(plan(*command).todo) == 1, "the same command tries it again, and goes on from there"
    code, summary, trained = sweep(apart, *command)
    assert code == 0 and trained == 1 + 6 and "unadjusted" not in summary


@pytest.mark.parametrize(
    ("before", "after"),
    [("seeds=3", "seeds=auto"), ("seeds=auto", "seeds=5"), ("seeds=auto seeds_max=5", "seeds=auto seeds_max=8")],
)
def test_changing_the_plan_after_a_look_is_reported(before, after, sweep):
    score = alike if "max" in before else apart
    assert "unadjusted" not in sweep(score, "norm=ln,rms", *before.split())[1]
    assert "unadjusted: " in sweep(score, "norm=ln,rms", *after.split())[1]


def test_a_look_that_another_command_took_since_the_plan_was_made_stays(plan):
    first = plan("norm=ln,rms", "seeds=3", "study=x")
    second = plan("norm=ln,rms", "seeds=2", "study=x")
    write_plan(first)
    log_look(first.results, first.manifest, "2025-01-02")
    write_plan(second)
    assert read_manifest(second.results, "x").looks == [Look(seeds=[0, 1, 2], when="2025-01-02")]


def test_another_study_with_the_same_plan_shares_its_looks(sweep):
    sweep(alike, *AUTO, "seeds_max=8")
    code, summary, trained = sweep(alike, *AUTO, "seeds_max=8", "study=again")
    assert code == 0 and trained == 0 and "unadjusted" not in summary
    assert "unadjusted: " in sweep(alike, *AUTO, "seeds_max=12", "study=more")[1]


def test_a_study_that_has_taken_back_its_claims_has_nothing_to_stop_by(plan, refused):
    first = plan(*AUTO, "seeds_max=8")
    write_plan(first)
    write(first, alike)
    claim = {"less": [{"norm": "rms"}, {"norm": "ln"}]}
    entry = {"claim": claim, "written": "2026-01-01", "registered": True}
    edit_manifest(first.results, first.manifest.study, lambda manifest: manifest.update(claims={"gone": entry}))
    [line] = refused(*AUTO, "seeds_max=8")
    assert line.startswith("seeds: auto has nothing to decide, ") and "write seeds=8" in line
    assert plan("norm=ln,rms", "seeds=8").manifest.withdrawn


def test_a_common_reference_alone_is_no_look_at_a_comparison(sweep):
    sweep(alike, "norm=ln,rms", "seeds=3")
    assert "unadjusted" not in sweep(alike, "norm=ln,bn", "seeds=auto", "seeds_max=8")[1]
    assert "unadjusted" in sweep(alike, "norm=ln,bn,rms", "seeds=auto", "seeds_max=8")[1]


def test_divergence_is_not_waited_for(plan, sweep):
    def diverging(levels, lr, seed):
        return math.nan if (levels["norm"], seed) == ("rms", 0) else alike(levels, lr, seed)

    code, summary, _ = sweep(diverging, *AUTO, "seeds_max=8")
    assert code == 0 and "seeds=auto: nothing left to decide at 5 seeds" in summary
    again = plan(*AUTO, "seeds_max=8")
    assert again.todo == [] and again.manifest.sequential.at == 5


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seeds=auto", "confirm=8"], "seeds: auto and confirm do not go together"),
        (["seeds=auto", "seeds_max=4"], "seeds_max: must be a whole number ≥ 5"),
        (["seeds=auto", "seed.init=0", "seed.data=0"], "all seeds would be one run"),
        (["seeds_max=8"], "seeds_max: is the most that seeds=auto adds; write it too"),
        (["seeds=often"], "seeds=auto; not 'often'"),
    ],
)
def test_wrong_combinations_are_refused(overrides, message, refused):
    assert message in refused("norm=ln,rms", *overrides)[0]
