"""The noise atlas: each number against NumPy's and SciPy's own, and what of it comes with the package."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import TASK, Levels, plain_score, study_of
from gallery.atlas import COLUMNS, atlas, recorded_study
from scipy import stats
from statsmodels.stats.power import TTestPower

from ablate import evidence
from ablate.evidence import power
from ablate.evidence.contrasts import contrasts
from ablate.evidence.power import (
    chance_of_equality,
    expected,
    findable,
    noise_lines,
    read_atlas,
    seeds_for_equality,
    usable,
)
from ablate.runs.records import Manifest
from ablate.runs.study import Study

FACTORS: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def made(seeds: Sequence[int] = range(8), **options: Any) -> Study:
    return study_of(FACTORS, seeds, **options)


def row(table: pandas.DataFrame, change: str) -> Any:
    (found,) = [each for each in table.itertuples() if each.change == change]
    return found


def test_the_committed_atlas_holds_the_noise_of_each_contrast() -> None:
    kept, found = read_atlas(), atlas([recorded_study()])
    own = kept[kept["study"] == "norm_ffn_tiny"].reset_index(drop=True)
    assert list(kept) == COLUMNS and len(own) == len(found) == 6
    pandas.testing.assert_frame_equal(own, found, check_dtype=False, rtol=1e-5)
    assert set(own["n"]) == {64} and set(own["scale"]) == {"tiny"} and set(own["steps"]) == {600}
    runs = recorded_study().runs.pivot(index="seed", columns=["norm", "ffn"], values="test/loss")
    rms, ln = runs["rms"].mean(axis=1), runs["ln"].mean(axis=1)
    found = row(atlas([recorded_study()]), "norm: rms − ln")
    sd = np.std(rms - ln, ddof=1)
    low, high = (sd * math.sqrt(63 / stats.chi2.ppf(p, 63)) for p in (0.975, 0.025))
    numbers = (found.sd, found.sd_low, found.sd_high, found.sd_level, found.sd_reference, found.correlation)
    expected = (sd, low, high, np.std(rms, ddof=1), np.std(ln, ddof=1), np.corrcoef(rms, ln)[0, 1])
    assert numbers == pytest.approx(expected, rel=1e-5)
    assert found.squares == 1 and found.paired and found.task_kind == "lm" and found.params == 115_968


def test_it_agrees_with_the_effects_where_nothing_collapsed() -> None:
    for design in ("grid", "one_at_a_time", "cumulative"):
        study = made(design=design)
        table = atlas([study])
        assert table["sd"].to_list() == pytest.approx(evidence.effects(study)["sd"].to_list(), rel=1e-5)
        assert set(table["metric"]) == {"test/loss"} and set(table["n"]) == {8} and set(table["left_out"]) == {0}
    assert row(table, "norm: rms − ln").kind == "step", "whatever came before it"


def test_runs_that_diverged_or_collapsed_are_left_out_and_counted() -> None:
    def score(levels: Levels, seed: int) -> float:
        return 5.4 if seed == 2 and levels["norm"] == "rms" else plain_score(levels, seed)

    def status(levels: Levels, seed: int) -> str:
        return "diverged" if seed == 5 and levels == {"norm": "rms", "ffn": "mlp"} else "done"

    clean = made()
    kept = clean.runs[~clean.runs["seed"].isin([2, 5])]
    found, others = atlas([made(score=score, status=status)]), atlas([replace(clean, runs=kept)])
    norm = row(found, "norm: rms − ln")
    assert (norm.n, norm.left_out, norm.seeds) == (6, 2, 8) and norm.sd == row(others, "norm: rms − ln").sd
    alone = row(found, "ln + swiglu against ln + mlp")
    assert (alone.n, alone.left_out) == (8, 0)
    never = made(status=lambda levels, seed: "diverged" if levels["norm"] == "rms" else "done")
    lost = row(atlas([never]), "norm: rms − ln")
    assert (lost.n, lost.left_out) == (0, 8) and math.isnan(lost.sd) and math.isnan(lost.correlation)


def test_each_test_metric_has_rows_and_what_serves_others_none() -> None:
    study = made()
    study.runs["test/loss@128"], study.runs["test/odd"] = 2 * study.runs["test/loss"], 1.0
    found = dict(iter(atlas([study]).groupby("metric")))
    assert set(found) == {"test/loss", "test/loss@128"}
    sd, doubled = (row(table, "norm: rms − ln").sd for table in found.values())
    assert doubled == pytest.approx(2 * sd, rel=1e-5)
    assert atlas([made(tunes="x")]).empty and list(atlas([])) == COLUMNS
    assert atlas([made(seeds=[0])]).empty, "of one seed no SD is known"


def test_seeds_of_other_batches_do_not_pair() -> None:
    study = made(batches=lambda levels: levels["norm"], tasks={"f0": TASK})
    found = row(atlas([study]), "norm: rms − ln")
    values = study.runs.groupby(["norm", "seed"])["test/loss"].mean()
    spreads = [np.std(values[norm], ddof=1) for norm in ("rms", "ln")]
    assert not found.paired and math.isnan(found.correlation)
    assert (found.sd, found.sd_level, found.sd_reference) == pytest.approx((math.hypot(*spreads), *spreads), rel=1e-5)


ROW = {
    **{"study": "x", "task": TASK["name"], "task_kind": "lm", "scale": "tiny", "params": 123_456, "steps": 800},
    **{"metric": "test/loss", "kind": "main", "factor": "norm", "change": "norm: rms − ln", "stratum": ""},
    **{"squares": 2.0, "paired": True, "n": 20, "seeds": 20, "left_out": 0, "sd": 0.01, "sd_low": 0.008},
    **{"sd_high": 0.015, "sd_level": 0.01, "sd_reference": 0.01, "correlation": 0.5},
}


def rows(*changes: dict[str, Any]) -> pandas.DataFrame:
    """An atlas of rows that differ from ROW in this."""
    return pandas.DataFrame([ROW | each for each in changes], columns=COLUMNS)


def planned(factors: dict[str, list[Any]] | None = None, **options: Any) -> Manifest:
    """The manifest of a study before it is trained; one factor at a time."""
    return study_of(factors or {"norm": ["ln", "rms"]}, design="one_at_a_time", **options).manifest


def taken(manifest: Manifest, table: pandas.DataFrame) -> float | None:
    """The SD that is expected of the first contrast."""
    found = expected(usable(table), manifest, contrasts(manifest)[0], "test/loss")
    return None if found is None else found.sd


def test_the_nearest_row_is_taken_and_none_that_is_far() -> None:
    manifest = planned()
    other = {"factor": "ffn", "change": "ffn: glu − mlp"}
    assert taken(manifest, rows({"sd": 0.1} | other, {"sd": 0.2, "steps": 4000})) == 0.2, "the same change, if farther"
    assert taken(manifest, rows({"sd": 0.1} | other, {"sd": 0.2, "change": "norm: none − ln"})) == 0.2, "its factor"
    assert taken(manifest, rows({"sd": 0.1, "steps": 1600}, {"sd": 0.2, "steps": 700})) == 0.2, "nearest in steps"
    elsewhere = {"task": "stdlib-3.14"}
    assert taken(manifest, rows({"sd": 0.1} | elsewhere, {"sd": 0.2, "steps": 3000})) == 0.2, "the same text"
    assert taken(manifest, rows({"sd": 0.1} | elsewhere, {"sd": 0.2} | elsewhere)) == 0.2, "the noisier"
    for order in (1, -1):
        both = [{"sd": 0.2, "n": 20}, {"sd": 0.1, "n": 40}][::order]
        assert taken(manifest, rows(*both)) == 0.1, "of most seeds, if less noisy"
    unlike = [other, {"task": "chars"}, {"metric": "test/accuracy"}, {"task_kind": "mlm"}, {"kind": "cell"}]
    unlike += [{"n": 4}, {"paired": False}]
    unlike += [{"steps": 8001}, {"steps": 79}, {"sd": math.nan}, {"sd": 0.0}, {"steps": math.nan}]
    for change in unlike:
        assert taken(manifest, rows(change)) is None, change
    apart = planned(batches=lambda levels: str(levels["norm"]))
    assert taken(apart, rows({})) is None, "unpaired"


def test_a_larger_contrast_is_noisier_and_averaging_is_not_counted_on() -> None:
    manifest = planned()
    assert taken(manifest, rows({"squares": 1.0})) == pytest.approx(0.01 * math.sqrt(2))
    assert taken(manifest, rows({"squares": 4.0})) == 0.01


def test_what_seeds_find_is_what_statsmodels_says() -> None:
    for n, alpha in ((3, 0.05), (5, 0.05 / 3), (20, 0.05), (64, 0.001)):
        chance = TTestPower().power(findable(0.01, n, alpha) / 0.01, n, alpha)
        assert chance == pytest.approx(0.8, abs=0.002)


def test_seeds_that_show_equality_do_in_80_per_cent_of_simulated_studies() -> None:
    """Of 40,000 simulated studies of so many seeds; one seed fewer is too few."""
    sd = 0.01
    margin = 0.008
    alpha = 0.05 / 3
    n = seeds_for_equality(margin, sd, alpha)
    assert n and chance_of_equality(margin, sd, n - 1, alpha) < 0.8 <= chance_of_equality(margin, sd, n, alpha)
    values = np.random.default_rng(n).normal(0, sd, (40_000, n))
    half_widths = stats.t.isf(alpha / 2, n - 1) * values.std(1, ddof=1) / math.sqrt(n)
    inside = np.abs(values.mean(1)) + half_widths < margin
    assert inside.mean() == pytest.approx(chance_of_equality(margin, sd, n, alpha), abs=0.01)


def test_equality_needs_five_seeds_and_is_not_promised_beyond_10_000() -> None:
    assert seeds_for_equality(10, 0.01, 0.05) == 5
    assert seeds_for_equality(1e-6, 0.01, 0.05) is None


def lines(monkeypatch: pytest.MonkeyPatch, manifest: Manifest, table: pandas.DataFrame) -> list[str]:
    monkeypatch.setattr(power, "read_atlas", lambda: table)
    return noise_lines(manifest)


def test_the_plan_says_what_its_seeds_find_and_how_many_its_margin_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu"]}
    manifest = planned(factors, seeds=range(6), margin={"value": 0.01})
    noise, needed = lines(monkeypatch, manifest, rows({}, {"factor": "ffn", "change": "ffn: glu − mlp", "sd": 0.02}))
    assert "0.010 to 0.020, from 20 seeds of norm: rms − ln and ffn: glu − mlp at scale=tiny)" in noise
    found = noise.partition("with 80 % power: ")[2].partition(" (")[0]
    sizes = [float(number) for number in found.split(" to ")]
    assert sizes == pytest.approx([findable(sd, 6, 0.05 / 2) for sd in (0.01, 0.02)], abs=5e-4)
    assert f"{seeds_for_equality(0.01, 0.02, 0.05 / 2)} seeds would show equality within 0.01" in needed


def test_where_nothing_is_near_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = planned()
    assert lines(monkeypatch, manifest, rows()) == [] == lines(monkeypatch, manifest, rows({"task_kind": "mlm"}))
    (far,) = lines(monkeypatch, manifest, rows({"steps": 4000, "task": "stdlib-3.14", "scale": "4 layers of 64"}))
    assert "at 4 layers of 64, 0.12 M parameters × 4000 steps on stdlib-3.14)" in far
    (one,) = lines(monkeypatch, planned(seeds=[0]), rows({}))
    assert "fewer than 3 seeds find nothing" in one
    assert lines(monkeypatch, planned(tunes="x"), rows({})) == []
    steps = planned(margin={"value": "2 %"})
    assert lines(monkeypatch, steps, rows({})) == lines(monkeypatch, manifest, rows({}))


def test_looks_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sequence = {"looks": [5, 8, 12, 20], "at": 5, "max": 20}
    (found,) = lines(monkeypatch, planned(seeds=range(5), sequential=sequence), rows({}))
    size = float(re.findall(r"with 80 % power: ([\d.]+)", found)[0])
    assert "smallest effect that 20 seeds find" in found and size == pytest.approx(
        findable(0.01, 20, 0.05 / 4), abs=5e-4
    )
