"""Speed of runs that were timed: paired by seed, a family of its own, judged by nothing that is about the endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_studies import edit_json, fabricate
from scipy import stats

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.claim_relations import Claim
from ablate.config.claims import metric_problems
from ablate.config.typed_json import parse
from ablate.results.run import Run
from ablate.results.study import Study, load_study
from analysis.case import case_of
from analysis.case.figures_yaml import Edits
from analysis.cli.main import _lines
from analysis.figures.draw.page import page_of
from analysis.figures.kinds import pareto
from analysis.writing import methods, tables

METRIC = "train/step_seconds"
FACTORS = {"ffn": ["mlp", "swiglu"]}
MARGIN = {"value": 1.0, "written": "2025-01-01T00:00:00+00:00", "registered": True, "earlier": []}


def timed(folder: Path, **more: Any) -> Study:
    return load_study(folder, fabricate(folder, FACTORS, seeds=range(5), timing="isolated", **more))


def test_an_effect_on_seconds_is_a_t_interval_of_differences_within_seeds(tmp_path: Path) -> None:
    study = timed(tmp_path, margin=MARGIN, batches=lambda levels: f"b {levels['ffn']}")
    [row] = evidence.speed(study).itertuples()
    seconds = study.runs.pivot(index="seed", columns="label", values=METRIC)
    difference = seconds["swiglu"] - seconds["mlp"]
    low, high = stats.t.interval(0.95, 4, difference.mean(), stats.sem(difference))
    assert (row.low, row.high) == pytest.approx((low, high)) and row.paired, "whatever their batches are"
    assert row.verdict == "worse", "slower, and the endpoint's margin says nothing of it"
    assert not evidence.effects(study)["paired"].any()


def test_tokens_per_second_are_better_where_there_are_more(tmp_path: Path) -> None:
    study = timed(tmp_path)
    study.runs["train/tokens_per_second"] = 1000 / study.runs[METRIC]
    [row] = evidence.effects(study, "train/tokens_per_second").itertuples()
    assert row.verdict == "worse" and row.mean < 0


def test_seconds_of_a_shared_machine_are_not_judged(tmp_path: Path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, FACTORS))
    assert evidence.speed(study).empty and METRIC not in study.runs
    assert "speed not compared" in summary(study) and "speed is not compared" not in summary(study)


def test_seeds_whose_cells_were_not_timed_in_one_go_are_left_out(tmp_path: Path) -> None:
    """Nor those of a run that was continued, in the sitting of its partners."""
    for name, change in {"day": {"sitting": "another day"}, "resumed": {"resumed": 1}}.items():
        folder = tmp_path / name
        path = timed(folder).runs.query("seed == 3")["path"].iloc[0]
        edit_json(Run(folder, path).result_file, lambda told, change=change: told.update(change))
        study = load_study(folder, "fabricated")
        [note] = study.notes
        assert "1 seed (3)" in note and "speed" in note and evidence.speed(study)["n"].tolist() == [4]
        assert evidence.effects(study)["n"].tolist() == [5], "the losses are as good as any"


def test_claims_about_speed_need_runs_that_are_timed(tmp_path: Path) -> None:
    sides = [{"ffn": "mlp"}, {"ffn": "swiglu"}]
    said: dict[str, dict[str, Any]] = {"faster": {"less": sides}, "near": {"equivalent": sides, "margin": "2 %"}}
    said = {name: claim | {"metric": METRIC} for name, claim in said.items()}
    claims = {name: parse(Claim, claim) for name, claim in said.items()}
    shared = metric_problems(claims, [{"loss": "min"}], [])
    assert [p.key for p in shared] == ["claims.faster", "claims.near"] and "timing=isolated" in shared[0].message
    misspelt = {"faster": parse(Claim, said["faster"] | {"metric": METRIC[:-1]})}
    [close] = metric_problems(misspelt, [{"loss": "min"}], [])
    assert f"did you mean {METRIC}?" in close.message
    [share] = metric_problems(claims, [{"loss": "min"}], [], timed=True)
    assert share.key == "claims.near" and "a number" in share.message
    longer = {"faster": parse(Claim, said["faster"] | {"metric": f"{METRIC}@32"})}
    [length] = metric_problems(longer, [{"loss": "min"}], [32], timed=True)
    assert f"{METRIC}@32" in length.message, "no step is timed at another length"
    entry = {"claim": said["faster"], "written": "2025-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    [row] = evidence.claims(timed(tmp_path, claims={"faster": entry})).itertuples()
    assert row.verdict == "supported" and "mlp is 0.001997 [0.001985, 0.002009] s faster than swiglu (" in row.sentence


@pytest.mark.parametrize(("metric", "verdict"), [("test/loss", "worse"), (METRIC, "descriptive")])
def test_speed_is_judged_unless_claims_judge_it(tmp_path: Path, metric: str, verdict: str) -> None:
    claim = {"less": [{"ffn": "mlp"}, {"ffn": "swiglu"}], "metric": metric}
    entry = {"claim": claim, "written": "2025-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    assert [*evidence.speed(timed(tmp_path, claims={"lower": entry}))["verdict"]] == [verdict]


def test_speed_is_shown_where_it_was_measured(tmp_path: Path) -> None:
    study = timed(tmp_path)
    said, case = summary(study), case_of(study, tmp_path)
    assert "seconds of a training step" in said and "speed not compared" not in said
    for told in (said, "\n".join(_lines(case))):
        assert "worse (slower)" in told.split("seconds of a training step")[-1] and "step_seconds" not in told
    assert "speed" in tables.frames(case) and "speed" in [sheet.name for sheet in tables.sheets(case)]
    assert "one at a time" in methods.markdown(case)
    costs = pareto.table(case)
    assert costs is not None and (costs["facet"] == "seconds of training steps").sum() == 2
    [mean] = costs.loc[costs["facet"].str.startswith("seconds") & costs["name"].eq("swiglu"), "cost"]
    assert mean == pytest.approx(800 * study.runs.loc[study.runs["label"] == "swiglu", METRIC].mean())
    spread = costs.loc[costs["facet"].str.startswith("seconds") & costs["name"].eq("swiglu"), "cost_sd"]
    assert spread.tolist() == pytest.approx([800 * study.runs.loc[study.runs["label"] == "swiglu", METRIC].std()])
    assert costs.loc[~costs["facet"].str.startswith("seconds"), "cost_sd"].isna().all(), "sizes are known, not measured"
    costs.attrs["title"] = "speed"
    figure = pareto.draw(costs, page_of(study.manifest, Edits(figures=["pareto"])))
    bars = [len(axis.collections) for axis in figure.axes]
    assert bars == [4 if "seconds" in axis.get_xlabel() else 2 for axis in figure.axes], (
        "measured costs have a bar, too"
    )
