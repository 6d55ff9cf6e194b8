"""The effects of the committed studies keep their digits and verdicts: tests/recorded/effects.csv."""

import pandas
import pytest
from committed_effects import FILE, NAMES, committed_effects

DIGITS = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture(scope="module")
def recorded() -> pandas.DataFrame:
    return pandas.read_csv(
        FILE, dtype=dict.fromkeys(["study", *NAMES, "verdict"], str), keep_default_na=False, na_values=[""]
    )


@pytest.fixture(scope="module")
def computed() -> pandas.DataFrame:
    return committed_effects()


def test_the_same_effects_are_estimated(recorded: pandas.DataFrame, computed: pandas.DataFrame) -> None:
    names = ["study", *NAMES]
    assert computed[names].to_numpy().tolist() == recorded[names].fillna("").to_numpy().tolist()


@pytest.mark.parametrize("columns", [["n", "mean", "sd"], ["low", "high"], ["p", "p_bonferroni"]])
def test_numbers_keep_their_digits(recorded: pandas.DataFrame, computed: pandas.DataFrame, columns: list[str]) -> None:
    now, before = (table.set_index(["study", "label"])[columns].astype(float) for table in (computed, recorded))
    pandas.testing.assert_frame_equal(now, before, **DIGITS)


def test_verdicts_stay(recorded: pandas.DataFrame, computed: pandas.DataFrame) -> None:
    both = computed[["study", "label", "verdict"]].assign(before=recorded["verdict"])
    changed = both[both["verdict"] != both["before"]]
    assert changed.empty, changed.to_string()
