"""Sentences of effects: what was found, what it rests on, what it is worth, and where it holds."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from analysed_studies import case

from ablate.formatting import p_text
from analysis.case import Case
from analysis.writing.sentences import p_words, sentence, sentences

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def about(found: Case, label: str, **changed: Any) -> str:
    """The sentence of a row, with some of its numbers changed."""
    row = next(found.effects[found.effects["label"] == label].assign(**changed).itertuples())
    return sentence(found.study.manifest, row)


def test_a_decided_effect_is_told_by_its_size_its_interval_its_grounds_and_its_scope(tmp_path: Path) -> None:
    found = case(tmp_path, seeds=range(8))
    row = next(found.effects.query("factor == 'ffn'").itertuples())
    said = sentences(found)[1]
    pattern = (
        r"swiglu in place of mlp lowers the test loss by 0\.(\d+) \[0\.(\d+), 0\.(\d+)\] nats per byte, averaged over "
        r"norm \(8 seeds, Holm p < 0\.0001, "
        r"\+0\.1 % parameters; 0\.12 M parameters, stdlib-3\.11, 800 steps\)\."
    )
    shown = re.fullmatch(pattern, said)
    assert shown, said
    expected = [-row.mean, -row.high, -row.low]  # of a reduction, so that the ends change places
    assert [float(f".{digits}") for digits in shown.groups()] == pytest.approx(expected, abs=6e-5)


def test_parameters_are_those_of_the_sides_that_are_compared(tmp_path: Path) -> None:
    found = case(tmp_path)
    params = {tuple(cell.levels.values()): cell.params for cell in found.study.manifest.cells}
    ratio = (params["ln", "swiglu"] + params["rms", "swiglu"]) / (params["ln", "mlp"] + params["rms", "mlp"])
    assert f"{100 * (ratio - 1):+.1f} % parameters" in sentences(found)[1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"verdict": "equivalent", "margin": 0.01, "mean": 0.001, "low": -0.004, "high": 0.006},
         "swiglu in place of mlp: equivalent within ±0.01, test loss +0.0010 [−0.0040, +0.0060] nats per byte ("),
        ({"verdict": "equivalent among seeds that trained", "margin": 0.01, "mean": 0.001, "low": -0.004, "high": 0.006,
          "note": "5 of 5 trained, failure rate < 46 %"},
         "swiglu in place of mlp: equivalent within ±0.01 (5 of 5 trained, failure rate < 46 %), "
         "test loss +0.0010 [−0.0040, +0.0060] nats per byte ("),
        ({"verdict": "negligible", "margin": 0.02, "mean": 0.006, "low": 0.002, "high": 0.010},
         "swiglu in place of mlp raises the test loss by 0.0060 [0.0020, 0.0100] nats per byte, averaged over norm, "
         "a difference within ±0.02: negligible ("),
        ({"verdict": "undecided", "mean": 0.06, "low": -0.04, "high": 0.16, "smallest": 0.09, "note": "",
          "assumes": ""},
         "swiglu in place of mlp: undecided, test loss +0.060 [−0.040, +0.160] nats per byte (3 seeds, Holm "
         "p < 0.0001, a fresh study would find 0.090 four times in five;"),
        ({"verdict": "withheld", "note": "2 diverged", "diverged": 2, "lower": 0, "higher": 2, "tied": 1},
         "swiglu in place of mlp: withheld, 2 diverged; diverged ranked worst: lower 0, higher 2, tied 1 ("),
    ],
)  # fmt: skip
def test_each_verdict_has_its_words(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    found = about(case(tmp_path), "ffn: swiglu − mlp", p_holm=1e-6, **changed)
    assert found.startswith(said), found


def test_an_interaction_is_told_as_a_difference_of_differences(tmp_path: Path) -> None:
    """Main effects are means over the other factor: they add up to what both changes do, whatever the interaction."""
    found = case(tmp_path, seeds=range(5))
    mean = found.effects.query("kind != 'cell'").set_index("label")["mean"]
    both = found.effects.set_index("label").loc["rms + swiglu against ln + mlp", "mean"]
    assert mean["norm: rms − ln"] + mean["ffn: swiglu − mlp"] == pytest.approx(both)
    cell = found.cells.set_index("label")["mean"]
    with_rms, with_ln = (cell[f"{norm} + swiglu"] - cell[f"{norm} + mlp"] for norm in ("rms", "ln"))
    assert mean["norm × ffn"] == pytest.approx(with_rms - with_ln)
    numbers: dict[str, Any] = {"mean": -0.01, "low": -0.015, "high": -0.005}
    said = about(found, "norm × ffn", verdict="better", **numbers)
    assert said.startswith(
        "interaction of rms and swiglu: the difference that swiglu in place of mlp makes to the test loss is lower by "
        "0.0100 [0.0050, 0.0150] nats per byte with rms than with ln ("
    ), said
    said = about(found, "norm × ffn", verdict="undecided", note="", mean=0.01, low=-0.01, high=0.03)
    assert said.startswith(
        "interaction of rms and swiglu: undecided, test loss +0.010 [−0.010, +0.030] nats per byte: the difference "
        "that swiglu in place of mlp makes with rms, minus that with ln ("
    ), said


def test_what_an_effect_is_worth_comes_with_what_must_be_known_of_it(tmp_path: Path) -> None:
    numbers = {"worth": 0.09, "worth_low": 0.06, "worth_high": 0.13, "worth_note": "the reference's curve bends"}
    said = about(case(tmp_path), "ffn: swiglu − mlp", **numbers)
    assert "worth 9 % [6, 13] more steps, the reference's curve bends" in said


def test_what_a_seed_a_look_or_other_batches_forbid_is_said(tmp_path: Path) -> None:
    one = sentences(case(tmp_path, study="one", seeds=[0]))
    assert all("undecided (one seed can conclude nothing)" in said and "p =" not in said for said in one)
    late = case(tmp_path, study="late", seeds=range(5), looks=[{"seeds": [0, 1], "when": ""}])
    assert all("unadjusted for looks" in said for said in sentences(late))
    apart = case(tmp_path, study="apart", seeds=range(6), batches=str)
    assert all("(unpaired, n = 6, " in said for said in sentences(apart))
    none = case(tmp_path, study="none", status=lambda levels, seed: "missing")
    assert all("no seed has every run it needs (0 seeds" in said and "nan" not in said for said in sentences(none))


def test_exploratory_rows_say_so_and_name_their_correction(tmp_path: Path) -> None:
    found = case(tmp_path, seeds=range(8))
    said = sentences(found, found.effects[~found.effects["family"]])
    grounds = r"\(exploratory, 8 seeds, (if differences are roughly normal, )?BH p "
    assert len(said) == 3 and all(re.search(grounds, each) for each in said)
    assert "ln + swiglu seems to lower the test loss" in said[0] and "against ln + mlp (" in said[0]


def test_interactions_and_bare_levels(tmp_path: Path) -> None:
    found = case(tmp_path, {"norm": ["ln", "none"], "optim.lr": [1e-3, 2e-3]}, design="one_at_a_time", seeds=range(5))
    assert sentences(found)[0].startswith("norm=none in place of ln: ")
    assert sentences(found)[1].startswith("optim.lr=0.002 in place of 0.001: ")
    both = case(tmp_path, study="both", seeds=range(8))
    said = about(both, "norm × ffn", verdict="better", mean=-0.03, low=-0.04, high=-0.02, note="")
    assert said.startswith("interaction of rms and swiglu: the difference that swiglu in place of mlp makes to the ")


def test_accuracy_has_no_unit_and_rises(tmp_path: Path) -> None:
    task = {"f0": {"name": "mqar", "title": "MQAR", "kind": "lm", "token": "token", "metrics": {"accuracy": "max"},
                   "yardsticks": {}, "train_tokens": None}}  # fmt: skip

    def score(levels: dict[str, Any], seed: int) -> float:
        return 0.5 + 0.001 * seed + (0.2 + 0.001 * seed) * (levels["ffn"] == "swiglu")

    said = sentences(case(tmp_path, seeds=range(6), tasks=task, score=score))[1]
    assert said.startswith("swiglu in place of mlp raises the test accuracy by 0.20") and "nats" not in said


def test_small_p_keep_a_digit() -> None:
    assert [p_words(p, "Holm") for p in (0.0003, 0.031, 1e-9, 1.0)] == [
        "Holm p = 0.0003", "Holm p = 0.031", "Holm p < 0.0001", "Holm p = 1.000",
    ]  # fmt: skip
    assert p_words(math.nan, "Holm") == ""
    assert [p_text(p) for p in (0.0003, 0.031, 1e-9, 1.0, math.nan)] == ["0.0003", "0.031", "< 0.0001", "1.000", "–"]
