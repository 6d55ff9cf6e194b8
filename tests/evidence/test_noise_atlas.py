"""The noise atlas: each number against NumPy's and SciPy's own, and what of it comes with the package."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import TASK, Levels, fabricate, plain_score
from scipy import stats

from ablate import evidence
from ablate.evidence.noise_atlas import COLUMNS, atlas, read_atlas
from ablate.results.study import Study, load_study
from analysis.sources import recorded_study

FACTORS: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def made(folder: Path, **options: Any) -> Study:
    options = {"factors": FACTORS, "seeds": range(8)} | options
    return load_study(folder, fabricate(folder, options.pop("factors"), **options))


def row(table: pandas.DataFrame, change: str) -> Any:
    (found,) = [each for each in table.itertuples() if each.change == change]
    return found


def test_what_comes_with_the_package_is_what_the_committed_seeds_say() -> None:
    kept, found = read_atlas(), atlas([recorded_study()])
    own = kept[kept["study"] == "norm_ffn_tiny"].reset_index(drop=True)
    assert list(kept) == COLUMNS and len(own) == len(found) == 6
    pandas.testing.assert_frame_equal(own, found, check_dtype=False, rtol=1e-5)
    assert set(own["n"]) == {64} and set(own["scale"]) == {"tiny"} and set(own["steps"]) == {600}


def test_a_row_holds_the_noise_of_a_contrast() -> None:
    runs = recorded_study().runs.pivot(index="seed", columns=["norm", "ffn"], values="test/loss")
    rms, ln = runs["rms"].mean(axis=1), runs["ln"].mean(axis=1)
    found = row(atlas([recorded_study()]), "norm: rms − ln")
    sd = np.std(rms - ln, ddof=1)
    low, high = (sd * math.sqrt(63 / stats.chi2.ppf(p, 63)) for p in (0.975, 0.025))
    numbers = (found.sd, found.sd_low, found.sd_high, found.sd_level, found.sd_reference, found.correlation)
    expected = (sd, low, high, np.std(rms, ddof=1), np.std(ln, ddof=1), np.corrcoef(rms, ln)[0, 1])
    assert numbers == pytest.approx(expected, rel=1e-5)
    assert found.squares == 1 and found.paired and found.task_kind == "lm" and found.params == 115_968


def test_it_agrees_with_the_effects_where_nothing_collapsed(tmp_path: Path) -> None:
    for design in ("grid", "one_at_a_time", "cumulative"):
        study = made(tmp_path / design, design=design)
        table = atlas([study])
        assert table["sd"].to_list() == pytest.approx(evidence.effects(study)["sd"].to_list(), rel=1e-5)
        assert set(table["metric"]) == {"test/loss"} and set(table["n"]) == {8} and set(table["left_out"]) == {0}
    assert row(table, "norm: rms − ln").kind == "step", "whatever came before it"


def test_runs_that_diverged_or_collapsed_are_left_out_and_counted(tmp_path: Path) -> None:
    def score(levels: Levels, seed: int) -> float:
        return 5.4 if seed == 2 and levels["norm"] == "rms" else plain_score(levels, seed)

    def status(levels: Levels, seed: int) -> str:
        return "diverged" if seed == 5 and levels == {"norm": "rms", "ffn": "mlp"} else "done"

    study, clean = made(tmp_path / "some", score=score, status=status), made(tmp_path / "none")
    found, others = atlas([study]), atlas([clean.__class__(**vars(clean) | {"runs": kept(clean, 2, 5)})])
    norm = row(found, "norm: rms − ln")
    assert (norm.n, norm.left_out, norm.seeds) == (6, 2, 8) and norm.sd == row(others, "norm: rms − ln").sd
    alone = row(found, "ln + swiglu against ln + mlp")
    assert (alone.n, alone.left_out) == (8, 0)
    never = made(tmp_path / "all", status=lambda levels, seed: "diverged" if levels["norm"] == "rms" else "done")
    lost = row(atlas([never]), "norm: rms − ln")
    assert (lost.n, lost.left_out) == (0, 8) and math.isnan(lost.sd) and math.isnan(lost.correlation)


def kept(study: Study, *left: int) -> pandas.DataFrame:
    """The runs of a study without those of some seeds."""
    return study.runs[~study.runs["seed"].isin(left)]


def test_each_test_metric_has_rows_and_what_serves_others_none(tmp_path: Path) -> None:
    study = made(tmp_path)
    runs = study.runs.assign(**{"test/loss@128": study.runs["test/loss"] * 2, "test/odd": 1.0})
    found = atlas([Study(study.manifest, runs, study.curves, [])])
    assert set(found["metric"]) == {"test/loss", "test/loss@128"}
    assert row(found[found["metric"] == "test/loss@128"], "norm: rms − ln").sd == pytest.approx(
        2 * row(found[found["metric"] == "test/loss"], "norm: rms − ln").sd, rel=1e-5
    )
    assert atlas([made(tmp_path / "tuning", tunes="x")]).empty and list(atlas([])) == COLUMNS
    assert atlas([made(tmp_path / "one", seeds=[0])]).empty, "of one seed no SD is known"


def test_seeds_of_other_batches_do_not_pair(tmp_path: Path) -> None:
    study = made(tmp_path, batches=lambda levels: levels["norm"], tasks={"f0": TASK})
    found = row(atlas([study]), "norm: rms − ln")
    values = study.runs.groupby(["norm", "seed"])["test/loss"].mean()
    spreads = [np.std(values[norm], ddof=1) for norm in ("rms", "ln")]
    assert not found.paired and math.isnan(found.correlation)
    assert (found.sd, found.sd_level, found.sd_reference) == pytest.approx((math.hypot(*spreads), *spreads), rel=1e-5)
