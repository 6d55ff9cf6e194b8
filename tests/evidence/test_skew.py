"""The sign test in place of Student's t: from 12 paired seeds on, where differences are plainly skewed."""

import math
from typing import Any

import numpy as np
import pytest
from claimed_studies import entry
from fake_studies import study_of
from scipy import stats

from ablate import evidence
from ablate.evidence.estimates import SKEWNESS_LIMIT, estimate_of_differences, is_skewed
from ablate.runs.study import Study

PAIR = {"norm": ["ln", "rms"]}


def lognormal(n: int) -> np.ndarray:
    """Plainly skewed differences: the quantiles of a lognormal distribution."""
    return np.asarray(stats.lognorm(1).ppf((np.arange(n) + 0.5) / n))


def study(differences: np.ndarray, **options: Any) -> Study:
    """Two norms, of which rms has these differences from ln, seed by seed."""

    def score(levels: dict[str, Any], seed: int) -> float:
        difference = float(differences[seed]) if levels["norm"] == "rms" else 0.0
        return 2.0 + difference

    return study_of(PAIR, range(len(differences)), score, **options)


def row(found: Study) -> Any:
    return next(evidence.effects(found).itertuples())


@pytest.mark.parametrize(
    ("differences", "skewed"),
    [
        (lognormal(16), True),
        (-lognormal(16), True),
        (lognormal(11), False),
        (stats.norm.ppf((np.arange(16) + 0.5) / 16), False),
        (np.ones(16), False),
    ],
)
def test_the_rule_is_twelve_seeds_and_a_skewness_beyond_the_limit(differences, skewed):
    assert is_skewed(differences) == skewed


def test_the_skewness_is_the_adjusted_one_of_fisher_and_pearson():
    samples = np.random.default_rng(2).exponential(size=(200, 16))
    expected = np.abs(stats.skew(samples, axis=1, bias=False)) > SKEWNESS_LIMIT
    assert [is_skewed(sample) for sample in samples] == expected.tolist()
    assert 20 < expected.sum() < 180, "both sides of the limit occur"


def test_the_sign_test_decides_and_the_interval_is_the_medians():
    differences = 0.01 * (lognormal(16) - 0.2)  # 15 above zero, 1 below
    found = row(study(differences))
    assert found.p == pytest.approx(stats.binomtest(15, 16).pvalue)
    # At 95 % the interval of the median of 16 is from the 4th to the 13th: 1 − 2·P(Binomial(16, ½) ≤ 3) = .979.
    ordered = np.sort(differences)
    assert (found.low, found.high) == pytest.approx((ordered[3], ordered[12]), abs=1e-9)
    assert found.verdict == "worse"
    assert found.note == "skewed differences: sign test, interval of the median; higher in 15 of 16 seeds"
    assert found.mean == pytest.approx(differences.mean()), "the estimate stays the mean"


def test_a_result_in_all_seeds_is_decided_though_one_seed_is_far_away():
    """Student's t calls it undecided, because the outlier widens its interval more than it moves the mean."""
    differences = np.append(np.linspace(0.010, 0.012, 15), 0.5)
    assert stats.ttest_1samp(differences, 0).pvalue > 0.05
    found = row(study(differences))
    assert found.verdict == "worse"
    assert found.p == pytest.approx(2 * 0.5**16)


def test_claims_are_decided_by_the_same_rule():
    claim = {"greater": [{"norm": "rms"}, {"norm": "ln"}], "metric": "test/loss"}
    entries = {"more": entry(claim), "by_more": entry(claim | {"margin": 0.005})}
    differences = np.append(np.linspace(0.010, 0.012, 15), 0.5)
    table = evidence.claims(study(differences, claims=entries)).set_index("name")
    assert list(table["verdict"]) == ["supported"] * 2
    assert table.loc["more", "p"] == pytest.approx(2 * 0.5**16)
    assert "sign test" in table.loc["more", "note"]


def test_the_median_of_skewed_differences_shows_nothing_to_be_small():
    """Fifteen seeds do not differ and one is far off: the median is within the margin, the mean is not."""
    differences = np.append(np.linspace(-0.001, 0.001, 15), 0.5)
    margin = {"value": 0.01, "written": "2026-01-01", "registered": True}
    small = {"equivalent": [{"norm": "rms"}, {"norm": "ln"}], "metric": "test/loss", "margin": 0.01}
    claims = {"small": entry(small)}
    found = row(study(differences, margin=margin))
    assert -0.01 < found.low < found.high < 0.01
    assert found.verdict == "undecided"
    claim = evidence.claims(study(differences, claims=claims)).iloc[0]
    assert (claim["verdict"], claim["p"]) == ("undecided", 1.0)


def covered(differences: np.ndarray, truth: float) -> bool:
    estimate = estimate_of_differences(differences)
    low, high = evidence.interval(estimate, 0.05)
    return low <= truth <= high


@pytest.mark.parametrize("n", [12, 20])
def test_with_normal_noise_intervals_cover_in_94_of_100(n):
    rng = np.random.default_rng(n)
    hits = [covered(rng.normal(size=n), 0.0) for _ in range(3000)]
    assert np.mean(hits) > 0.94 - 3 * math.sqrt(0.05 * 0.95 / 3000)


def test_where_the_sign_test_decides_the_interval_holds_the_median_in_95_of_100():
    rng = np.random.default_rng(4)
    hits = []
    while len(hits) < 600:
        differences = rng.lognormal(size=16)
        if is_skewed(differences):
            hits.append(covered(differences, 1.0))
    assert np.mean(hits) > 0.95 - 3 * math.sqrt(0.05 * 0.95 / len(hits))
