"""What a number of seeds can find, and what the plan says of it."""

from typing import Any

import pytest
from claimed_studies import entry
from fake_studies import study_of
from statsmodels.stats.power import TTestPower

from ablate import evidence
from ablate.evidence.power import findable, noise_lines
from ablate.formatting import between
from ablate.runs.study import Study


def test_what_seeds_find_is_what_statsmodels_says():
    for n, alpha in ((3, 0.05), (5, 0.05 / 3), (20, 0.05), (64, 0.001)):
        chance = TTestPower().power(findable(0.01, n, alpha) / 0.01, n, alpha)
        assert chance == pytest.approx(0.8, abs=0.002)


def planned(seeds: int, done: int, **options: Any) -> Study:
    """A plan of norms and FFNs, one at a time, of which some seeds have run."""
    factors = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu"]}
    status = lambda levels, seed: "done" if seed < done else "missing"  # noqa: E731
    return study_of(factors, range(seeds), design="one_at_a_time", status=status, **options)


def sds_after(seeds: int) -> list[float]:
    """The SDs of both effects over some seeds."""
    return sorted(evidence.effects(planned(seeds, seeds))["sd"])


def test_the_plan_says_what_its_seeds_find_by_the_runs_on_disk():
    least, most = (findable(sd, 8, 0.05 / 2) for sd in sds_after(5))
    [line] = noise_lines(planned(8, 5))
    assert line == f"smallest effect that 8 seeds find with 80 % power: {between(least, most)}, by the runs on disk"


def test_looks_are_paid_for():
    looks = {"looks": [5, 8, 12, 20], "at": 5, "max": 20}
    least, most = (findable(sd, 20, 0.05 / 2 / 4) for sd in sds_after(5))
    [line] = noise_lines(planned(5, 5, sequential=looks))
    assert line.startswith(f"smallest effect that 20 seeds find with 80 % power: {between(least, most)}, ")


SMALL = "fewer than 5 seeds cannot show that a difference is small"
UNPAIRED = "fewer than 5 seeds give no verdict on unpaired differences"
MARGIN = {"value": 0.01, "written": "2026-01-01", "registered": True}
SIDES = [{"norm": "rms"}, {"norm": "ln"}]
EQUAL = {"equal": entry({"equivalent": SIDES, "margin": 0.01})}
LOWER = {"lower": entry({"less": SIDES})}
UNKNOWN = "smallest effect that 5 seeds find with 80 % power: known after 3 seeds"


@pytest.mark.parametrize(
    ("seeds", "done", "options", "lines"),
    [
        (5, 0, {}, [UNKNOWN]),
        (3, 0, {}, []),
        (2, 2, {}, ["fewer than 3 seeds give no verdict"]),
        (5, 5, {"batches": str}, []),
        (3, 3, {"batches": str, "margin": MARGIN}, [SMALL, UNPAIRED]),
        (4, 0, {"margin": MARGIN}, [SMALL, UNKNOWN.replace("5", "4")]),
        (3, 0, {"claims": EQUAL}, [SMALL]),
        (3, 0, {"claims": LOWER}, []),
        (5, 0, {"margin": MARGIN, "claims": EQUAL}, [UNKNOWN]),
        (5, 5, {"tunes": "x"}, []),
    ],
)
def test_the_plan_says_what_its_seeds_are_too_few_for_and_guesses_nothing(seeds, done, options, lines):
    assert noise_lines(planned(seeds, done, **options)) == lines
