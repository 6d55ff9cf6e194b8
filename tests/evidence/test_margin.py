"""The margin: its spellings, when it was written, and what it decides."""

from typing import Any

import numpy as np
import pytest
from fake_studies import study_of

from ablate import evidence, formatting
from ablate.cli.summary import summary
from ablate.config.errors import PlanError
from ablate.data.copying import Sort
from ablate.evidence.families import undecided
from ablate.planning.earlier_runs import registered
from ablate.planning.plan import plan_study
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import renew_manifest
from ablate.runs.records import MarginEntry, MarginText
from ablate.runs.study import Study

EQUAL, SMALL = "equivalent", "negligible"
PATTERN = np.array([-1.0, 1.0, -1.0, 1.0, 0.0]) / np.sqrt(4 / 5)  # over five seeds: mean 0, SD 1 but for n − 1


def entry(value: Any, registered: bool = True, earlier: list[Any] | None = None) -> dict[str, Any]:
    return {"value": value, "written": "2026-02-03T04:05", "registered": registered, "earlier": earlier or []}


def study(difference: float, sd: float, n: int = 5, **options: Any) -> Study:
    """Two norms whose difference has this mean and about this SD; half the interval is 1.24 SD at n = 5."""

    def score(levels: dict[str, Any], seed: int) -> float:
        return 2.0 + (levels["norm"] == "rms") * (difference + sd * float(PATTERN[seed % 5]))

    return study_of({"norm": ["ln", "rms"]}, range(n), score=score, **options)


def row(found: Study) -> Any:
    return next(evidence.effects(found).itertuples())


@pytest.mark.parametrize(
    ("difference", "n", "verdict"),
    [
        *[(0.0, 5, EQUAL), (0.004, 5, SMALL), (-0.004, 5, SMALL), (0.02, 5, "worse")],
        *[(-0.02, 5, "better"), (0.009, 5, "worse"), (0.0, 4, "undecided"), (0.004, 4, "worse")],
    ],
)
def test_verdicts_follow_the_interval_the_margin_and_the_seeds(difference, n, verdict):
    found = row(study(difference, 0.001, n, margin=entry(0.01)))
    assert found.verdict == verdict and found.margin == 0.01
    assert (found.note == "inside the margin, but n < 5") == (n < 5)


def test_what_is_not_shown_within_a_margin_is_undecided_and_says_so():
    found = row(study(0.0, 0.01, margin=entry(0.01)))
    assert found.low < -0.01 and found.verdict == "undecided"
    assert formatting.verdict(found) == "undecided (not shown within ±0.01)"
    found = row(study(0.0, 1e-6))
    assert found.verdict == "undecided" and formatting.verdict(found) == "undecided"


def test_seeds_auto_stops_where_an_effect_is_equivalent():
    looks = {"looks": [5, 8], "at": 5, "max": 8}
    for difference, verdict in ((0.0, EQUAL), (0.012, SMALL), (0.03, "worse")):
        found = study(difference, 0.002, margin=entry(0.02), sequential=looks)
        table = evidence.effects(found)
        assert table["verdict"].iloc[0] == verdict and undecided(table).empty
        assert evidence.sequential_state(found, table).startswith("seeds=auto: nothing left to decide at 5 seeds;")
    assert len(undecided(evidence.effects(study(0.0, 0.004, sequential=looks)))) == 1


def test_words_say_how_large_and_whether_afterwards():
    found = row(study(0.0, 0.001, margin=entry(0.01)))
    assert formatting.verdict(found) == "equivalent (within ±0.01)"
    late = study(0.004, 0.001, margin=entry(0.01, False, [entry(0.003)]))
    assert formatting.verdict(row(late)) == "negligible (a difference within ±0.01): by a margin written after results"
    said = "margin: ±0.01, post hoc: written 2026-02-03, after results; "
    said += "earlier: ±0.003 (registered 2026-02-03, before any result)"
    assert said in summary(late) and evidence.margin_line(late) == said


def test_a_margin_in_steps_is_judged_by_what_the_effect_is_worth_in_steps():
    found = study(0.0, 0.001, margin=entry("2 %"))
    said = "nothing can be judged by it without step_equivalents=true"
    assert evidence.margin_line(found).endswith(said)
    assert formatting.verdict(row(found)) == "undecided (not shown within ±2 % of the training steps)"


def test_a_margin_is_registered_until_two_cells_of_a_seed_have_a_result():
    assert registered(None, None, {0: {"a", "b"}}, "t1") is None
    first = registered(0.01, None, {0: {"a"}, 1: {"b"}}, "t1")
    assert first == MarginEntry(value=0.01, written="t1", registered=True)
    assert registered(0.01, first, {0: {"a", "b"}}, "t2") == first
    second = registered(0.02, first, {0: {"a", "b"}}, "t2")
    assert second and not second.registered
    assert second.earlier == [MarginText(value=0.01, written="t1", registered=True)]
    gone = registered(None, second, {0: {"a", "b"}}, "t3")
    assert gone and gone.value is None and [old.value for old in gone.earlier] == [0.01, 0.02]


def test_the_plan_remembers_margins_and_their_time_beside_the_same_study(plan, untried):
    plain = plan("norm=ln,rms", "seeds=2")
    first = plan("norm=ln,rms", "seeds=2", "margin=0.01")
    assert first.manifest.study == plain.manifest.study and first.statuses == plain.statuses
    assert first.manifest.margin.registered and plain.manifest.margin is None
    renew_manifest(first.results, first.manifest)
    for run in first.manifest.runs:
        if run.seed == 0:
            folder = Run(first.results, run.path)
            folder.folder.mkdir(parents=True)
            write_json(folder.result_file, {"status": "done", "final": {"test/loss": 2.0}, "error": None})
    again = plan("norm=ln,rms", "seeds=2", "margin=0.01").manifest.margin
    assert again == first.manifest.margin
    later = plan("norm=ln,rms", "seeds=2", "margin=0.02").manifest.margin
    assert not later.registered and later.earlier[0].value == 0.01


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["margin=0"], "margin: must be > 0"),
        (["margin=about"], "margin: must be > 0"),
        (["margin=true"], "margin: must be > 0"),
        (["margin=0 %", "step_equivalents=true"], "margin: must be > 0"),
        (
            ["margin=2 %"],
            "margin: '2 %' is a share of the training steps, which needs the reference at other numbers of steps",
        ),
    ],
)
def test_nonsense_is_refused_in_one_line(plan, overrides, said):
    with pytest.raises(PlanError) as caught:
        plan("norm=ln,rms", *overrides)
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


def test_a_number_is_in_no_unit_of_several_metrics(untried, monkeypatch):
    monkeypatch.setattr(Sort, "metrics", {"exact": "max"})
    with pytest.raises(PlanError, match=r"margin: 0\.01 cannot be in the unit of accuracy and of exact"):
        plan_study(("data=copy,sort", "norm=ln,rms", "margin=0.01", "scale=tiny"))


@pytest.mark.parametrize("kind", ["tunes", "exchange_of"])
def test_studies_that_serve_another_carry_no_verdict_words(kind):
    found = study(0.02, 0.001, margin=entry(0.01), **{kind: "mine"})
    assert row(found).verdict == "estimate only"
    text = summary(found)
    assert not any(word in text for word in ("better", "worse", "equivalent", "undecided", "negligible"))
    assert "confirm=" not in text and "margin" not in text
