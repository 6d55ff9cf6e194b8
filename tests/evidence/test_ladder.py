"""Multipliers and trends of design=ladder, against curves that are known."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_studies import study_of, with_manifest
from ladders import COST, TOP, climbed

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.claims import Claim
from ablate.config.typed_json import parse
from ablate.evidence.estimates import interval
from ablate.evidence.ladder import DECADE, arms, combined, line
from ablate.results.manifest import flaws
from ablate.results.records import ClaimEntry, MarginEntry
from ablate.results.study import Study


@pytest.mark.parametrize("size", [0.7, 1.0, 1.2, 2.0])
@pytest.mark.parametrize("trend", [-0.1, 0.0, 0.2])
def test_multipliers_and_their_trend_are_those_of_the_curve(size: float, trend: float) -> None:
    study = climbed(lambda c: math.log(size) + trend * (c - TOP) / DECADE)
    table = evidence.ladder(study)
    x = np.log(table["compute"].to_numpy(float))
    logs = math.log(size) + trend * (x - TOP) / DECADE
    assert np.diff(x) == pytest.approx([math.log(4)] * 3) and x[-1] == pytest.approx(TOP)
    assert np.log(table["multiplier"].to_numpy(float)) == pytest.approx(logs, abs=0.02)
    assert table["trend"].to_numpy() == pytest.approx([DECADE * np.polyfit(x, logs, 1)[0]] * 4, abs=0.02)
    assert math.log(table["ten"].iloc[0]) == pytest.approx(math.log(size) + trend, abs=0.05)
    assert table["hit"].all() or abs(table["forecast"].iloc[0] / size - 1) < 0.05
    # At the top there is no reference above a gain, and at the bottom none below a loss.
    gains = logs + math.log(COST)
    assert list(table["extrapolated"]) == [bool(gains[0] < 0), False, False, bool(gains[-1] > 0)]


def test_errors_are_those_that_repetition_shows() -> None:
    """The interval of each multiplier and of the trend holds the truth in 95 % of ladders, within three errors.  With
    so large a multiplier, the noise of the reference counts as much as that of the differences."""
    study, inside = climbed(lambda c: math.log(0.5), noise=0.0), []
    for offset in range(200):
        rng = np.random.default_rng(offset)
        runs = study.runs.assign(**{"test/loss": study.runs["test/loss"] + rng.normal(0, 0.008, len(study.runs))})
        rungs = arms(Study(study.manifest, runs, study.curves, [], {}))[1]["ffn: swiglu − mlp"]
        ends = [interval(combined(rungs, weights), 0.05) for weights in (*np.eye(4), line(rungs))]
        inside.append(
            [low <= truth <= high for (low, high), truth in zip(ends, [math.log(0.5)] * 4 + [0], strict=True)]
        )
    assert np.mean(inside, axis=0) == pytest.approx(0.95, abs=3 * math.sqrt(0.05 * 0.95 / 200))


def ends_badly(ending: str, rate: str, first: int) -> Callable[[dict[str, Any], int], str]:
    """The status of runs: those at another rate end badly from a seed on."""
    return lambda levels, seed: ending if rate in str(levels["rung"]) and seed >= first else "done"


def broken(c: float) -> float:
    return 1.0 - (0.12 if c < TOP - 2 else 0.04) * (c - TOP)


def hollow(c: float) -> float:
    return 1.0 + 0.05 * abs(c - TOP + 2)


@pytest.mark.parametrize(
    ("changes", "verdict", "why"),
    [
        ({"log": lambda c: 0.3 + 0.2 * (c - TOP) / DECADE}, "grows", ""),
        ({"log": lambda c: -0.3 - 0.2 * (c - TOP) / DECADE}, "grows", ""),
        ({"log": lambda c: 0.1 - 0.2 * (c - TOP) / DECADE}, "fades", ""),
        ({"log": lambda c: -0.1 + 0.2 * (c - TOP) / DECADE}, "fades", ""),
        ({"log": lambda c: 0.2}, "holds", ""),
        ({"log": lambda c: 0.2, "margin": None}, "undecided", ""),
        ({"log": lambda c: 0.0, "noise": 0.004}, "undecided", "neither growing nor fading"),
        ({"log": lambda c: 0.02 * (c - TOP) / DECADE}, "holds", ""),
        ({"log": lambda c: 0.2, "late": True}, "holds", "by a margin written after results"),
        ({"log": lambda c: 0.3 + 0.66 * (c - TOP) / DECADE}, "undecided", "worth more than 1 at the top, the reverse"),
        ({"log": lambda c: -0.3 - 0.66 * (c - TOP) / DECADE}, "undecided", "worth less than 1 at the top, the reverse"),
        ({"log": lambda c: 0.2, "law": lambda c: 1.0 + 0.05 * (c - TOP)}, "withheld", "does not always make the refer"),
        ({"log": lambda c: 0.2, "status": ends_badly("diverged", "twice", 0)}, "holds", ""),
        ({"log": lambda c: 0.2, "status": ends_badly("diverged", "twice", 3)}, "holds", ""),
        (
            {"log": lambda c: 0.2, "status": ends_badly("failed", "half", 2)},
            "undecided",
            "too few runs at half the rate",
        ),
        (
            {"log": lambda c: 0.2, "status": ends_badly("missing", "half", 2)},
            "undecided",
            "too few runs at half the rate",
        ),
        ({"log": lambda c: 0.2, "law": broken}, "withheld", "changes by more than 2 times"),
        ({"log": lambda c: 0.2, "law": hollow}, "withheld", "does not always make the reference better"),
        ({"log": lambda c: 0.2, "rates": lambda ffn, rate: 0.02 - 0.04 * (ffn == "swiglu")}, "undecided", "swiglu + "),
        (
            {"log": lambda c: 0.2, "rates": lambda ffn, rate: 0.02 - 0.04 * ("half" in rate)},
            "undecided",
            "at half the rate",
        ),
        ({"log": lambda c: 0.2, "seeds": 1}, "withheld", "one seed"),
    ],
)
def test_the_verdict_on_a_trend(changes: dict[str, Any], verdict: str, why: str) -> None:
    changes = {**changes}
    margin = MarginEntry(value=changes.pop("margin", 0.05), written="", registered=not changes.pop("late", False))
    study = with_manifest(climbed(**changes), margin=margin)
    table = evidence.ladder(study)
    assert set(table["alpha"]) == {0.05 / 5}, "four multipliers and a trend hold together"
    assert set(table["verdict"]) == {verdict} and why in table["why"].iloc[0], table.iloc[0]
    assert table["multiplier"].isna().all() == (verdict == "withheld")
    text = summary(study)
    told = verdict + f": {table['why'].iloc[0]}" * bool(table["why"].iloc[0])
    assert text.partition("trends of their logarithms")[2].splitlines()[1].endswith(f"  {told}")
    assert "better" not in text.partition("multipliers")[2].partition("effects, ")[2].partition("effects are")[0]


def test_a_diverged_run_withholds_all_multipliers_of_its_arm() -> None:
    study = climbed(lambda c: 0.2)
    at = study.runs.index[(study.runs["label"].str.startswith("swiglu")) & (study.runs["seed"] == 3)][0]
    runs = study.runs.copy()
    runs.loc[at, "status"], runs.loc[at, "test/loss"] = "diverged", math.nan
    table = evidence.ladder(Study(study.manifest, runs, study.curves, [], {}))
    assert set(table["verdict"]) == {"withheld"} and "rung 1: 1 run diverged against 0" in table["why"].iloc[0]


def test_three_rungs_forecast_nothing_and_other_designs_have_no_ladder() -> None:
    assert evidence.ladder(climbed(lambda c: 0.2, count=3))["forecast"].isna().all()
    other = study_of({"ffn": ["mlp", "swiglu"]})
    assert evidence.ladder(other).empty and "multipliers" not in summary(other)


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [({"above": 1.1}, "supported"), ({"above": 1.3}, "contradicted"), ({"below": 1.3}, "supported")],
)
def test_a_claim_about_a_multiplier(bound: dict[str, float], verdict: str) -> None:
    claim = parse(Claim, {"multiplier": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "at": {"rung": 4}} | bound)
    entry = ClaimEntry(claim=claim, registered=True, written="")
    study = with_manifest(climbed(lambda c: math.log(1.2)), claims={"worth": entry})
    (row,) = evidence.claims(study).itertuples()
    assert row.verdict == verdict and row.low < row.mean < row.high and row.mean == pytest.approx(1.2, abs=0.01)
    ((side, limit),) = bound.items()
    assert f"1.20 [1.20, 1.20] times the compute of mlp, claimed: {side} {limit}" in row.says
    assert "extrapolated" in row.note
    lost = lambda levels, seed: "diverged" if levels == {"ffn": "swiglu", "rung": 2} and seed < 2 else "done"  # noqa: E731
    for study in (climbed(lambda c: 0.2, law=broken), climbed(lambda c: 0.2, status=lost)):
        (row,) = evidence.claims(with_manifest(study, claims={"worth": entry})).itertuples()
        assert row.verdict == "undecided" and row.n == 8 and ("bends" in row.note or "2 runs diverged" in row.note)
    study = climbed(lambda c: math.log(1.2), rates=lambda ffn, rate: 0.02 - 0.04 * (ffn == "swiglu"))
    (row,) = evidence.claims(with_manifest(study, claims={"worth": entry})).itertuples()
    assert row.verdict == verdict and "; better at half the rate (optim.lr=" in row.note, "what the trend stumbles over"


def test_a_forecast_misses_where_the_trend_bends() -> None:
    table = evidence.ladder(climbed(lambda c: 0.2 if c < TOP - 1 else 0.6))
    assert not table["hit"].any() and table["forecast"].iloc[0] == pytest.approx(math.exp(0.2), abs=0.05)
    assert evidence.ladder(climbed(lambda c: 0.2))["forecast"].iloc[0] == pytest.approx(math.exp(0.2), abs=0.02)


def test_a_manifest_of_a_ladder_has_rungs() -> None:
    manifest = study_of({"ffn": ["mlp", "swiglu"]}).manifest
    assert [*flaws(replace(manifest, design="ladder"))] == ["is a ladder without rungs"]
