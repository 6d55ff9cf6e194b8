"""Skewed differences over seeds: what verdicts name, what the check sees and withholds, and how often by simulation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_studies import fabricate
from scipy import stats

from ablate import evidence, formatting
from ablate.cli.summary import summary
from ablate.evidence.normality import LEVEL, alarmed, normality
from ablate.results.study import Study, load_study
from analysis.case import case_of
from analysis.writing.methods import markdown

PAIR = {"norm": ["ln", "rms"]}
NORMAL = "if differences are roughly normal"
QUANTILES = {n: stats.norm.ppf((np.arange(n) + 0.5) / n) for n in (8, 11, 12, 20)}


def study(folder: Path, differences: np.ndarray, **options: Any) -> Study:
    score = lambda levels, seed: 2.0 + float(differences[seed]) * (levels["norm"] == "rms")  # noqa: E731
    return load_study(folder, fabricate(folder, PAIR, range(len(differences)), score, **options))


def row(found: Study) -> Any:
    return next(evidence.effects(found).itertuples())


def rates(shape: str, n: int, studies: int) -> np.ndarray:
    """p of the check on so many sets of differences."""
    rng = np.random.default_rng([n, len(shape)])
    values = rng.normal(size=(studies, n)) if shape == "normal" else rng.lognormal(size=(studies, n))
    return np.array([normality([each]) for each in values])


@pytest.mark.parametrize("n", [8, 11])
def test_below_twelve_seeds_a_verdict_names_what_it_assumes(tmp_path: Path, n: int) -> None:
    found = study(tmp_path, 0.05 + 0.01 * QUANTILES[n])
    assert row(found).verdict == "worse" and row(found).assumes == NORMAL
    lines = summary(found).splitlines()
    assert any(line.endswith("worse (higher loss) at this scale") for line in lines)
    assert lines.count("verdicts from fewer than 12 seeds assume that differences over seeds are roughly normal") == 1
    assert NORMAL not in "".join([*lines, *sentences_of(tmp_path, found)]), "what holds for all rows is said once"


def sentences_of(folder: Path, found: Study) -> list[str]:
    from analysis.writing.sentences import sentences

    return sentences(case_of(found, folder))


def test_from_twelve_seeds_on_normal_differences_need_no_assumption(tmp_path: Path) -> None:
    found = study(tmp_path, 0.05 + 0.01 * QUANTILES[12])
    assert row(found).verdict == "worse" and row(found).assumes == "" and row(found).p_normal > LEVEL
    assert NORMAL not in summary(found)


@pytest.mark.parametrize("margin", [None, 5.0])
def test_an_alarm_withholds_the_verdict_and_says_why(tmp_path: Path, margin: float | None) -> None:
    asked = {"value": margin, "written": "2026-01-01", "registered": True, "earlier": []} if margin else None
    skewed = 0.01 * np.exp(QUANTILES[20])
    found = row(study(tmp_path, skewed, margin=asked))
    assert stats.ttest_1samp(skewed, 0).pvalue < 0.001, "what the interval would have called worse"
    assert found.verdict == "withheld" and math.isnan(found.low) and math.isnan(found.p)
    assert formatting.verdict(found).startswith("withheld: differences over seeds are not normal (Shapiro–Wilk p")
    assert found.note.endswith("lower 0, higher 20")


def test_after_an_alarm_the_other_rows_name_what_they_assume(tmp_path: Path) -> None:
    shapes = {"ln": 0 * QUANTILES[20], "rms": np.exp(QUANTILES[20]), "scale": 5 + np.roll(QUANTILES[20], 7)}
    score = lambda levels, seed: 2.0 + 0.01 * float(shapes[levels["norm"]][seed])  # noqa: E731
    name = fabricate(tmp_path, {"norm": list(shapes)}, range(20), score)
    read = load_study(tmp_path, name)
    family = evidence.effects(read).query("family")
    assert "(1 of 2)" in markdown(case_of(read, tmp_path))
    assert list(family["verdict"]) == ["withheld", "worse"] and list(family["assumes"]) == ["", NORMAL]


def test_seeds_auto_does_not_stop_on_an_alarm(tmp_path: Path) -> None:
    looks = {"looks": [5, 8, 12, 20], "at": 12, "max": 20}
    table = evidence.effects(study(tmp_path, 0.01 * np.exp(1.5 * QUANTILES[12]), sequential=looks))
    assert table["verdict"].iloc[0] == "withheld" and len(evidence.undecided(table)) == 1


@pytest.mark.parametrize("relation", ["greater", "equivalent"])
def test_claims_go_by_the_same_check(tmp_path: Path, relation: str) -> None:
    text: dict[str, Any] = {relation: [{"norm": "rms"}, {"norm": "ln"}], "metric": "test/loss"}
    text |= {"margin": 9.0} if relation == "equivalent" else {}
    claims = {"c": {"claim": text, "written": "2026-01-01", "registered": True}}
    found = evidence.claims(study(tmp_path / "a", 0.01 * np.exp(QUANTILES[20]), claims=claims)).iloc[0]
    assert found.verdict == "undecided" and "are not normal (Shapiro–Wilk" in found.sentence and found.waits
    found = evidence.claims(study(tmp_path / "b", 0.05 + 0.01 * QUANTILES[8], claims=claims)).iloc[0]
    assert found.verdict.startswith("supported") and found.assumes == NORMAL and NORMAL not in found.sentence


def test_unpaired_sides_are_checked_each(tmp_path: Path) -> None:
    def score(levels: dict[str, Any], seed: int) -> float:
        far = levels["train.batch_size"] == 32
        return 2.0 + 0.01 * float(np.exp(QUANTILES[20][seed]) if far else QUANTILES[20][seed]) + far

    name = fabricate(tmp_path, {"train.batch_size": [16, 32]}, range(20), score=score, batches=str)
    found = row(load_study(tmp_path, name))
    assert not found.paired and found.verdict == "withheld" and "scores over seeds are not normal" in found.note


def test_methods_name_the_assumption_and_the_check(tmp_path: Path) -> None:
    few = study(tmp_path / "few", 0.05 + 0.01 * QUANTILES[8])
    assert "assume that differences over seeds are roughly normal" in markdown(case_of(few, tmp_path / "few"))
    many = study(tmp_path / "many", 0.05 + 0.01 * QUANTILES[20])
    text = markdown(case_of(many, tmp_path / "many"))
    assert "Shapiro and Wilk" in text and "assume" not in text


@pytest.mark.parametrize("n", [12, 20])
def test_false_alarms_are_five_per_cent_and_skew_is_seen(n: int) -> None:
    false, seen = (alarms(shape, n, 1500) for shape in ("normal", "lognormal"))
    assert false <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 1500)
    assert seen >= {12: 0.6, 20: 0.9}[n]


def alarms(shape: str, n: int, studies: int) -> float:
    return float(np.mean([alarmed(p) for p in rates(shape, n, studies)]))


@pytest.mark.slow
@pytest.mark.parametrize("n", [12, 20])
def test_what_the_check_leaves_is_what_readme_says(n: int) -> None:
    """False verdicts among one, six and fifteen contrasts with lognormal noise in the variants."""
    rng, studies = np.random.default_rng(n), 1200
    values = rng.lognormal(size=(studies, 15, n)) - math.exp(0.5)
    passed = np.array([[not alarmed(normality([row])) for row in each] for each in values])
    p = stats.ttest_1samp(values, 0, axis=2).pvalue
    for m, before, after in {
        12: [(1, 0.16, 0.09), (6, 0.40, 0.28), (15, 0.61, 0.46)],
        20: [(1, 0.13, 0.03), (6, 0.36, 0.11), (15, 0.55, 0.21)],
    }[n]:
        found = p[:, :m] <= 0.05 / m
        assert found.any(1).mean() == pytest.approx(before, abs=0.05)
        assert (found & passed[:, :m]).any(1).mean() == pytest.approx(after, abs=0.05)
